package reorder

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/mono"
	"github.com/loomfabric/loom/overlay"
)

// The heap of deadlines against a plain minimum.
func TestTimersAgainstMinimum(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const n = 50
	qs := make([]queue, n)
	var tm timers
	in := map[uint16]bool{}
	for range 20_000 {
		q := uint16(rng.IntN(n))
		switch {
		case !in[q]:
			qs[q].deadline = mono.Time(rng.Int64N(1000))
			tm.add(qs, q)
			in[q] = true
		case rng.IntN(2) == 0:
			qs[q].deadline = mono.Time(rng.Int64N(1000))
			tm.moved(qs, q)
		default:
			tm.remove(qs, q)
			delete(in, q)
		}
		want := Never
		for q := range in {
			want = min(want, qs[q].deadline)
		}
		if got := tm.deadline(qs); got != want || len(tm.heap) != len(in) {
			t.Fatalf("deadline %d of %d queues, want %d of %d", got, len(tm.heap), want, len(in))
		}
		for i, q := range tm.heap {
			if int(qs[q].place) != i {
				t.Fatalf("queue %d stands at %d, and believes %d", q, i, qs[q].place)
			}
		}
	}
}

// However long a flow paused, timestamps of 16 bits and the times of arrival tell
// which of two packets was sent first: as long as their delays differ by less than
// 32 ms; also if the worker did not look for longer, if packets are held and what
// they are held for is late by 49 ms, or if a path that keeps the order was jammed.
func TestPlaceAfterPauses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	below := func(d time.Duration) mono.Time { return mono.Time(rng.Int64N(int64(d))) }
	for i := range 100_000 {
		// A packet that arrived, and one that does so now.
		var early, late mono.Time // sent
		var seen, at, now mono.Time
		var q uint16
		start := mono.Time(rng.Int64())>>1 + below(time.Second)
		path := overlay.PathID(1)
		switch i % 4 {
		case 0:
			early, late = start, start+below(300*time.Millisecond)
			at, now = early+below(32*time.Millisecond), late+below(32*time.Millisecond)
			if now < at {
				early, late, at, now = late, early, now, at
			}
			seen = now - 1
		case 1: // both paths are quick, but the worker stood still
			early, late = start, start+below(20*time.Millisecond)-mono.Time(10*time.Millisecond)
			at = max(early, late) + below(5*time.Millisecond)
			seen, now = at, at+below(45*time.Millisecond)
		case 2: // held
			q = 1
			early = start
			at = early + below(5*time.Millisecond)
			now = at + below(60*time.Millisecond)
			late = now - below(49*time.Millisecond)
			seen = now - 1
		case 3: // the first one waited with the second on its heels
			path = 2
			early = start
			at = early + below(40*time.Millisecond)
			late = early + below(61*time.Millisecond)
			now = max(at, late) + below(time.Millisecond)
			seen = now - 1
		}
		a := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), TxTstamp: overlay.TstampOf(early)}
		b := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), Path: path, TxTstamp: overlay.TstampOf(late)}
		if a.Epoch == b.Epoch || overlay.TstampOf(early) == overlay.TstampOf(late) {
			continue
		}
		want := newer
		if late < early {
			want = older
		}
		e := flow{flags: uint8(a.Epoch) << flowEpoch, path: 2, last: at, sent: a.TxTstamp, queue: q}
		if got := e.place(seen, now, &b); got != want {
			t.Fatalf("case %d: sent %v apart, arrived %v apart, seen %v before: %v, want %v", i%4, late.Sub(early), now.Sub(at), now.Sub(seen), got, want)
		}
	}
}

// Each duration falls into the bucket whose bounds are around it, and a quantile
// is off by a quarter at most.
func TestHistogram(t *testing.T) {
	if Upper(0) != 128 || Upper(7) != 1024 || Upper(8) != 1280 || Upper(11) != 2048 || Upper(12) != 2560 {
		t.Errorf("bounds %v %v %v %v %v", Upper(0), Upper(7), Upper(8), Upper(11), Upper(12))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var all Histogram
	var durations []time.Duration
	for range 20_000 {
		d := time.Duration(rng.Uint64() >> (32 + rng.IntN(32)) & (1<<31 - 1))
		var h Histogram
		h.Add(d)
		i := slices.Index(h.Counts[:], 1)
		if d >= Upper(i) || i > 0 && d < Upper(i-1) {
			t.Fatalf("%d ns in bucket %d, up to %d", d, i, Upper(i))
		}
		all.Merge(&h)
		durations = append(durations, d)
	}
	slices.Sort(durations)
	for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
		exact := durations[min(int(q*float64(len(durations))), len(durations)-1)]
		if got := all.Quantile(q); got < exact || got > exact+exact/4+128 {
			t.Errorf("quantile %v is %v, want %v", q, got, exact)
		}
	}
	if all.N != 20_000 || all.Max != durations[len(durations)-1] {
		t.Errorf("%d durations, longest %v", all.N, all.Max)
	}
	var far Histogram
	far.Add(time.Hour)
	far.Add(-1)
	if far.Counts[Buckets-1] != 1 || far.Counts[0] != 1 || far.Quantile(1) != time.Hour || (&Histogram{}).Quantile(0.5) != 0 {
		t.Errorf("%+v", far)
	}
}
