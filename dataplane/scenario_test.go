package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The scenarios hold what a leaf does against what leaves do that drive package leaf:
// one script of events (packets in, messages in, time) runs through a leaf alone,
// through the data plane between links in memory, and through the simulator's switch,
// and each has to give the same decisions, marks, answers and counters.

// TestScenarios holds all three against what is written down, and the drivers against
// a leaf alone. The simulator's leaf takes packets one by one.
func TestScenarios(t *testing.T) {
	t.Run("leaf", func(t *testing.T) { runWritten(t, newAlone) })
	t.Run("dataplane", func(t *testing.T) {
		runRandom(t, false, newScripted)
		runWritten(t, newScripted)
	})
	t.Run("dataplane over IPv6", func(t *testing.T) {
		runRandom(t, false, newScripted6)
		runWritten(t, newScripted6)
	})
	t.Run("simulator", func(t *testing.T) {
		runRandom(t, true, newSwitched)
		runWritten(t, newSwitched)
	})
}

// The fabric of every script: one leaf with uplinks, one host behind it, and peers.
const (
	uplinkCount = 4
	peerCount   = 3
	hashSeed    = 0x5eed
	// linkRate is that of every link, bits per second: so fast that no link's own metric
	// leaves 0, which the drivers do not all learn at the same nanosecond.
	linkRate = 100e9
)

// setup is what a harness is made for.
type setup struct {
	Scheme   string
	Sections map[string]balance.Params
	// Single says that the driver takes the packets of a burst one by one, as vectors
	// of one: what the first one brings is known when the second one is looked at.
	Single bool
}

// event is something that happens to the leaf at a time.
type event struct {
	At      mono.Time
	Send    []packet // from the host, one burst
	Receive []packet // from the fabric, one burst by one uplink
	Uplink  uint8    // by which Receive comes
	Paths   []uint8  // uplinks that lead to Peer from now on; nil: no change
	Peer    uint16   // of Paths
	Message *packet  // a message from the fabric, by Uplink
}

// packet is a tenant's packet, or a message with the headers of one.
type packet struct {
	ID     uint32 // tells packets apart
	Flow   uint32
	Peer   uint16 // where it goes to or comes from
	Size   uint16 // of the tenant's frame
	CE     bool   // the outer header has CE set; Receive
	Flags  uint8  // of TCP; 0: the packet is UDP's
	Fabric overlay.Fabric
	// Hello is the body of a HELLO. An Echo other than 0 stands for the nonce that the
	// leaf has said last to the peer.
	Hello overlay.Hello
}

// nonces are what a leaf has said last, by peer.
type nonces [peerCount]uint64

// body returns a HELLO's body with the nonce that it echoes.
func (n *nonces) body(p *packet) overlay.Hello {
	h := p.Hello
	if h.Echo != 0 {
		h.Echo = n[p.Peer]
	}
	return h
}

// outcome is what a leaf did since the event before.
type outcome struct {
	Departed  []departure // by uplink, and in order
	Messages  []departure // likewise; HELLOs among them
	Delivered []uint32    // IDs, in order
}

// departure is a packet that left by an uplink.
type departure struct {
	ID     uint32 // 0: a message
	Peer   uint16
	Uplink uint8
	Plain  bool // without the fabric's fields
	Fabric overlay.Fabric
}

// harness is a leaf that a script runs through.
type harness interface {
	// Step lets time pass up to the event's, has it happen, and returns what the leaf
	// did meanwhile.
	Step(e *event) outcome
	// Brain has the leaf's counters.
	Brain() brain
}

// brain is the part of leaf.Leaf that does not depend on what packets are held by.
type brain interface {
	Stats() leaf.Stats
	Exchange() congestion.ExchangeStats
	SchemeStats() []leaf.SchemeStats
	ReceiverStats() []leaf.ReceiverStats
	Held() int
}

// makeHarness makes a harness.
type makeHarness func(t testing.TB, s *setup) harness

// sections are those that every harness uses: datacenter values, small tables, so
// that they fill up.
func sections() map[string]balance.Params {
	all := make(map[string]balance.Params)
	for _, s := range balance.Sections() {
		all[s.Name] = s.New(balance.Datacenter)
	}
	c := all["conweave"].(*balance.ConWeaveParams)
	c.Source.Connections, c.Destination.Flows = 16, 16
	c.Destination.Queues, c.Destination.PortQueues = 3, 3
	c.Destination.Packets, c.Destination.PortPackets = 12, 12
	p := all["presto"].(*balance.PrestoParams)
	p.Cell, p.Flows, p.Queues, p.Packets = 3000, 16, 3, 12
	r := all["reed"].(*balance.ReedParams)
	r.Source.Flows, r.Receiver.Packets, r.Receiver.Window = 16, 12, 12
	b := all["plb"].(*balance.PLBParams)
	b.Threshold, b.IdleRounds, b.ForcedRounds, b.Flows = 0.1, 1, 2, 16
	all["tcp_path"].(*balance.TCPPathParams).Flows = 16
	return all
}

