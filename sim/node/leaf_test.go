package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

func TestHeaderOfAPacketThatLeaves(t *testing.T) {
	r := newRig(t, 4, DefaultConfig())
	r.enter(r.packet(0xabcd, 1000))
	r.settle()
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
	r.settle()
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
	if q := r.leaves[1].HostPort(2); q.Stats().Packets[network.DataClass] != 1 {
		t.Error("the packet did not go straight to its host")
	}
}

// "Incremental deployment": RFC 7348 to a leaf that knows no more (CONGA §7), or has
// not said for a while that it does; and what comes from it is a packet like any.
func TestPlainLeavesAreSentPlainVXLAN(t *testing.T) {
	cfg := DefaultConfig()
	for _, cfg.Scheme = range []string{"conga", "conweave", "presto"} {
		r := newRig(t, 2, cfg)
		r.later(engine.Of(overlay.CapableFor) + us) // HELLOs get lost
		r.enter(r.packet(7, 1000))
		r.settle()
		data := slices.DeleteFunc(r.all(), func(p network.Packet) bool { return p.Kind == network.Control })
		if len(data) != 1 {
			t.Fatalf("%s: %d packets left", cfg.Scheme, len(data))
		}
		for _, p := range data {
			if p.Fabric != (overlay.Fabric{}) || p.Size != 1050 {
				t.Errorf("%s: a packet leaves for a plain leaf with %+v and %d bytes", cfg.Scheme, p.Fabric, p.Size)
			}
		}
		p0 := r.packet(9, 1050)
		p0.SrcLeaf, p0.DstLeaf, p0.Src, p0.Dst, p0.Overhead = 1, 0, 1, 0, 50
		r.leaves[0].Receive(r.net.Engine.Now(), p0, r.leaves[0].uplinks[0].port)
		if s := r.leaves[0].HostPort(0).Stats(); s.Bytes[network.DataClass] != 1000 {
			t.Errorf("%s: a host got %d bytes from a plain leaf, want 1000", cfg.Scheme, s.Bytes[network.DataClass])
		}
		if r.leaves[0].Brain().View().Capable.Capable(1, r.net.Engine.Now().Mono()) {
			t.Errorf("%s: plain VXLAN makes a leaf capable", cfg.Scheme)
		}
	}
}

// What a scheme wants in the header goes to leaves that read it, and costs a shim.
func TestMarksOfSchemes(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		scheme string
		want   overlay.Fabric
	}{
		{"conweave", overlay.Fabric{Opcode: overlay.OpRTTRequest, Epoch: 1, Scheme: reorder.SchemeID}},
		{"presto", overlay.Fabric{Rerouted: true, Scheme: balance.Find("presto").Wire}},
	} {
		for _, plain := range []bool{false, true} {
			cfg.Scheme = c.scheme
			r := newRig(t, 2, cfg)
			if plain {
				r.leaves[0].shared.Capable.Forget(1)
			}
			r.later(42 * us)
			r.enter(r.packet(0xabcd, 1000))
			r.settle()
			p := r.all()
			if len(p) != 1 {
				t.Fatalf("%s: %d packets left", c.scheme, len(p))
			}
			f, want, size := p[0].Fabric, c.want, uint32(1054)
			want.Capable, want.LBTag, want.Path, want.Shim, want.TxTstamp, want.Arg = true, f.LBTag, f.Path, true, 42, f.Arg
			if c.scheme == "presto" {
				want.Epoch = f.Epoch // drawn at random
			}
			if plain {
				want, size = overlay.Fabric{}, 1050
			}
			if f != want || p[0].Size != size || f.Path.Uplink() != f.LBTag {
				t.Errorf("%s, plain peer %v: %+v, %d bytes; want %+v, %d", c.scheme, plain, f, p[0].Size, want, size)
			}
			if len(r.taps[f.LBTag].got) != 1 {
				t.Errorf("%s: LBTag %d is not the uplink that it left by", c.scheme, f.LBTag)
			}
		}
	}
}

// control is a message from leaf 1 to leaf 0 about a flow from host 0 to host 1.
func (r *rig) control(op overlay.Opcode, id overlay.SchemeID, hash uint32) *network.Packet {
	p := r.packet(hash, 114)
	p.Kind, p.SrcLeaf, p.DstLeaf, p.Src, p.Dst, p.Overhead = network.Control, 1, 0, 1, 0, 54
	p.Fabric = overlay.Fabric{
		Capable: true, Opcode: op, Scheme: id, Shim: true, LBTag: 1, FBValid: true, FBTag: 1, FBMetric: 6,
	}
	return p
}

// Messages are for the scheme that they belong to, if the leaf has it; whatever
// becomes of them, what they say of congestion is noted.
func TestMessagesEndAtTheLeaf(t *testing.T) {
	for _, c := range []struct {
		scheme string
		id     overlay.SchemeID
		op     overlay.Opcode
		want   uint64 // packets that are consumed; the others are dropped
		known  uint64
	}{
		{"conweave", reorder.SchemeID, overlay.OpRTTReply, 1, 1},
		{"conweave", 0, overlay.OpRTTReply, 0, 0},
		{"conweave", overlay.NumSchemes - 1, overlay.OpRTTReply, 0, 0},
		{"ecmp", reorder.SchemeID, overlay.OpRTTReply, 0, 0},
		{"ecmp", 0, overlay.OpHello, 1, 0},
	} {
		cfg := DefaultConfig()
		cfg.Scheme = c.scheme
		r := newRig(t, 2, cfg)
		r.enter(r.packet(0x1234, 1000))
		r.settle()
		p := r.control(c.op, c.id, 0x1234)
		p.Hello = &overlay.Hello{Round: 1}
		r.leaves[0].Receive(r.net.Engine.Now(), p, r.leaves[0].uplinks[0].port)
		s, l, own := r.leaves[0].Stats(), r.net.Ledger(), r.leaves[0].Brain().Stats()
		if s.Control != c.want || l.Dropped[network.Unwanted] != 1-c.want || own.Known[c.op] != c.known || l.Check() != nil {
			t.Errorf("%+v: %+v, dropped %v, known %v", c, s, l.Dropped, own.Known)
		}
		if c.op == overlay.OpHello {
			continue // its way was not a data packet's
		}
		if m, _, _ := r.leaves[0].ToLeaf().Entry(1, 1, r.net.Engine.Now().Mono()); m != 6 {
			t.Errorf("%+v: feedback in a message: metric %d, want 6", c, m)
		}
	}
}

