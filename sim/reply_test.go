package sim

import (
	"testing"
	"time"
)

// In a fat-tree an idle round trip between pods takes 8.4 µs, and ConWeave's θ_reply of
// 8 µs (Table 3, and §4.1.4 for the fat-tree) is less: epochs there are cut off for nothing. With reply_extra
// it is each leaf's own round trip and 4 µs: 8 µs within a pod, 12 µs between pods.
func TestReplyExtraInAFatTree(t *testing.T) {
	share := func(section string) (cutOffs float64, reply time.Duration) {
		const seeds = 5 // the share of one is anywhere from 5 to 40 % with the constant
		for seed := range uint64(seeds) {
			s := lossless(2)
			s.Topology = Topology{Kind: "fat-tree", K: 4, Hosts: s.Topology.Hosts, Links: s.Topology.Links, Buffer: s.Topology.Buffer, PFC: true}
			s.Topology.Hosts.PerLeaf, s.Seed = 2, seed+1
			s.Scheme, s.Workloads[0].Load, s.Duration = "conweave", 10, us(300)
			give("conweave", section)(s)
			n := must(t, s).ConWeave
			cutOffs += float64(n.Counters["source_cutoffs"]) / float64(n.Counters["source_requests"]) / seeds
			reply = max(reply, time.Duration(n.ReplyTimeNs.P50))
		}
		return cutOffs, reply
	}
	constant, _ := share("{reply: 8us}")
	own, reply := share("{reply: 16us, reply_extra: 4us}")
	if constant < 0.15 || own > constant/4 || reply < 8*time.Microsecond {
		t.Errorf("of epochs %.3f are cut off by a constant, %.3f by an allowance; half of the replies take %v", constant, own, reply)
	}
}
