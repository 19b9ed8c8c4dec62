// Package scenario holds what a leaf does against what leaves do that drive package
// leaf: one script of events (packets in, messages in, time) runs through a leaf
// alone, through the data plane between links in memory, and through the simulator's
// switch, and each has to give the same decisions, marks, answers and counters. It is
// for tests.
package scenario

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

// The fabric of every script: one leaf with uplinks, one host behind it, and peers.
const (
	Uplinks = 4
	Peers   = 3
	Seed    = 0x5eed
	// Rate is that of every link, bits per second: so fast that no link's own metric
	// leaves 0, which the drivers do not all learn at the same nanosecond.
	Rate = 100e9
)

// Setup is what a harness is made for.
type Setup struct {
	Scheme   string
	Sections map[string]balance.Params
	// Single says that the driver takes the packets of a burst one by one, as vectors
	// of one: what the first one brings is known when the second one is looked at.
	Single bool
}

// Event is something that happens to the leaf at a time.
type Event struct {
	At      mono.Time
	Send    []Packet // from the host, one burst
	Receive []Packet // from the fabric, one burst by one uplink
	Uplink  uint8    // by which Receive comes
	Paths   []uint8  // uplinks that lead to Peer from now on; nil: no change
	Peer    uint16   // of Paths
	Message *Packet  // a message from the fabric, by Uplink
}

// Packet is a tenant's packet, or a message with the headers of one.
type Packet struct {
	ID     uint32 // tells packets apart
	Flow   uint32
	Peer   uint16 // where it goes to or comes from
	Size   uint16 // of the tenant's frame
	CE     bool   // the outer header has CE set; Receive
	Fabric overlay.Fabric
}

// Outcome is what a leaf did since the event before.
type Outcome struct {
	Departed  []Departure // by uplink, and in order
	Messages  []Departure // likewise; HELLOs among them
	Delivered []uint32    // IDs, in order
}

// Departure is a packet that left by an uplink.
type Departure struct {
	ID     uint32 // 0: a message
	Peer   uint16
	Uplink uint8
	Plain  bool // without the fabric's fields
	Fabric overlay.Fabric
}

// Harness is a leaf that a script runs through.
type Harness interface {
	// Step lets time pass up to the event's, has it happen, and returns what the leaf
	// did meanwhile.
	Step(e *Event) Outcome
	// Brain has the leaf's counters.
	Brain() Brain
}

// Brain is the part of leaf.Leaf that does not depend on what packets are held by.
type Brain interface {
	Stats() leaf.Stats
	Exchange() congestion.ExchangeStats
	SchemeStats() []leaf.SchemeStats
	ReceiverStats() []leaf.ReceiverStats
	Held() int
}

// Make makes a harness.
type Make func(t testing.TB, s *Setup) Harness

// Sections are those that every harness uses: datacenter values, small tables, so
// that they fill up.
func Sections() map[string]balance.Params {
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
	return all
}

// normalise puts what left into an order that does not depend on how a harness
// collects it, and takes out CE, which is the links' to raise.
func (o *Outcome) normalise() {
	for _, list := range [][]Departure{o.Departed, o.Messages} {
		slices.SortStableFunc(list, func(a, b Departure) int { return int(a.Uplink) - int(b.Uplink) })
		for i := range list {
			list[i].Fabric.CE = 0
			if list[i].Plain {
				list[i].Fabric = overlay.Fabric{}
			}
		}
	}
}

