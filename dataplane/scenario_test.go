package dataplane

import (
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/scenario"
	"github.com/loomfabric/loom/overlay"
)

// scripted is a leaf's worker between links in memory, for the scenarios that all
// drivers of package leaf go through. Port 0 is the host's, the others are uplinks.
type scripted struct {
	*rig
	tables Tables
}

const scriptVNI = 100

func scriptVTEP(peer int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(peer)}) }

func newScripted(t testing.TB, s *scenario.Setup) scenario.Harness {
	t.Helper()
	cfg := Config{
		Role: Leaf, VTEP: netip.MustParseAddr(testVTEP), VXLANPort: overlay.DefaultPort, Workers: 1, RingSize: 512,
		ReversePath: AnyPath, // packets come by uplinks that no path goes by
		Seed:        scenario.Seed, Scheme: s.Scheme, Sections: s.Sections, FDBSize: 64, FDBAge: 1 << 40, HoldTime: 1 << 30,
		Ports: []PortConfig{{Name: "host", Kind: Access, Untagged: scriptVNI}},
	}
	h := &scripted{tables: Tables{
		Ports: []PortState{{Up: true, MTU: 1500}},
		VNIs:  []VNI{{VNI: scriptVNI}},
	}}
	for u := range scenario.Uplinks {
		cfg.Ports = append(cfg.Ports, PortConfig{Name: "up", Kind: Uplink, Egress: EgressConfig{LinkRate: scenario.Rate}})
		h.tables.Ports = append(h.tables.Ports, PortState{Up: true, MTU: 1600, MAC: overlay.MAC{2}})
		h.tables.Hops = append(h.tables.Hops, Hop{Port: PortID(1 + u), Resolved: true})
	}
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.QueueBytes = 1 << 20
	}
	h.tables.Static = []StaticMAC{{MAC: scenario.HostMAC, Port: 0}}
	for peer := range scenario.Peers {
		h.tables.Peers = append(h.tables.Peers, Peer{VTEP: scriptVTEP(peer), Hops: hopsOf(scenario.AllUplinks())})
		h.tables.Static = append(h.tables.Static, StaticMAC{MAC: scenario.PeerMAC(uint16(peer)), Peer: PeerID(peer), Port: NoPort})
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	shared := newShared(&cfg)
	for peer := range scenario.Peers {
		shared.leaf.Capable.Confirm(uint16(peer), 0)
	}
	h.rig = newWorkerRig(t, &cfg, 0, shared)
	h.now = 0
	h.w.leaf.brain.SetHello(mono.Time(overlay.HelloInterval))
	tables := h.tables
	h.publish(&tables)
	return h
}

func hopsOf(uplinks []uint8) []HopID {
	hops := make([]HopID, len(uplinks))
	for i, u := range uplinks {
		hops[i] = HopID(u)
	}
	return hops
}

func (h *scripted) Brain() scenario.Brain { return h.w.leaf.brain }

// round runs the worker at a time until it has nothing to do then.
func (h *scripted) round(at mono.Time) {
	h.now = at
	for range 3 {
		h.w.round(at)
	}
}

func (h *scripted) Step(e *scenario.Event) (o scenario.Outcome) {
	for at := h.w.leaf.brain.Deadline(); at <= e.At; at = h.w.leaf.brain.Deadline() {
		h.round(at)
	}
	h.now = e.At
	if e.Paths != nil {
		tables := h.tables
		tables.Peers = append([]Peer(nil), tables.Peers...)
		tables.Peers[e.Peer].Hops = hopsOf(e.Paths)
		h.tables = tables
		h.publish(&tables)
	}
	up := h.links[1+int(e.Uplink)]
	if e.Message != nil {
		h.put(up, h.outer(e.Message, true))
	}
	for i := range e.Receive {
		h.put(up, h.outer(&e.Receive[i], false))
	}
	for i := range e.Send {
		h.put(h.links[0], e.Send[i].Frame(true))
	}
	h.round(e.At)
	h.rig.balance()
	for _, b := range h.links[0].out {
		o.Delivered = append(o.Delivered, scenario.FrameID(b))
	}
	h.links[0].out = nil
	for u, l := range h.links[1:] {
		for _, b := range l.out {
			h.departed(&o, uint8(u), b)
		}
		l.out = nil
	}
	return o
}

func (h *scripted) put(l *memLink, b []byte) {
	h.t.Helper()
	if !l.put(b) {
		h.t.Fatal("there is no frame to receive into")
	}
}

// outer is a packet as it comes from the fabric.
func (h *scripted) outer(p *scenario.Packet, message bool) []byte {
	inner := p.Frame(message)
	vni, tos := overlay.VNI(scriptVNI), uint8(0)
	if p.Fabric.Opcode == overlay.OpHello {
		vni = 0
	}
	if p.CE {
		tos = uint8(overlay.CE)
	}
	head := overlay.Overhead
	if p.Fabric.Capable && p.Fabric.Shim {
		head = overlay.MaxOverhead
	}
	b := make([]byte, head+len(inner))
	copy(b[head:], inner)
	t := overlay.MakeTunnel(scriptVTEP(int(p.Peer)), netip.MustParseAddr(testVTEP), overlay.MAC{2}, overlay.MAC{2}, overlay.DefaultPort)
	t.Encap(b, len(inner), vni, p.Hash(message), tos, &p.Fabric)
	return b
}

// departed notes a frame that left by an uplink.
func (h *scripted) departed(o *scenario.Outcome, uplink uint8, b []byte) {
	h.t.Helper()
	var d overlay.Decapped
	if r := overlay.Decap(b, overlay.DefaultPort, &d); r != 0 {
		h.t.Fatalf("a frame left that cannot be decapsulated: %v", r)
	}
	x := scenario.Departure{Uplink: uplink, Plain: !d.Fabric.Capable, Fabric: d.Fabric}
	for peer := range scenario.Peers {
		if addr32(scriptVTEP(peer)) == d.Dst {
			x.Peer = uint16(peer)
		}
	}
	if d.Fabric.Opcode.Control() {
		o.Messages = append(o.Messages, x)
		return
	}
	x.ID = scenario.FrameID(b[d.Inner:])
	o.Departed = append(o.Departed, x)
}

// TestScenarios holds a leaf's worker against a leaf alone.
func TestScenarios(t *testing.T) { scenario.Run(t, false, newScripted) }
