package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

func (s *signaller) Choose(_ mono.Time, _ *balance.View, pkts []balance.Packet) {
	for i := range pkts {
		pkts[i].Path, pkts[i].Marks = 1, s.marks
	}
}

func (s *signaller) Hear(_ mono.Time, leaf uint16, hash uint32, f *overlay.Fabric) {
	s.heard = append(s.heard, fmt.Sprintf("%v of %#x from %d", f.Opcode, hash, leaf))
}

func TestHeaderOfAPacketThatLeaves(t *testing.T) {
	r := newRig(t, 4, DefaultConfig())
	r.enter(r.packet(0xabcd, 1000))
	r.net.Engine.Run(engine.Never)
	got := r.all()
	if len(got) != 1 {
		t.Fatalf("%d packets left", len(got))
	}
	p := got[0]
	want := overlay.Fabric{Capable: true, LBTag: p.Fabric.LBTag, Path: overlay.MakePathID(p.Fabric.LBTag, 0xd)}
	if p.Fabric != want {
		t.Errorf("header %+v, want %+v", p.Fabric, want)
	}
	if len(r.taps[p.Fabric.LBTag].got) != 1 {
		t.Errorf("LBTag %d is not the uplink that it left by", p.Fabric.LBTag)
	}
	if p.Size != 1050 || p.Overhead != 50 || p.SrcLeaf != 0 || p.DstLeaf != 1 {
		t.Errorf("packet %+v: want 1050 bytes, 50 of them overhead, from leaf 0 to leaf 1", p)
	}
}

// A packet is marked with what the link carried before it, as a switch reads
// the register and then adds to it.
func TestCEIsTheMetricBeforeThePacketItself(t *testing.T) {
	c := DefaultConfig()
	c.Congestion.Tau = 16 * time.Microsecond // C·τ: 20 kB; a level of Q=3: 2500 bytes
	r := newRig(t, 1, c)
	for range 5 {
		r.enter(r.packet(1, 1200)) // 1250 with the overlay's
	}
	r.net.Engine.Run(engine.Never)
	meter := c.Congestion.DRE()
	for i, p := range r.taps[0].got {
		departed := r.taps[0].at[i] - us - engine.Time(p.Size)*800
		if want := meter.Metric(departed.Mono(), 10*gbit); p.Fabric.CE != want {
			t.Errorf("packet %d has CE %d, want %d", i, p.Fabric.CE, want)
		}
		meter.Add(departed.Mono(), p.Size)
	}
	if first, last := r.taps[0].got[0].Fabric.CE, r.taps[0].got[4].Fabric.CE; first != 0 || last == 0 {
		t.Errorf("CE goes from %d to %d: nothing was tested", first, last)
	}
}

func TestHostsBehindOneLeafNeedNoFabric(t *testing.T) {
	r := newRig(t, 2, DefaultConfig())
	p := r.packet(1, 500)
	p.Src, p.Dst = 1, 2
	r.leaves[1].Receive(0, p, r.leaves[1].HostPort(1))
	if q := r.leaves[1].HostPort(2); q.Stats().Packets[network.DataClass] != 1 || r.leaves[1].Stats().Local != 1 {
		t.Error("the packet did not go straight to its host")
	}
}

// "Incremental deployment": RFC 7348 to and from a leaf that knows no more
// (CONGA §7).
func TestPlainLeavesAreSentPlainVXLAN(t *testing.T) {
	for _, plain := range []int{0, 1} {
		cfgs := []Config{DefaultConfig(), DefaultConfig()}
		cfgs[0].Scheme, cfgs[1].Scheme = "conga", "conga"
		cfgs[plain].Plain = true
		r := newRig(t, 2, cfgs...)
		r.enter(r.packet(7, 1000))
		r.net.Engine.Run(engine.Never)
		p := r.all()[0]
		if p.Fabric != (overlay.Fabric{}) || p.Size != 1050 {
			t.Errorf("leaf %d is plain, and a packet leaves with %+v and %d bytes", plain, p.Fabric, p.Size)
		}
		if got := r.leaves[plain].Policies()[0].Name(); got != "ecmp" {
			t.Errorf("a plain leaf has scheme %s", got)
		}
	}
}