// normalise puts what left into an order that does not depend on how a harness
// collects it, and takes out CE, which is the links' to raise.
func (o *outcome) normalise() {
	for _, list := range [][]departure{o.Departed, o.Messages} {
		slices.SortStableFunc(list, func(a, b departure) int { return int(a.Uplink) - int(b.Uplink) })
		for i := range list {
			list[i].Fabric.CE = 0
			if list[i].Plain {
				list[i].Fabric = overlay.Fabric{}
			}
		}
	}
}

// String writes an outcome as a few lines.
func (o *outcome) String() string {
	var b strings.Builder
	for _, d := range o.Departed {
		fmt.Fprintf(&b, "  packet %d to %d by %d%s\n", d.ID, d.Peer, d.Uplink, fields(&d))
	}
	for _, d := range o.Messages {
		fmt.Fprintf(&b, "  %v to %d by %d%s\n", d.Fabric.Opcode, d.Peer, d.Uplink, fields(&d))
	}
	if len(o.Delivered) > 0 {
		fmt.Fprintf(&b, "  delivered %v\n", o.Delivered)
	}
	return b.String()
}

func fields(d *departure) string {
	if d.Plain {
		return " plain"
	}
	f := &d.Fabric
	s := fmt.Sprintf(" path %v scheme %d", f.Path, f.Scheme)
	if f.FBValid {
		s += fmt.Sprintf(" feedback %d=%d", f.FBTag, f.FBMetric)
	}
	if f.Opcode != overlay.OpData {
		s += " " + f.Opcode.String()
	}
	if f.Shim {
		s += fmt.Sprintf(" epoch %d tx %d arg %d", f.Epoch, f.TxTstamp, f.Arg)
	}
	if f.Rerouted {
		s += " R"
	}
	if f.Tail {
		s += " T"
	}
	return s
}

// counters flattens what a leaf has counted: every number but histograms' buckets, and
// messages' bytes, as drivers differ in how long headers are.
func counters(b brain) map[string]uint64 {
	out := make(map[string]uint64)
	s := b.Stats()
	flatten(out, "leaf", reflect.ValueOf(s))
	for _, x := range b.SchemeStats() {
		out[x.Scheme+".Decisions"] = x.Decisions
		flatten(out, x.Scheme+".Flowlets", reflect.ValueOf(x.Flowlets))
		if x.Own != nil {
			flatten(out, x.Scheme, reflect.ValueOf(x.Own).Elem())
		}
	}
	for _, x := range b.ReceiverStats() {
		flatten(out, "receiver."+x.Scheme, reflect.ValueOf(x.Stats).Elem())
	}
	flatten(out, "exchange", reflect.ValueOf(b.Exchange()))
	out["held"] = uint64(b.Held())
	return out
}

