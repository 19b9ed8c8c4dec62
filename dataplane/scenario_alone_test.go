package dataplane_test

import (
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// alone is a leaf without a driver: packets are their IDs.
type alone struct {
	brain *leaf.Leaf[uint32]
	paths []balance.Paths
	now   mono.Time
	out   outcome
	one   bool
	time  mono.Time // up to which all is done
	said  nonces
	says  nonces // from the next event on: drivers' packets are looked at after each

	arrivals []reorder.Arrival
	items    []uint32
	uplinks  []uint8
}

// newAlone returns a leaf without a driver, which the others are held against.
func newAlone(t testing.TB, s *setup) harness {
	t.Helper()
	params := congestion.Datacenter()
	shared := leaf.NewShared(peerCount, 1, leaf.Secret{}, &params)
	a := &alone{one: s.Single}
	for peer := range peerCount {
		a.paths = append(a.paths, balance.MakePaths(allUplinks()...))
		shared.Capable.Confirm(uint16(peer), 0)
	}
	var err error
	a.brain, err = leaf.New[uint32](leaf.Config{
		Seed: hashSeed, Classes: []leaf.ClassConfig{{Scheme: s.Scheme}}, Sections: s.Sections,
		Leaves: peerCount, Ports: 1, Uplinks: uplinkCount, Links: a,
	}, shared)
	if err != nil {
		t.Fatal(err)
	}
	a.brain.SetPaths(a.paths)
	a.brain.SetHello(mono.Time(liveness.Interval(peerCount)))
	return a
}

// allUplinks are the uplinks that lead to every peer at first.
func allUplinks() []uint8 {
	all := make([]uint8, uplinkCount)
	for u := range all {
		all[u] = uint8(u)
	}
	return all
}

// Look is balance.Links: queues are empty whenever time has passed.
func (a *alone) Look(now mono.Time) {
	if now != a.now {
		a.now = now
		a.brain.Queue = [balance.MaxPaths]uint32{}
	}
}

func (a *alone) Brain() brain { return a.brain }

func (a *alone) Step(e *event) outcome {
	a.out = outcome{}
	a.until(e.At)
	switch {
	case e.Paths != nil:
		gone, _ := balance.Gone(allUplinks(), e.Paths)
		all := balance.MakePaths(allUplinks()...)
		a.paths[e.Peer] = all.Without(gone)
		a.brain.SetPaths(a.paths)
	case e.Message != nil:
		a.message(e)
	}
	if a.one {
		for i := range e.Receive {
			a.receive(e, e.Receive[i:i+1])
		}
		for i := range e.Send {
			a.send(e, e.Send[i:i+1])
		}
	} else {
		a.receive(e, e.Receive)
		a.send(e, e.Send)
	}
	a.until(e.At)
	a.said = a.says
	return a.out
}

// until does what is due up to a time. Time does not go back: what became due in the
// past with the last event is done as of now.
func (a *alone) until(at mono.Time) {
	for d := a.brain.Deadline(); d <= at; d = a.brain.Deadline() {
		a.act(a.brain.Tick(max(d, a.time), false))
	}
	a.time = at
}

func (a *alone) send(e *event, burst []packet) {
	if len(burst) == 0 {
		return
	}
	c := a.brain.Classes()[0]
	vector, exact := make([]balance.Packet, len(burst)), []balance.Exact(nil)
	for i := range burst {
		p := &burst[i]
		if c.Scheme.Exact {
			exact = append(exact, p.Exact(true))
		}
		vector[i] = balance.Packet{Hash: p.Hash(true), Leaf: p.Peer, Len: p.Size}
	}
	a.brain.Choose(e.At, c, vector, exact)
	for i := range vector {
		p := &vector[i]
		paths := &a.paths[p.Leaf]
		if paths.N == 0 {
			continue
		}
		send := func(path uint8) {
			d := departure{ID: burst[i].ID, Peer: p.Leaf, Uplink: paths.Uplink[path]}
			d.Plain = !a.brain.Depart(e.At, c, p, d.Uplink, &d.Fabric)
			a.out.Departed = append(a.out.Departed, d)
		}
		if p.Copies|p.Selectors != 0 {
			p.EachCopy(paths.N, send)
		}
		send(p.Path)
	}
}

func (a *alone) receive(e *event, burst []packet) {
	a.arrivals, a.items, a.uplinks = a.arrivals[:0], a.items[:0], a.uplinks[:0]
	for i := range burst {
		p := &burst[i]
		switch a.brain.Accept(e.At, p.Peer, &p.Fabric) {
		case leaf.Plain, leaf.Marked:
			a.arrivals = append(a.arrivals, reorder.Arrival{
				Hash: p.Hash(false), Len: uint32(p.Size), Leaf: p.Peer, CE: p.CE, Fabric: p.Fabric,
			})
			if a.brain.Exact(&p.Fabric) {
				x, last := p.Exact(false), &a.arrivals[len(a.arrivals)-1]
				last.Key, last.TCPFlags = x.Key, x.TCPFlags
			}
			a.items, a.uplinks = append(a.items, p.ID), append(a.uplinks, e.Uplink)
		case leaf.Greeting:
			if h := a.said.body(p); h.Round != 0 { // of round 0 are those that cannot be read
				a.brain.Hello(e.At, p.Peer, &p.Fabric, &h)
			}
		}
	}
	if len(a.items) > 0 {
		a.act(a.brain.Arrive(e.At, a.arrivals, a.items, a.uplinks))
	}
}

func (a *alone) message(e *event) {
	p := e.Message
	if a.brain.Accept(e.At, p.Peer, &p.Fabric) == leaf.Message {
		a.brain.Handle(e.At, 0, &overlay.Message{
			Leaf: p.Peer, Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: p.Hash(true), Fabric: p.Fabric,
		}, true)
	}
}

func (a *alone) act(o *leaf.Output[uint32]) {
	for i := range o.Messages {
		m := &o.Messages[i]
		a.brain.Account(m.Fabric.Opcode, 0)
		if m.Fabric.Opcode == overlay.OpHello {
			a.says[m.Leaf] = m.Hello.Nonce
		}
		a.out.Messages = append(a.out.Messages, departure{Peer: m.Leaf, Uplink: a.paths[m.Leaf].Uplink[m.Path], Fabric: m.Fabric})
	}
	a.out.Delivered = append(a.out.Delivered, o.Deliver...)
}
