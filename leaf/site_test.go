package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	us = mono.Time(time.Microsecond)
	ms = mono.Time(time.Millisecond)
)

// site is one worker of a leaf, driven by hand. Packets are numbers. The leaf itself
// is 0, to which no path leads; four uplinks lead to leaf 1, uplinks 3 and 1 to leaf 2,
// none to leaf 3.
type site struct {
	*Leaf[int]
	t   testing.TB
	now mono.Time
}

const sitePeers = 4

func newSite(t testing.TB, schemes ...string) *site {
	t.Helper()
	return newSiteOf(t, Config{}, schemes...)
}

// newSiteOf completes a configuration.
func newSiteOf(t testing.TB, cfg Config, schemes ...string) *site {
	t.Helper()
	p := congestion.Datacenter()
	cfg.Leaves, cfg.Ports, cfg.Uplinks = sitePeers, 4, 4
	for _, s := range schemes {
		cfg.Classes = append(cfg.Classes, ClassConfig{Scheme: s})
	}
	l, err := New[int](cfg, NewShared(sitePeers, 1, Secret{1, 2}, &p))
	if err != nil {
		t.Fatal(err)
	}
	l.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(0, 1, 2, 3), balance.MakePaths(3, 1), balance.MakePaths()})
	l.SetHello(reorder.Never)
	return &site{Leaf: l, t: t, now: mono.Time(time.Second)}
}

// prove makes peers capable at this time.
func (s *site) prove(peers ...uint16) {
	for _, p := range peers {
		s.shared.Capable.Confirm(p, s.now)
		s.Accept(s.now, p, &overlay.Fabric{Capable: true, LBTag: 1})
	}
}

// send chooses a path for one packet of the first class and returns the packet and
// its header; ok is false if it goes as plain VXLAN.
func (s *site) send(leaf uint16, hash uint32) (p balance.Packet, f overlay.Fabric, ok bool) {
	s.t.Helper()
	c := s.Classes()[0]
	pkts := []balance.Packet{{Hash: hash, Leaf: leaf, Len: 1000}}
	s.Choose(s.now, c, pkts, nil)
	uplink := s.View().Paths[leaf].Uplink[pkts[0].Path]
	ok = s.Depart(s.now, c, &pkts[0], uplink, &f)
	return pkts[0], f, ok
}

// arrive gives the leaf a burst of packets, numbered from first, that came by uplinks.
func (s *site) arrive(first int, uplinks []uint8, pkts ...reorder.Arrival) *Output[int] {
	items := make([]int, len(pkts))
	for i := range items {
		items[i] = first + i
	}
	for len(uplinks) < len(pkts) {
		uplinks = append(uplinks, 0)
	}
	return s.Arrive(s.now, pkts, items, uplinks)
}

// The packets of a flow from leaf 1, as ConWeave sends them, µs after the second that
// the test begins at.
func data(tx overlay.Tstamp) reorder.Arrival {
	return reorder.Arrival{Hash: 7, Len: 1000, Leaf: 1, Fabric: overlay.Fabric{
		Capable: true, Scheme: reorder.SchemeID, Shim: true, Epoch: 1, TxTstamp: tx, Path: 0x10,
	}}
}

func tail(tx overlay.Tstamp) reorder.Arrival {
	p := data(tx)
	p.Fabric.Tail, p.Fabric.Arg = true, tx
	return p
}

func rerouted(tx, tail overlay.Tstamp) reorder.Arrival {
	p := data(tx)
	p.Fabric.Rerouted, p.Fabric.Arg, p.Fabric.Path = true, tail, 0x20
	return p
}

func request(tx overlay.Tstamp) reorder.Arrival {
	p := data(tx)
	p.Fabric.Opcode = overlay.OpRTTRequest
	return p
}

// fakePolicy is a policy that does as it is told.
type fakePolicy struct {
	name   string
	choose func(pkts []balance.Packet)
	own    any

	handled []overlay.Message
	known   bool

	deadline mono.Time
	say      []overlay.Message
	ticks    int
}

func (f *fakePolicy) Name() string { return f.name }

func (f *fakePolicy) Stats() balance.Stats { return balance.Stats{Decisions: 1, Own: f.own} }

func (f *fakePolicy) Choose(_ mono.Time, _ *balance.View, pkts []balance.Packet) {
	if f.choose != nil {
		f.choose(pkts)
	}
}

func (f *fakePolicy) Handle(_ mono.Time, _ *balance.View, m *overlay.Message) bool {
	f.handled = append(f.handled, *m)
	return f.known
}

func (f *fakePolicy) Deadline() mono.Time { return f.deadline }

func (f *fakePolicy) Tick(_ mono.Time, _ *balance.View, out []overlay.Message) []overlay.Message {
	f.ticks++
	f.deadline = reorder.Never
	return append(out, f.say...)
}

// class is the fake's, under a scheme with a wire number.
func (f *fakePolicy) class(wire overlay.SchemeID) *Class {
	return &Class{Scheme: &balance.Scheme{Name: f.name, Wire: wire}, Policy: f, messenger: f, timed: f}
}

// hello takes a HELLO of a peer that gets this leaf's.
func (s *site) hello(peer uint16, f overlay.Fabric, h overlay.Hello) {
	s.t.Helper()
	f.Capable, f.Shim, f.Opcode = true, true, overlay.OpHello
	if kind := s.Accept(s.now, peer, &f); kind != Greeting {
		s.t.Fatalf("a HELLO is %d", kind)
	}
	h.Boot, h.Round, h.Echo = 1, max(h.Round, 1), s.shared.nonce(peer, s.shared.Paths.Round())
	s.Hello(s.now, peer, &f, &h)
}

// toLeaf returns the metric that the site knows of the paths to a leaf by an uplink.
func (s *site) toLeaf(leaf uint16, uplink uint8) uint8 {
	metric, _, _ := s.shared.To.Entry(leaf, uplink, s.now)
	return metric
}
