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
// which packet was sent first, as long as delays differ by less than 32 ms.
func TestPlaceAfterPauses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		// Two packets of different epochs, and their delays.
		first := mono.Time(rng.Int64())>>1 + mono.Time(rng.Int64N(1e9))
		second := first + mono.Time(rng.Int64N(int64(300*time.Millisecond)))
		arrive := func(sent mono.Time) mono.Time { return sent + mono.Time(rng.Int64N(int64(32*time.Millisecond))) }
		a := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), TxTstamp: overlay.TstampOf(first)}
		b := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), TxTstamp: overlay.TstampOf(second)}
		if a.Epoch == b.Epoch || a.TxTstamp == b.TxTstamp {
			continue
		}
		at, bt := arrive(first), arrive(second)
		early, late, want := &a, &b, newer
		if bt < at {
			early, late, want = &b, &a, older
			at, bt = bt, at
		}
		e := flow{epoch: early.Epoch, last: at, sent: early.TxTstamp}
		if got := e.place(bt, late); got != want {
			t.Fatalf("sent %v apart, arrived %v apart: %v, want %v", second.Sub(first), bt.Sub(at), got, want)
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