// A message goes back by the uplink that its cause came by, whatever the hash says,
// so that answers about a path do not depend on another one; if that no longer leads
// to the leaf, by one that does.
func TestMessagesGoBackByTheUplinkOfTheirCause(t *testing.T) {
	other := DefaultConfig()
	other.Scheme = "conweave"
	r := newRig(t, 4, DefaultConfig(), other)
	r.leaves[0].Brain().SetHello(reorder.Never)
	ask := func(hash uint32, uplink int) overlay.Fabric {
		p := r.packet(hash, 1054)
		p.SrcLeaf, p.DstLeaf, p.Src, p.Dst, p.Overhead, p.Len = 1, 0, 1, 0, 54, 900
		p.Fabric = overlay.Fabric{
			Capable: true, Opcode: overlay.OpRTTRequest, Scheme: reorder.SchemeID, Shim: true, TxTstamp: 7,
			LBTag: 3, Path: overlay.MakePathID(3, 1),
		}
		r.leaves[0].Receive(r.net.Engine.Now(), p, r.leaves[0].uplinks[uplink].port)
		r.settle()
		for u, a := range r.taps {
			for _, q := range a.got {
				if q.Hash == hash {
					f := q.Fabric
					if f.Opcode != overlay.OpRTTReply || f.Arg != 7 || int(f.LBTag) != u || q.Src != 0 || q.Dst != 1 || q.Size != 100+54 {
						t.Errorf("answer %+v, %d bytes by uplink %d", q, q.Size, u)
					}
					return f
				}
			}
		}
		t.Fatalf("no answer to %#x by uplink %d", hash, uplink)
		return overlay.Fabric{}
	}
	for i := range uint32(64) {
		if f := ask(i*0x9e3779b9+1, int(i%4)); uint32(f.LBTag) != i%4 {
			t.Errorf("the answer to what came by uplink %d left by %d", i%4, f.LBTag)
		}
	}
	r.leaves[0].SetPaths(1, []uint8{0, 1})
	var by [4]int
	for i := range uint32(64) {
		by[ask(i*0x9e3779b9+2, 2).LBTag]++
	}
	if by[0] == 0 || by[1] == 0 || by[2]+by[3] != 0 {
		t.Errorf("answers left by uplinks %v, which lead to the leaf only from 0 and 1", by)
	}
	own := r.leaves[0].Brain().Stats()
	if s := own.Sent[overlay.OpRTTReply]; s.Frames != 128 || s.Bytes != 128*154 || r.leaves[0].Stats().Messages != 128 {
		t.Errorf("%+v sent, the leaf says %d", s, r.leaves[0].Stats().Messages)
	}
	r.leaves[0].SetPaths(1, nil) // then nothing can be said
	p := r.packet(3, 1054)
	p.SrcLeaf, p.DstLeaf, p.Src, p.Dst, p.Overhead = 1, 0, 1, 0, 54
	p.Fabric = overlay.Fabric{Capable: true, Opcode: overlay.OpRTTRequest, Scheme: reorder.SchemeID, Shim: true}
	r.leaves[0].Receive(r.net.Engine.Now(), p, r.leaves[0].uplinks[0].port)
	if n := r.leaves[0].Brain().Unsent().NoPath; n != 1 {
		t.Errorf("%d answers without a path, want 1", n)
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
		r.settle()
		r.leaves[0].LinkChanged(r.net.Engine.Now(), r.leaves[0].uplinks[1].port, false)
		before := len(r.taps[1].got)
		if before == 0 {
			t.Fatalf("%s: nothing went by uplink 1", scheme)
		}
		for f := range uint32(50) {
			r.enter(r.packet(f*0x9e3779b9, 100))
		}
		r.settle()
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
		"scheme": func(c *Config) { c.Scheme = "best" },
		"keys":   func(c *Config) { c.Scheme, c.Options.Keys = "conga", &balance.FlowletKeys{Flowlets: 3} },
		"section": func(c *Config) {
			c.Scheme, c.Sections = "conweave", map[string]balance.Params{"conweave": &balance.ConWeaveParams{}}
		},
		"tau": func(c *Config) { c.Congestion.Tau = -1 },
		"Q":   func(c *Config) { c.Congestion = congestion.Datacenter(); c.Congestion.Q = 4 },
	} {
		c := DefaultConfig()
		change(&c)
		l, err := NewLeaf(network.New(engine.New()), "L0", 0, 1, &Directory{}, c)
		if err == nil {
			err = Join([]*Leaf{l})
		}
		if err == nil || !strings.Contains(err.Error(), "leaf L0") {
			t.Errorf("%s: error %v, which must name the leaf", name, err)
		}
	}
	c := DefaultConfig()
	c.Spine = "best"
	if _, err := NewSpine(network.New(engine.New()), "S0", 0, 2, c); err == nil {
		t.Error("spine's scheme: no error")
	}
}