// HELLOs are heard each quarter of a second of virtual time, so a leaf stays
// capable however long nothing else comes from it; and no event is pending for
// it.
func TestLeavesStayCapable(t *testing.T) {
	r := newRig(t, 1, DefaultConfig())
	for _, at := range []engine.Time{0, 10 * us, 3 * engine.Second, 90 * engine.Second} {
		r.later(at)
		r.enter(r.packet(1, 100))
		r.net.Engine.Run(engine.Never)
	}
	for i, p := range r.all() {
		if !p.Fabric.Capable {
			t.Errorf("packet %d went plain", i)
		}
	}
	if len(r.all()) != 4 || r.net.Engine.Pending() != 0 {
		t.Errorf("%d packets; %d events wait", len(r.all()), r.net.Engine.Pending())
	}
}

func TestSchemesThatSignal(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Tags = &Tags{}
	cfg.Tags.Set(5, 2)
	cfg.Classes = []Class{{Match: Match{Tag: 2, Kinds: MakeKinds(network.Data)}, Scheme: "spray"}}
	for _, plainPeer := range []bool{false, true} {
		peer := cfg
		peer.Plain = plainPeer
		r := newRig(t, 2, cfg, peer)
		s := &signaller{marks: balance.Marks{
			Opcode: overlay.OpRTTRequest, Epoch: 3, Rerouted: true, Shim: true, Selector: 9, Arg: 77,
		}}
		r.leaves[0].classes[0].policy, r.leaves[0].classes[0].signal = s, s
		r.later(42 * us)
		for _, kind := range []network.Kind{network.Data, network.Ack} {
			p := r.packet(0xabcd, 1000)
			p.Flow, p.Kind = 5, kind
			r.enter(p)
		}
		r.net.Engine.Run(engine.Never)
		for _, p := range r.all() {
			want := overlay.Fabric{Capable: true, LBTag: p.Fabric.LBTag, Path: overlay.MakePathID(p.Fabric.LBTag, 0xd)}
			size := uint32(1050)
			switch {
			case plainPeer:
				want = overlay.Fabric{}
			case p.Kind == network.Data:
				want = overlay.Fabric{
					Capable: true, LBTag: 1, Path: overlay.MakePathID(1, 9), Opcode: overlay.OpRTTRequest, Epoch: 3, Rerouted: true,
					Shim: true, TxTstamp: 42, Arg: 77,
				}
				size = 1054
			}
			if p.Fabric != want || p.Size != size {
				t.Errorf("kind %d, plain peer %v: %+v, %d bytes; want %+v, %d", p.Kind, plainPeer, p.Fabric, p.Size, want, size)
			}
		}
		if len(r.all()) != 2 {
			t.Errorf("%d packets left", len(r.all()))
		}
	}
}

func TestControlPacketsEndAtTheLeaf(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Tags = &Tags{}
	cfg.Tags.Set(5, 2)
	cfg.Classes = []Class{{Match: Match{Tag: 2, Kinds: MakeKinds(network.Data)}, Scheme: "spray"}}
	r := newRig(t, 2, cfg)
	s := &signaller{}
	r.leaves[0].classes[0].signal = s
	for _, flow := range []network.FlowID{5, 6} {
		p := r.packet(0x1234, 100)
		p.Flow, p.Kind, p.SrcLeaf, p.DstLeaf, p.Src, p.Dst, p.Overhead = flow, network.Control, 1, 0, 1, 0, 50
		p.Fabric = overlay.Fabric{Capable: true, Opcode: overlay.OpClear, FBValid: true, FBTag: 1, FBMetric: 6}
		r.leaves[0].Receive(us, p, r.leaves[0].uplinks[0].port)
	}
	if fmt.Sprint(s.heard) != "[CLEAR of 0x1234 from 1]" {
		t.Errorf("heard %q", s.heard)
	}
	st := r.leaves[0].Stats()
	if l := r.net.Ledger(); st.Control != 2 || st.Unheard != 1 || l.Consumed != 2 {
		t.Errorf("%+v, %+v", st, l)
	}
	if m := r.leaves[0].ToLeaf().Metric(1, 1, us.Mono()); m != 6 {
		t.Errorf("feedback in a control packet: metric %d, want 6", m)
	}
}

