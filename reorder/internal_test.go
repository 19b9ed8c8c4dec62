package reorder

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/loomfabric/loom/internal/mono"
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
			if int(qs[q].index) != i {
				t.Fatalf("queue %d stands at %d, and believes %d", q, i, qs[q].index)
			}
		}
	}
}

// However long a flow paused, timestamps of 16 bits and the times of arrival tell
// which of two packets was sent first, as long as their delays differ by less than
// 16 ms. Beyond that epochs tell those that follow each other.
func TestPlaceAfterPauses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		next := i%2 == 1 // the one epoch follows the other
		gap, delay := 300*time.Millisecond, 16*time.Millisecond
		if next {
			gap, delay = 64*time.Millisecond, 48*time.Millisecond
		}
		below := func(d time.Duration) mono.Time { return mono.Time(rng.Int64N(int64(d))) }
		first := mono.Time(rng.Int64())>>1 + below(time.Second)
		second := first + below(gap)
		a := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), TxTstamp: overlay.TstampOf(first)}
		b := overlay.Fabric{Epoch: overlay.Epoch(rng.IntN(4)), TxTstamp: overlay.TstampOf(second)}
		if a.TxTstamp == b.TxTstamp || !next && a.Epoch == b.Epoch {
			continue
		}
		if next {
			b.Epoch = a.Epoch.Next()
		}
		early, late, want := &a, &b, newer
		at, now := first+below(delay), second+below(delay)
		if now < at {
			early, late, want = late, early, older
			at, now = now, at
		}
		if now-at > mono.Time(65*time.Millisecond) && next {
			continue
		}
		e := flow{Last: at, V: flowFields{epoch: early.Epoch, sent: early.TxTstamp}}
		if got := e.place(late, e.ahead(now, late)); got != want {
			t.Fatalf("sent %v apart, arrived %v apart, epochs %d and %d: %v, want %v", second.Sub(first), now.Sub(at), a.Epoch, b.Epoch, got, want)
		}
	}
}

// What comes late of the present epoch is not taken for what was sent long after it.
func TestPlaceOldPathIsLate(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, 25 * time.Millisecond, 34 * time.Millisecond, 47 * time.Millisecond} {
		const sent = mono.Time(time.Second)
		e := flow{Last: sent + 1e6, V: flowFields{epoch: 2, flags: flowTailKnown, sent: overlay.TstampOf(sent), queue: 1}}
		f := overlay.Fabric{Epoch: 2, TxTstamp: overlay.TstampOf(sent - mono.Time(late))}
		now := e.Last + 1e6
		if got := e.place(&f, e.ahead(now, &f)); got != same {
			t.Errorf("sent %v before what is held: %v, want it to be of the same epoch", late, got)
		}
	}
}

// A flow's entry takes half a line of the cache.
func TestFlowSize(t *testing.T) {
	if n := unsafe.Sizeof(flow{}); n != 32 {
		t.Errorf("a flow takes %d bytes", n)
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

// A burst is cold if many of its packets are of flows that nothing is known of.
// Then the next one looks at all entries first, which changes nothing else.
func TestCold(t *testing.T) {
	p := Datacenter()
	c, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	burst := func(first, last uint32, at mono.Time) bool {
		var pkts []Arrival
		for hash := first; hash <= last; hash++ {
			pkts = append(pkts, Arrival{Hash: hash, Len: 100, Fabric: overlay.Fabric{Capable: true, Shim: true, Epoch: 1, TxTstamp: 7}})
		}
		c.Receive(at, pkts)
		return c.table.Cold()
	}
	if c.table.Cold() {
		t.Error("nothing came, and it is cold")
	}
	if !burst(1, 40, 0) {
		t.Error("all flows were new, and it is not cold")
	}
	if burst(1, 40, 1000) {
		t.Error("all flows were known, and it is cold")
	}
	if burst(11, 50, 2000) || !burst(31, 70, 3000) {
		t.Error("a quarter of the flows new: cold; half of them: not")
	}
	if st := c.Counters(); st.Packets != 160 || st.Epochs != 70 {
		t.Errorf("%+v", st)
	}
}
