package traffic

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/network"
)

// frameHash is the hash of the same headers built by an independent encoder.
func frameHash(t *testing.T, seed uint32, c Tuple) uint32 {
	t.Helper()
	addr := func(h network.HostID) net.IP {
		h++
		return net.IPv4(10, byte(h>>16), byte(h>>8), byte(h))
	}
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocol(c.Proto), SrcIP: addr(c.Src), DstIP: addr(c.Dst)}
	l4 := gopacket.SerializableLayer(&layers.TCP{SrcPort: layers.TCPPort(c.SrcPort), DstPort: layers.TCPPort(c.DstPort)})
	if c.Proto == overlay.ProtoUDP {
		l4 = &layers.UDP{SrcPort: layers.UDPPort(c.SrcPort), DstPort: layers.UDPPort(c.DstPort)}
	}
	bth := gopacket.Payload{4, 0, 0xff, 0xff, 0, byte(c.QP >> 16), byte(c.QP >> 8), byte(c.QP), 0, 0, 0, 1, 0, 0, 0, 0}
	buf := gopacket.NewSerializeBuffer()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, eth, ip, l4, bth); err != nil {
		t.Fatal(err)
	}
	var m overlay.Meta
	overlay.Dissect(buf.Bytes(), seed, &m)
	if m.Flags&overlay.FlagPorts == 0 || (c.DstPort == rocePort && c.Proto == overlay.ProtoUDP) != (m.Flags&overlay.FlagRoCE != 0) {
		t.Fatalf("%+v: flags %x", c, m.Flags)
	}
	return m.Hash
}

// TestFlowHash: the hash is what the data plane computes for such a packet, in
// both directions, which have hashes of their own.
func TestFlowHash(t *testing.T) {
	r := workload.NewRand(1, 1)
	for range 200 {
		f := Flow{Src: network.HostID(r.IntN(70000)), Dst: network.HostID(r.IntN(70000)), Key: r.Uint64()}
		seed := r.Uint32()
		for _, c := range []Tuple{f.TCP(), f.UDP(), f.RoCE()} {
			back := c.Reverse()
			for _, x := range []Tuple{c, back} {
				if got, want := FlowHash(seed, x), frameHash(t, seed, x); got != want {
					t.Fatalf("%+v: hash %08x, of a packet %08x", x, got, want)
				}
			}
			if FlowHash(seed, c) == FlowHash(seed, back) {
				t.Errorf("%+v: both directions have one hash", c)
			}
			if back.Src != c.Dst || back.Dst != c.Src || back.QP != c.PeerQP || c.DstPort != rocePort && back.DstPort != c.SrcPort {
				t.Errorf("%+v goes back as %+v", c, back)
			}
			if back.Reverse() != c {
				t.Errorf("%+v comes back as %+v", c, back.Reverse())
			}
			if c.QP > 0xffffff || c.PeerQP > 0xffffff {
				t.Errorf("queue pairs of more than 24 bits: %+v", c)
			}
		}
		if u := f.UDP(); u.DstPort == rocePort {
			t.Errorf("plain UDP to RoCEv2's port: %+v", u)
		}
	}
	// Plain UDP that draws RoCEv2's port takes another.
	f := Flow{Dst: 1, Key: (rocePort - registeredFirst) << 32}
	if f.UDP().DstPort != rocePort+1 || f.TCP().DstPort != rocePort {
		t.Errorf("ports %d and %d", f.UDP().DstPort, f.TCP().DstPort)
	}
}

// TestSubflowsHavePortsOfTheirOwn: all subflows of a connection differ in the source port
// and in nothing else, and the first one is the connection that TCP would have.
func TestSubflowsHavePortsOfTheirOwn(t *testing.T) {
	for key := range uint64(1000) {
		f := Flow{Src: 1, Dst: 2, Key: key * 0x9e3779b97f4a7c15}
		seen := make(map[uint16]bool)
		for i := range 64 {
			s := f.Subflow(i)
			if seen[s.SrcPort] || s.SrcPort < ephemeralFirst || s.SrcPort >= ephemeralFirst+ephemeralPorts {
				t.Fatalf("key %x, subflow %d: port %d", f.Key, i, s.SrcPort)
			}
			seen[s.SrcPort] = true
			if s.SrcPort = f.TCP().SrcPort; s != f.TCP() {
				t.Fatalf("key %x, subflow %d: %+v", f.Key, i, s)
			}
		}
		if f.Subflow(0) != f.TCP() {
			t.Fatalf("key %x: the first subflow is %+v", f.Key, f.Subflow(0))
		}
	}
}

// TestHashesAreRandom: many flows of one pair of hosts spread over uplinks as
// throws of dice do: chi-square with 15 degrees of freedom stays below its
// 1 - 1e-5 quantile, and above its 1e-5 quantile, as it would not if flows were
// dealt in turn.
func TestHashesAreRandom(t *testing.T) {
	const n, uplinks = 1 << 14, 16
	for name, of := range map[string]func(f *Flow) Tuple{"TCP": (*Flow).TCP, "RoCEv2": (*Flow).RoCE, "a subflow": func(f *Flow) Tuple { return f.Subflow(5) }} {
		for seed := range uint64(8) {
			c := base()
			c.Seed, c.Pairs = seed, &Selection{From: hosts(3, 3), To: hosts(9, 9), Rack: make([]int, 10), Any: true}
			p := &limited{NewPoisson(c), n}
			counts := make([]float64, uplinks)
			seen := make(map[uint32]bool)
			for f, ok := p.Next(); ok; f, ok = p.Next() {
				h := FlowHash(77, of(&f))
				counts[uint64(h)*uplinks>>32]++
				seen[h] = true
			}
			chi := 0.0
			for _, k := range counts {
				d := k - n/uplinks
				chi += d * d / (n / uplinks)
			}
			if chi > 52 || chi < 1.9 {
				t.Errorf("%s, seed %d: chi-square %.1f", name, seed, chi)
			}
			if len(seen) < n-4 { // chance has 0.03 pairs of equal hashes
				t.Errorf("%s, seed %d: %d hashes of %d flows", name, seed, len(seen), n)
			}
		}
	}
}

func TestFlowHashDoesNotAllocate(t *testing.T) {
	f := Flow{Src: 1, Dst: 2, Key: 12345}
	if n := testing.AllocsPerRun(100, func() { FlowHash(1, f.RoCE()) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