func TestWhatAFabricMustNotSend(t *testing.T) {
	r := newRig(t, 1, DefaultConfig())
	up := r.leaves[0].uplinks[0].port
	for _, c := range []struct {
		change func(p *network.Packet)
		why    network.Reason
	}{
		{func(p *network.Packet) { p.DstLeaf = 1 }, network.Unwanted},
		{func(p *network.Packet) { p.SrcLeaf = 2 }, network.Unwanted},
		{func(p *network.Packet) { p.CE, p.ECT = true, false }, network.Unwanted},
		{func(p *network.Packet) { p.Dst = 1 }, network.NoRoute}, // split horizon
		{func(p *network.Packet) { p.Dst = 99 }, network.NoRoute},
	} {
		before := r.net.Ledger().Dropped[c.why]
		p := r.packet(1, 100)
		p.SrcLeaf, p.DstLeaf, p.Src, p.Dst = 1, 0, 1, 0
		c.change(p)
		r.leaves[0].Receive(0, p, up)
		if got := r.net.Ledger().Dropped[c.why]; got != before+1 {
			t.Errorf("%d drops of %v, want %d", got, c.why, before+1)
		}
	}
}

// The paper takes a failed link for granted (§5.2.2); an
// uplink that disappears must take no flowlet with it.
func TestFlowletsLeaveAnUplinkThatIsGone(t *testing.T) {
	for _, scheme := range []string{"conga", "letflow", "local", "ecmp", "drill", "spray"} {
		c := DefaultConfig()
		c.Scheme = scheme
		r := newRig(t, 3, c)
		for f := range uint32(50) {
			r.enter(r.packet(f*0x9e3779b9, 100))
		}
		r.net.Engine.Run(engine.Never)
		r.leaves[0].LinkChanged(r.net.Engine.Now(), r.leaves[0].uplinks[1].port, false)
		before := len(r.taps[1].got)
		if before == 0 {
			t.Fatalf("%s: nothing went by uplink 1", scheme)
		}
		for f := range uint32(50) {
			r.enter(r.packet(f*0x9e3779b9, 100))
		}
		r.net.Engine.Run(engine.Never)
		if got := len(r.taps[1].got); got != before {
			t.Errorf("%s: %d packets on an uplink that is gone", scheme, got-before)
		}
		if got := len(r.all()); got != 100 {
			t.Errorf("%s: %d packets came, want 100", scheme, got)
		}
	}
}

func TestALeafWithoutPathsDrops(t *testing.T) {
	r := newRig(t, 1, DefaultConfig())
	r.leaves[0].LinkChanged(0, r.leaves[0].uplinks[0].port, false)
	r.enter(r.packet(1, 100))
	if l := r.net.Ledger(); l.Dropped[network.NoRoute] != 1 || l.Check() != nil {
		t.Errorf("ledger %+v", l)
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"scheme":  func(c *Config) { c.Scheme = "best" },
		"class":   func(c *Config) { c.Classes = []Class{{Scheme: "best"}} },
		"classes": func(c *Config) { c.Classes = make([]Class, MaxClasses) },
		"tau":     func(c *Config) { c.Congestion.Tau = -1 },
		"Q":       func(c *Config) { c.Congestion = congestion.Datacenter(); c.Congestion.Q = 4 },
	} {
		c := DefaultConfig()
		change(&c)
		if _, err := NewLeaf(network.New(engine.New()), "L0", 0, 2, &Directory{}, c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	c := DefaultConfig()
	c.Spine = "best"
	if _, err := NewSpine(network.New(engine.New()), "S0", 0, 2, c); err == nil {
		t.Error("spine's scheme: no error")
	}
}