func flatten(out map[string]uint64, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if v.Type() == reflect.TypeFor[reorder.Histogram]() && f.Name != "N" || f.Name == "Bytes" && v.NumField() == 2 {
				continue
			}
			flatten(out, name+"."+f.Name, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			flatten(out, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Uint64:
		out[name] = v.Uint()
	case reflect.Int:
		out[name] = uint64(v.Int())
	}
}

// Frames have an Ethernet, an IPv4 and a UDP header, and their packet's ID behind. In
// those of TCP it is where acknowledgements are.
const (
	idAt      = overlay.EthernetLen + overlay.IPv4Len + overlay.UDPLen
	leastSize = idAt + 4
	leastTCP  = overlay.EthernetLen + overlay.IPv4Len + 20
)

// hostMAC is the host's address; peerMAC that of the one behind a peer.
var hostMAC = overlay.MAC{2, 0, 0, 0, 0, 1}

// peerMAC is the address of the host behind a peer.
func peerMAC(peer uint16) overlay.MAC { return overlay.MAC{2, 0, 0, 0, 1, uint8(peer)} }

// Frame returns the tenant's frame of a packet: from the host, or to it.
func (p *packet) Frame(fromHost bool) []byte {
	b := make([]byte, max(int(p.Size), leastSize))
	eth := overlay.Ethernet(b)
	eth.SetSrc(peerMAC(p.Peer))
	eth.SetDst(hostMAC)
	if fromHost {
		eth.SetSrc(hostMAC)
		eth.SetDst(peerMAC(p.Peer))
	}
	eth.SetEtherType(overlay.EtherTypeIPv4)
	ip := b[overlay.EthernetLen:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, overlay.ProtoUDP, 0, 0, 10, 0, 0, 1, 10, 0, 1, uint8(p.Peer)})
	if !fromHost {
		copy(ip[12:], []byte{10, 0, 1, uint8(p.Peer), 10, 0, 0, 1})
	}
	if p.CE {
		ip[1] = uint8(overlay.ECT0)
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-overlay.EthernetLen))
	fixChecksum(ip)
	udp := ip[overlay.IPv4Len:]
	binary.BigEndian.PutUint16(udp, uint16(1000+p.Flow))
	binary.BigEndian.PutUint16(udp[2:], 2000)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-overlay.EthernetLen-overlay.IPv4Len))
	if p.Flags != 0 {
		clear(udp[4:])
		ip[9], udp[12], udp[13] = overlay.ProtoTCP, 5<<4, p.Flags
		if !fromHost { // the other direction of the host's flow
			binary.BigEndian.PutUint16(udp, 2000)
			binary.BigEndian.PutUint16(udp[2:], uint16(1000+p.Flow))
		}
		fixChecksum(ip)
	}
	binary.BigEndian.PutUint32(b[idAt:], p.ID)
	return b
}

// fixChecksum writes the checksum of an IPv4 header.
func fixChecksum(ip []byte) {
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < overlay.IPv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// Exact returns what a packet's headers say of its flow.
func (p *packet) Exact(fromHost bool) (x balance.Exact) {
	b := p.Frame(fromHost)
	var m overlay.Meta
	overlay.Dissect(b, hashSeed, &m)
	x.TCPFlags = overlay.ExactKey(b, m.L3, &m, &x.Key)
	return x
}

// frameID returns the ID of the packet whose frame b is.
func frameID(b []byte) uint32 { return binary.BigEndian.Uint32(b[idAt:]) }

// Hash returns the flow hash of a packet, as every driver computes it.
func (p *packet) Hash(fromHost bool) uint32 {
	var m overlay.Meta
	overlay.Dissect(p.Frame(fromHost), hashSeed, &m)
	return m.Hash
}

// compare runs a script through a harness and holds it against a leaf alone.
func compare(t testing.TB, s *setup, events []event, mk makeHarness) {
	t.Helper()
	want, got := newAlone(t, s), mk(t, s)
	for i := range events {
		w, g := want.Step(&events[i]), got.Step(&events[i])
		w.normalise()
		g.normalise()
		if ws, gs := w.String(), g.String(); ws != gs {
			t.Fatalf("scheme %s, event %d at %v: %s\na leaf alone:\n%sthe driver:\n%s", s.Scheme, i, events[i].At, describe(&events[i]), ws, gs)
		}
	}
	wc, gc := counters(want.Brain()), counters(got.Brain())
	for name, n := range wc {
		if gc[name] != n {
			t.Errorf("scheme %s: %s is %d, and %d with a leaf alone", s.Scheme, name, gc[name], n)
		}
	}
}

func describe(e *event) string {
	return fmt.Sprintf("send %v, receive by %d %+v, message %+v, paths to %d %v", e.Send, e.Uplink, e.Receive, e.Message, e.Peer, e.Paths)
}

// runRandom holds a harness against a leaf alone under every scheme, by scripts that
// are made at random from a few seeds. single is setup.Single.
func runRandom(t *testing.T, single bool, mk makeHarness) {
	for _, scheme := range balance.Names() {
		if balance.Find(scheme).Hosts {
			continue // each harness has other addresses of hosts
		}
		t.Run(scheme, func(t *testing.T) {
			for seed := range uint64(4) {
				s := &setup{Scheme: scheme, Sections: sections(), Single: single}
				compare(t, s, generate(t, s, seed, 400), mk)
			}
		})
	}
}

// runWritten holds a harness against what the written scripts say.
func runWritten(t *testing.T, mk makeHarness) {
	for _, s := range written {
		t.Run(s.Name, func(t *testing.T) {
			h := mk(t, &setup{Scheme: s.Scheme, Sections: sections()})
			for i := range s.Events {
				o := h.Step(&s.Events[i])
				o.normalise()
				if got := o.String(); i >= len(s.Want) || got != s.Want[i] {
					t.Errorf("event %d: the leaf did\n%s", i, got)
				}
			}
		})
	}
}
