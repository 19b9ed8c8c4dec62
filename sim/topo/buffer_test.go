package topo

import (
	"testing"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// Six hosts of three leaves send to one at their full rate. With PFC nothing is
// lost, whatever the scheme, and every switch's memory is empty in the end;
// without it packets are dropped for want of room, under that name.
func TestSwitchesShareTheirMemory(t *testing.T) {
	for _, scheme := range []string{"ecmp", "conga", "drill", "conweave"} {
		for _, pfc := range []*network.PFC{nil, {}} {
			spec := leafSpine(4, 3, 2, 1)
			spec.Buffer = &network.BufferConfig{Total: 400_000, PFC: pfc}
			spec.Links.ECN = vocab.ECN{Kmin: 20_000, Kmax: 80_000, Pmax: 0.2}
			cfg := node.DefaultConfig()
			cfg.Scheme = scheme
			if scheme == "drill" {
				cfg.Spine = "drill"
			}
			top := mustBuild(t, spec, cfg)
			got := 0
			var sinks []*sink
			for h := range network.HostID(6) {
				_, k := top.stream(network.FlowID(h), h, 7, 500, 1000, 10*gbit)
				sinks = append(sinks, k)
			}
			top.settle(t)
			for _, k := range sinks {
				got += k.got
			}
			l := top.checkBalance(t)
			full := l.Dropped[network.BufferFull]
			if l.TotalDropped() != full || (full == 0) != (pfc != nil) || got+int(full) != 3000 {
				t.Errorf("%s, PFC %v: %d packets came, drops %v", scheme, pfc != nil, got, l.Dropped)
			}
			for i, b := range top.Buffers {
				if b.Used() != 0 {
					t.Errorf("%s, PFC %v: switch %d still has %d bytes", scheme, pfc != nil, i, b.Used())
				}
			}
		}
	}
}
