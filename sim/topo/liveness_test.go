package topo

import (
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// offer has the first host send packets to another leaf's host, each of another flow of
// which the first has number flow, and returns how many came.
func (t *Topology) offer(flow, packets int, every engine.Time) (came int) {
	k := &sink{pool: &t.Network.Pool}
	e := t.Network.Engine
	for i := range packets {
		f := network.FlowID(flow + i)
		t.Network.Bind(f, nil, k)
		t.Hosts[0].Send(e.Now(), t.packet(f, 0, 1, 1000), network.DataClass)
		e.At(e.Now()+every, e.Register(nothing{}), 0)
		e.Run(e.Now() + every)
	}
	return k.got
}

// A spine that loses its route to a leaf drops what is for it, and all links stay up. A
// second later at least 99 of 100 packets are delivered under every scheme, and two
// seconds after the route is back the path is in use again. The other direction is not
// touched.
func TestSilentSpine(t *testing.T) {
	for _, scheme := range balance.Names() {
		cfg := node.DefaultConfig()
		cfg.Scheme = scheme
		top := mustBuild(t, leafSpine(2, 4, 1, 1), cfg)
		e := top.Network.Engine
		paths := func(from int) *liveness.Table { return top.Leaves[from].Table() }
		e.Run(engine.Second)
		if err := top.Spines[1].SetRoute(1, nil); err != nil {
			t.Fatal(err)
		}
		if top.offer(0, 100, 100*us) == 100 && scheme != "static" {
			t.Errorf("%s: nothing is lost at first: nothing is tested", scheme)
		}
		e.Run(2 * engine.Second)
		if came := top.offer(100, 2000, 500*us); came < 1980 {
			t.Errorf("%s: %d of 2000 packets came a second later", scheme, came)
		}
		p := paths(0).Path(1, 1, e.Now().Mono())
		if p.State != liveness.Silent || !p.Avoided || paths(1).Dead(0) != 0 {
			t.Errorf("%s: the path is %+v, the other direction avoids %04b", scheme, p, paths(1).Dead(0))
		}
		if err := top.Spines[1].SetRoute(1, []int{1}); err != nil {
			t.Fatal(err)
		}
		e.Run(e.Now() + 2*engine.Second)
		if p := paths(0).Path(1, 1, e.Now().Mono()); p.State != liveness.Alive || p.Avoided || p.GivenUp != 1 {
			t.Errorf("%s: healed, and the path is %+v", scheme, p)
		}
		top.checkBalance(t)
	}
}