// String writes an outcome as a few lines.
func (o *Outcome) String() string {
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

func fields(d *Departure) string {
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

// Counters flattens what a leaf has counted: every number but histograms' buckets, and
// messages' bytes, as drivers differ in how long headers are.
func Counters(b Brain) map[string]uint64 {
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

// Frames have an Ethernet, an IPv4 and a UDP header, and their packet's ID behind.
const (
	idAt      = overlay.EthernetLen + overlay.IPv4Len + overlay.UDPLen
	LeastSize = idAt + 4
)

// HostMAC is the host's address; PeerMAC that of the one behind a peer.
var HostMAC = overlay.MAC{2, 0, 0, 0, 0, 1}

// PeerMAC is the address of the host behind a peer.
func PeerMAC(peer uint16) overlay.MAC { return overlay.MAC{2, 0, 0, 0, 1, uint8(peer)} }

// Frame returns the tenant's frame of a packet: from the host, or to it.
func (p *Packet) Frame(fromHost bool) []byte {
	b := make([]byte, max(int(p.Size), LeastSize))
	eth := overlay.Ethernet(b)
	eth.SetSrc(PeerMAC(p.Peer))
	eth.SetDst(HostMAC)
	if fromHost {
		eth.SetSrc(HostMAC)
		eth.SetDst(PeerMAC(p.Peer))
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
	sum := uint32(0)
	for i := 0; i < overlay.IPv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := ip[overlay.IPv4Len:]
	binary.BigEndian.PutUint16(udp, uint16(1000+p.Flow))
	binary.BigEndian.PutUint16(udp[2:], 2000)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-overlay.EthernetLen-overlay.IPv4Len))
	binary.BigEndian.PutUint32(b[idAt:], p.ID)
	return b
}

// FrameID returns the ID of the packet whose frame b is.
func FrameID(b []byte) uint32 { return binary.BigEndian.Uint32(b[idAt:]) }

// Hash returns the flow hash of a packet, as every driver computes it.
func (p *Packet) Hash(fromHost bool) uint32 {
	var m overlay.Meta
	overlay.Dissect(p.Frame(fromHost), Seed, &m)
	return m.Hash
}

// Compare runs a script through a harness and holds it against a leaf alone.
func Compare(t testing.TB, s *Setup, events []Event, mk Make) {
	t.Helper()
	want, got := NewAlone(t, s), mk(t, s)
	for i := range events {
		w, g := want.Step(&events[i]), got.Step(&events[i])
		w.normalise()
		g.normalise()
		if ws, gs := w.String(), g.String(); ws != gs {
			t.Fatalf("scheme %s, event %d at %v: %s\na leaf alone:\n%sthe driver:\n%s", s.Scheme, i, events[i].At, describe(&events[i]), ws, gs)
		}
	}
	wc, gc := Counters(want.Brain()), Counters(got.Brain())
	for name, n := range wc {
		if gc[name] != n {
			t.Errorf("scheme %s: %s is %d, and %d with a leaf alone", s.Scheme, name, gc[name], n)
		}
	}
}

func describe(e *Event) string {
	return fmt.Sprintf("send %v, receive by %d %+v, message %+v, paths to %d %v", e.Send, e.Uplink, e.Receive, e.Message, e.Peer, e.Paths)
}

// Run holds a harness against a leaf alone under every scheme, by scripts that were
// made at random from a few seeds, and by those that are written out. single is
// Setup.Single.
func Run(t *testing.T, single bool, mk Make) {
	for _, scheme := range balance.Names() {
		t.Run(scheme, func(t *testing.T) {
			for seed := range uint64(4) {
				s := &Setup{Scheme: scheme, Sections: Sections(), Single: single}
				Compare(t, s, Generate(t, s, seed, 400), mk)
			}
		})
	}
	for _, w := range Written {
		t.Run(w.Name, func(t *testing.T) {
			Check(t, &w, mk)
		})
	}
}

// Check holds a harness against what a script says.
func Check(t testing.TB, s *Script, mk Make) {
	t.Helper()
	h := mk(t, &Setup{Scheme: s.Scheme, Sections: Sections()})
	for i := range s.Events {
		o := h.Step(&s.Events[i])
		o.normalise()
		if got := o.String(); i >= len(s.Want) || got != s.Want[i] {
			t.Errorf("event %d: the leaf did\n%s", i, got)
		}
	}
}
