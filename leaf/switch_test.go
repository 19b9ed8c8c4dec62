package leaf

import (
	"fmt"
	"slices"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// fakeSwitch notes what it is told. Its scheme is in no list.
type fakeSwitch struct {
	node   balance.Node
	routes map[uint16]string
	heard  []int // ports
	at     mono.Time
	say    []balance.PortMessage
}

const fakeWire = overlay.SchemeID(14)

func (s *fakeSwitch) SetRoute(leaf uint16, ports []int, here bool) {
	s.routes[leaf] = fmt.Sprint(ports, here)
}

func (s *fakeSwitch) Handle(_ mono.Time, port int, m *overlay.Message) bool {
	s.heard = append(s.heard, port)
	return m.Fabric.Epoch == 1
}

func (s *fakeSwitch) Deadline() mono.Time { return s.at }

func (s *fakeSwitch) Tick(_ mono.Time, out []balance.PortMessage) []balance.PortMessage {
	s.at = reorder.Never
	return append(out, s.say...)
}

// noNode is a node without queues.
type noNode struct{}

func (noNode) Queue(mono.Time, int) uint32    { return 0 }
func (noNode) Hosts(mono.Time) uint32         { return 0 }
func (noNode) Hold(mono.Time, int, mono.Time) {}

// switching is a scheme whose switches are made fakes; all are in made.
func switching(made *[]*fakeSwitch, bundles *[][]int) *balance.Scheme {
	return &balance.Scheme{
		Name: "switching", Wire: fakeWire,
		New: func(o *balance.Options) balance.Policy {
			*bundles = append(*bundles, o.Links)
			p, _ := balance.New("ecmp", balance.Options{Seed: o.Seed})
			return p
		},
		Switch: func(_ *balance.Options, n balance.Node) balance.Switch {
			s := &fakeSwitch{node: n, routes: map[uint16]string{}, at: reorder.Never}
			*made = append(*made, s)
			return s
		},
	}
}

// A leaf's switch knows leaves by the numbers that all nodes know them by, its own among
// them, follows the paths that schemes are shown, and hears and tells its neighbours.
func TestLeafSwitch(t *testing.T) {
	var made []*fakeSwitch
	var bundles [][]int
	s := newSiteOf(t, Config{Node: noNode{}}, "ecmp")
	c, err := newClass(switching(&made, &bundles), balance.Options{}, noNode{})
	if err != nil || len(made) != 1 {
		t.Fatal(err)
	}
	w := made[0]
	s.SetClasses([]*Class{c})
	s.Number(500, []uint16{500, 501, 502, 503})
	if s.Deadline() != s.traffic.Deadline() {
		t.Errorf("deadline %d of a switch that wants nothing", s.Deadline())
	}
	w.at = s.now
	w.say = []balance.PortMessage{{Port: 2, Message: overlay.Message{Fabric: overlay.Fabric{Opcode: overlay.OpExtension, Shim: true, Arg: 7}}}}
	if s.Deadline() != s.now {
		t.Errorf("deadline %d, want %d", s.Deadline(), s.now)
	}
	out := s.Tick(s.now, false)
	if m := out.Messages; len(m) != 1 || m[0].Link != 2 || m[0].Fabric.Scheme != fakeWire || m[0].Fabric.Arg != 7 || !m[0].Fabric.Capable {
		t.Fatalf("said %+v", m)
	}
	want := map[uint16]string{500: "[] true", 501: "[0 1 2 3] false", 502: "[3 1] false", 503: "[] false"}
	if fmt.Sprint(w.routes) != fmt.Sprint(want) {
		t.Errorf("routes %v, want %v", w.routes, want)
	}
	m := overlay.Message{Link: 3, Fabric: overlay.Fabric{Scheme: fakeWire, Opcode: overlay.OpExtension, Epoch: 1}}
	if !s.Handle(s.now, -1, &m, true) || !slices.Equal(w.heard, []int{3}) {
		t.Errorf("heard by ports %v", w.heard)
	}
	if st := s.Stats(); st.Known[overlay.OpExtension] != 1 {
		t.Errorf("counted %+v", st.Known)
	}
	m.Fabric.Scheme = 13
	if s.Handle(s.now, -1, &m, true) {
		t.Error("another scheme's message was handled")
	}
	m = overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{Scheme: fakeWire, Opcode: overlay.OpExtension}}
	if s.Handle(s.now, -1, &m, true) || len(w.heard) != 1 {
		t.Error("a leaf's message was taken for a neighbour's")
	}
	s.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(2), balance.MakePaths(3, 1), balance.MakePaths()})
	w.at = s.now
	if s.Tick(s.now, false); w.routes[501] != "[2] false" {
		t.Errorf("routes %v after a change", w.routes)
	}
}

// A spine has one switch, whatever its bundles, asks about routes with one next hop, too,
// and tells neighbours that are in no bundle.
func TestSpineSwitch(t *testing.T) {
	var made []*fakeSwitch
	var bundles [][]int
	s, err := NewSpineOf(switching(&made, &bundles), SpineConfig{Links: &fakeLinks{}, Node: noNode{}})
	if err != nil || !s.KnowsLeaves() || len(made) != 1 {
		t.Fatalf("%v, %d switches", err, len(made))
	}
	setRoute(t, s, 1, 4, 0)
	setRoute(t, s, 2, 7)
	s.SetLeaf(600, []int{4, 0})
	s.SetLeaf(601, []int{7})
	if s.Bundle(2) == nil || len(s.Bundles()) != 2 || !slices.Equal(bundles[len(bundles)-1], []int{7}) || len(made) != 1 {
		t.Fatalf("bundles of ports %v, %d switches", bundles, len(made))
	}
	w := made[0]
	if fmt.Sprint(w.routes) != fmt.Sprint(map[uint16]string{600: "[4 0] false", 601: "[7] false"}) {
		t.Errorf("routes %v", w.routes)
	}
	w.at, w.say = 5, []balance.PortMessage{{Port: 9, Message: overlay.Message{Fabric: overlay.Fabric{Opcode: overlay.OpExtension}}}}
	if s.Deadline() != 5 || len(s.Tick(4)) != 0 {
		t.Errorf("deadline %d", s.Deadline())
	}
	if out := s.Tick(5); len(out) != 1 || out[0].Port != 9 || out[0].Fabric.Scheme != fakeWire || !out[0].Fabric.Capable {
		t.Errorf("said %+v", out)
	}
	m := overlay.Message{Fabric: overlay.Fabric{Scheme: fakeWire, Opcode: overlay.OpExtension, Epoch: 1}}
	if !s.Handle(5, 9, &m, true) || !slices.Equal(w.heard, []int{9}) || s.Stats().Known[overlay.OpExtension] != 1 {
		t.Errorf("heard %v, counted %+v", w.heard, s.Stats())
	}
	pkts := []balance.Packet{{Leaf: 2, Hash: 3}}
	if s.Bundle(2).Choose(5, pkts); pkts[0].Path != 0 {
		t.Errorf("path %d of one", pkts[0].Path)
	}
	// Without a node there is nobody to speak through, and one next hop is no choice.
	s, err = NewSpineOf(switching(&made, &bundles), SpineConfig{Links: &fakeLinks{}})
	if err != nil || s.KnowsLeaves() {
		t.Fatalf("%v", err)
	}
	if setRoute(t, s, 2, 7); s.Bundle(2) != nil {
		t.Error("a bundle of one port")
	}
}
