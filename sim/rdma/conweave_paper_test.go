package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestOneLatePacket is ConWeave's Figure 3: flows of 10 KB and 1 MB of which one
// packet is recirculated in the switch, under Go-Back-N and selective repeat. §1: "RDMA
// is highly sensitive to even a single out-of-order packet arrival. Generally, … SR
// exhibits better performance than … GBN due to fewer retransmissions. Nevertheless, in
// both cases, the performance is impacted". We differ: the figure's numbers are not in
// the text, the link has 100 Gbit/s, a recirculation takes a microsecond
// (§3.4.2), and every packet is late in turn, not a random one.
func TestOneLatePacket(t *testing.T) {
	fct := func(r Recovery, bytes, psn uint64, by engine.Time) (took engine.Time, sent uint64) {
		c := Defaults()
		c.Recovery = r
		l := newLab(t, c, 100*gig, 100*gig)
		l.sw.meddle = late(psn, by)
		q := l.open(0, 1)
		q.Post(0, bytes, 0)
		l.run()
		return l.done[0].fct(), q.Counters().Retransmitted
	}
	for _, bytes := range []uint64{10_000, 1_000_000} {
		packets := bytes / 1000
		var mean, again [2]float64
		for i, r := range []Recovery{GoBackN, IRN} {
			alone, _ := fct(r, bytes, 0, 0)
			n := 0.0
			for psn := uint64(0); psn < packets-1; psn += max(packets/50, 1) { // the last one has none behind it
				took, sent := fct(r, bytes, psn, engine.Microsecond)
				mean[i] += float64(took) / float64(alone)
				again[i] += float64(sent)
				n++
			}
			mean[i], again[i] = mean[i]/n, again[i]/n
		}
		t.Logf("%d bytes: %.2f times as long and %.0f packets again under Go-Back-N, %.2f and %.1f under selective repeat", bytes, mean[0], again[0], mean[1], again[1])
		if mean[0] <= 1.01 || mean[1] <= 1 || mean[0] <= mean[1] || again[0] <= again[1] {
			t.Errorf("%d bytes: a late packet makes a flow %.3f and %.3f times as long, with %.1f and %.1f packets again", bytes, mean[0], mean[1], again[0], again[1])
		}
	}
}
