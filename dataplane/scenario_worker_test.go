package dataplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// scripted is a leaf's worker between links in memory. Port 0 is the host's, the
// others are uplinks.
type scripted struct {
	dataplane.MemLeaf
	t      testing.TB
	vteps  [2]netip.Addr // the leaf's; the first peer's, before those of the others
	said   nonces
	tables dataplane.Tables
}

const scriptVNI = 100

// peerVTEP returns the address of a peer, which ends in its number.
func (h *scripted) peerVTEP(peer uint16) netip.Addr {
	a := h.vteps[1]
	for range peer {
		a = a.Next()
	}
	return a
}

func newScripted(t testing.TB, s *setup) harness { return newScriptedAt(t, s, "10.0.0.1", "10.0.1.0") }

// newScripted6 has VTEPs of IPv6, of which nothing else may show.
func newScripted6(t testing.TB, s *setup) harness {
	return newScriptedAt(t, s, "2001:db8::1", "2001:db8:1::")
}

func newScriptedAt(t testing.TB, s *setup, vtep, peers string) harness {
	t.Helper()
	vteps := [2]netip.Addr{netip.MustParseAddr(vtep), netip.MustParseAddr(peers)}
	cfg := dataplane.Config{
		Role: dataplane.Leaf, VTEP: vteps[0], VXLANPort: overlay.DefaultPort, Workers: 1, RingSize: 512,
		ReversePath: dataplane.AnyPath, // packets come by uplinks that no path goes by
		Seed:        hashSeed, Scheme: s.Scheme, Sections: s.Sections, FDBSize: 64, FDBAge: 1 << 40, HoldTime: 1 << 30,
		Ports: []dataplane.PortConfig{{Name: "host", Kind: dataplane.Access}},
	}
	h := &scripted{t: t, vteps: vteps, tables: dataplane.Tables{
		Ports: []dataplane.PortState{{Up: true, MTU: 1500}},
		VNIs:  []dataplane.VNI{{VNI: scriptVNI}},

		Bindings: []dataplane.Binding{{}},
		Static:   []dataplane.StaticMAC{{MAC: hostMAC, Port: 0}},
	}}
	for u := range uplinkCount {
		cfg.Ports = append(cfg.Ports, dataplane.PortConfig{Name: fmt.Sprint("up", u), Kind: dataplane.Uplink, Egress: dataplane.EgressConfig{LinkRate: linkRate}})
		h.tables.Ports = append(h.tables.Ports, dataplane.PortState{Up: true, MTU: 1600, MAC: overlay.MAC{2}})
		h.tables.Hops = append(h.tables.Hops, dataplane.Hop{Port: dataplane.PortID(1 + u), Resolved: true})
	}
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.QueueBytes = 1 << 20
	}
	for peer := range uint16(peerCount) {
		h.tables.Peers = append(h.tables.Peers, dataplane.Peer{VTEP: h.peerVTEP(peer), Hops: hopsOf(allUplinks())})
		h.tables.Static = append(h.tables.Static, dataplane.StaticMAC{MAC: peerMAC(peer), Peer: dataplane.PeerID(peer), Port: dataplane.NoPort})
	}
	tables := h.tables
	h.MemLeaf = dataplane.NewMemLeaf(t, &cfg, &tables)
	return h
}

func hopsOf(uplinks []uint8) []dataplane.HopID {
	hops := make([]dataplane.HopID, len(uplinks))
	for i, u := range uplinks {
		hops[i] = dataplane.HopID(u)
	}
	return hops
}

func (h *scripted) Brain() brain { return h.MemLeaf.Brain() }

func (h *scripted) Step(e *event) (o outcome) {
	h.t.Helper()
	deadline := h.MemLeaf.Brain().Deadline
	for at := deadline(); at <= e.At; at = deadline() {
		h.Round(at)
	}
	if e.Paths != nil {
		h.tables.Peers = slices.Clone(h.tables.Peers)
		p := &h.tables.Peers[e.Peer]
		p.Hops, p.Gone = hopsOf(e.Paths), nil
		for place, u := range allUplinks() {
			if !slices.Contains(e.Paths, u) {
				p.Gone = append(p.Gone, dataplane.Gone{Place: uint8(place), Weight: 1})
			}
		}
		tables := h.tables
		h.Publish(e.At, &tables)
	}
	up := dataplane.PortID(1 + e.Uplink)
	if e.Message != nil {
		h.Put(up, h.outer(e.Message, true))
	}
	for i := range e.Receive {
		h.Put(up, h.outer(&e.Receive[i], false))
	}
	for i := range e.Send {
		h.Put(0, e.Send[i].Frame(true))
	}
	h.Round(e.At)
	for _, b := range h.Take(0) {
		o.Delivered = append(o.Delivered, frameID(b))
	}
	for u := range uint8(uplinkCount) {
		for _, b := range h.Take(dataplane.PortID(1 + u)) {
			h.departed(&o, u, b)
		}
	}
	return o
}

// outer is a packet as it comes from the fabric.
func (h *scripted) outer(p *packet, message bool) []byte {
	inner := p.Frame(message)
	vni, tos := overlay.VNI(scriptVNI), uint8(0)
	if p.Fabric.Opcode == overlay.OpHello {
		vni = 0
		body := h.said.body(p)
		inner = make([]byte, overlay.EthernetLen+overlay.HelloLen)
		overlay.Ethernet(inner).SetEtherType(overlay.EtherTypeLocal)
		body.Encode(inner[overlay.EthernetLen:])
	}
	if p.CE {
		tos = uint8(overlay.CE)
	}
	t := overlay.MakeTunnel(h.peerVTEP(p.Peer), h.vteps[0], overlay.MAC{2}, overlay.MAC{2}, overlay.DefaultPort)
	head := t.Headers()
	if p.Fabric.Capable && p.Fabric.Shim {
		head += overlay.ShimLen
	}
	b := make([]byte, head+len(inner))
	copy(b[head:], inner)
	t.Encap(b, len(inner), vni, p.Hash(message), tos, &p.Fabric)
	return b
}

// departed notes a frame that left by an uplink.
func (h *scripted) departed(o *outcome, uplink uint8, b []byte) {
	h.t.Helper()
	var d overlay.Decapped
	if r := overlay.Decap(b, overlay.DefaultPort, &d); r != 0 {
		h.t.Fatalf("a frame left that cannot be decapsulated: %v", r)
	}
	x := departure{Peer: uint16(d.Dst.Low & 0xff), Uplink: uplink, Plain: !d.Fabric.Capable, Fabric: d.Fabric}
	if d.Fabric.Opcode == overlay.OpHello {
		var body overlay.Hello
		if r := body.Decode(b[d.Inner:d.End]); r != 0 {
			h.t.Fatalf("a HELLO left that cannot be read: %v", r)
		}
		h.said[x.Peer] = body.Nonce
	}
	if d.Fabric.Opcode.Control() {
		o.Messages = append(o.Messages, x)
		return
	}
	x.ID = frameID(b[d.Inner:])
	o.Departed = append(o.Departed, x)
}
