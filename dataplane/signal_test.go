package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// answers returns the control packets among what a leaf sent by an uplink.
func answers(t *testing.T, sent [][]byte) (all []overlay.Decapped, inner [][]byte) {
	t.Helper()
	for _, b := range sent {
		d, in := unwrap(t, b)
		if d.Fabric.Opcode.Control() {
			all, inner = append(all, d), append(inner, in)
		}
	}
	return all, inner
}

// An answer has the headers by which the flow is hashed, whatever it is, no
// payload, and the outer header of a control packet.
func TestAnswersIdentifyTheFlow(t *testing.T) {
	roce := udp4(hostA, hostB, 0, 7, 1000)
	roce[36], roce[37] = 4791>>8, 4791&0xff
	roce[42+4+3] = 0x77 // destination queue pair
	ipv6 := append(append(append([]byte(nil), hostA[:]...), hostB[:]...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 6, 64)
	ipv6 = append(ipv6, make([]byte, 32+40)...)
	ipv6[14+8], ipv6[14+24], ipv6[14+40], ipv6[14+43] = 0xfd, 0xfe, 1, 2
	options := udp4(hostA, hostB, 0, 7, 300)
	options = slices.Concat(options[:34], []byte{1, 1, 1, 1, 1, 1, 1, 1}, options[34:])
	options[14] = 0x47
	options[14+3] += 8
	overlay.IPv4(options[14:]).UpdateChecksum()
	fragment := udp4(hostA, hostB, 0, 7, 300)
	fragment[14+6] = 0x20
	overlay.IPv4(fragment[14:]).UpdateChecksum()
	arp := append(append(append([]byte(nil), hostA[:]...), hostB[:]...), 8, 6)
	arp = append(arp, make([]byte, 100)...)
	tagged := udp4(hostA, hostB, 300, 7, 300) // for a transparent port
	for _, tt := range []struct {
		name  string
		frame []byte
		inner int
	}{
		{"UDP", udp4(hostA, hostB, 0, 7, 300), 14 + 20 + 20},
		{"RoCEv2", roce, 14 + 20 + 8 + 12},
		{"short UDP", udp4(hostA, hostB, 0, 7, 3), 14 + 20 + 8 + 3},
		{"IPv6 TCP", ipv6, 14 + 40 + 20},
		{"IPv4 options", options, 14 + 28 + 20},
		{"fragment", fragment, 14 + 20 + 20},
		{"ARP", arp, 14 + 8},
		{"VLAN tag", tagged, 14 + 4 + 20 + 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := leafConfig()
			cfg.Ports[acc0].VLANs, cfg.Ports[acc0].Transparent, cfg.Seed = nil, true, 99
			r := newRig(t, cfg, leafTables())
			r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
			request := &overlay.Fabric{Capable: true, Shim: true, Opcode: overlay.OpRTTRequest, Epoch: 2, LBTag: 5,
				Path: overlay.MakePathID(5, 3), TxTstamp: 777}
			out := r.send(up1, wrap(vtep2, own(), 100, tt.frame, request))
			if len(out[acc0]) != 1 || !bytes.Equal(out[acc0][0], tt.frame) {
				t.Fatalf("the host got %d frames", len(out[acc0]))
			}
			got, inner := answers(t, out[up1])
			if len(got) != 1 || len(out[up0]) != 0 {
				t.Fatalf("%d answers by the uplink that the request came by, %d packets by the other", len(got), len(out[up0]))
			}
			d, f := got[0], got[0].Fabric
			if f.Opcode != overlay.OpRTTReply || f.Epoch != 2 || f.Path != request.Path || !f.Shim || f.Arg != 777 || f.LBTag != 1 {
				t.Errorf("answered %+v", f)
			}
			if d.Dst != addr32(vtep2) || d.Src != addr32(own()) || d.VNI != 100 || d.TOS != overlay.DSCPControl {
				t.Errorf("sent from %x to %x in VNI %d with TOS %#x", d.Src, d.Dst, d.VNI, d.TOS)
			}
			if len(inner[0]) != tt.inner || !bytes.HasPrefix(tt.frame, inner[0]) {
				t.Errorf("%d bytes of the frame, want %d", len(inner[0]), tt.inner)
			}
			for _, seed := range []uint32{99, 5} { // the source's own is another
				var whole, cut overlay.Meta
				overlay.Dissect(tt.frame, seed, &whole)
				overlay.Dissect(inner[0], seed, &cut)
				if whole.Hash != cut.Hash {
					t.Error("the answer is hashed otherwise than the flow")
				}
			}
		})
	}
}

// What comes as a control packet and is none, or none that anybody cares for, is
// counted under a name, and never gets to a host.
func TestControlPacketsNobodyAskedFor(t *testing.T) {
	headers := udp4(hostB, hostA, 0, 1, 10)
	stranger := netip.MustParseAddr("10.0.0.77")
	control := func(op overlay.Opcode) *overlay.Fabric {
		return &overlay.Fabric{Capable: true, Shim: op != overlay.OpNotify, Opcode: op, Epoch: 1, Path: 0xf3}
	}
	type count = func(*balance.ConWeaveStats) uint64
	for _, tt := range []struct {
		name   string
		scheme string
		b      []byte
		reason drop.Reason
		count  count
	}{
		{"from a stranger", "conweave", wrap(stranger, own(), 100, headers, control(overlay.OpClear)), drop.VTEPUnknown, nil},
		{"for another VNI", "conweave", wrap(vtep2, own(), 999, headers, control(overlay.OpClear)), drop.VNIUnknown, nil},
		{"without headers", "conweave", wrap(vtep2, own(), 100, headers[:13], control(overlay.OpClear)), drop.BadInner, nil},
		{"without a shim's room", "conweave", wrap(vtep2, own(), 100, nil, control(overlay.OpClear)), drop.BadInner, nil},
		{"EXPLORE", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpExplore)), drop.BadOpcode, nil},
		{"EXTENSION", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpExtension)), drop.BadOpcode, nil},
		{"to a scheme that does not ask", "conga", wrap(vtep2, own(), 100, headers, control(overlay.OpRTTReply)), drop.Control, nil},
		{"CLEAR of an unknown flow", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpClear)), 0,
			func(s *balance.ConWeaveStats) uint64 { return s.UnknownFlow }},
		{"REPLY of an unknown flow", "conweave", wrap(vtep2, own(), 100, headers[:14], control(overlay.OpRTTReply)), 0,
			func(s *balance.ConWeaveStats) uint64 { return s.UnknownFlow }},
		{"NOTIFY of an unknown path", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpNotify)), 0,
			func(s *balance.ConWeaveStats) uint64 { return s.UnknownPath }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := leafConfig()
			cfg.Scheme = tt.scheme
			r := newRig(t, cfg, leafTables())
			r.send(acc0, udp4(bcast, hostB, 0, 1, 10)) // the host that the packet looks meant for
			r.send(up0, wrap(vtep2, own(), 100, udp4(hostB, hostA, 0, 1, 10), &overlay.Fabric{Capable: true}))
			r.send(acc0, udp4(hostA, hostB, 0, 5, 10)) // ConWeave knows the leaf
			before := r.drops()
			out := r.send(up0, tt.b)
			if slices.ContainsFunc(out, func(sent [][]byte) bool { return len(sent) > 0 }) {
				t.Errorf("something was sent: %d, %d, %d, %d, %d frames", len(out[0]), len(out[1]), len(out[2]), len(out[3]), len(out[4]))
			}
			drops := r.drops()
			if got := drops[tt.reason] - before[tt.reason]; tt.reason != 0 && got != 1 {
				t.Errorf("drops %v, want one of %v more than %v", drops, tt.reason, before)
			}
			if tt.count != nil {
				s := r.w.classes[0].policy.Stats().ConWeave
				if tt.count(&s) != 1 || r.w.stats.Consumed != 1 || r.w.stats.SignalsHeard != 1 {
					t.Errorf("consumed %d, heard %d, counted %+v", r.w.stats.Consumed, r.w.stats.SignalsHeard, s)
				}
			}
		})
	}
}

// The same packet again, and one that is cut in the middle of its headers.
func TestReplayedControlPacketsChangeNothing(t *testing.T) {
	l := fastLab(t)
	var replies []flight
	l.lose = func(*rig, *overlay.Fabric) bool { return false }
	for seq := range uint32(20) {
		l.step(numbered(7, seq))
		for _, p := range l.air {
			if d, _ := unwrap(t, p.b); d.Fabric.Opcode == overlay.OpRTTReply && len(replies) < 3 {
				replies = append(replies, p)
			}
		}
	}
	l.drainAir()
	before := l.source()
	for _, p := range replies {
		l.a.send(p.port, p.b)
		l.a.send(p.port, p.b)
	}
	after := l.source()
	if after.StaleReplies-before.StaleReplies != uint64(2*len(replies)) || len(replies) == 0 {
		t.Errorf("%d replies again: %d stale before, %d after", 2*len(replies), before.StaleReplies, after.StaleReplies)
	}
	before.StaleReplies = after.StaleReplies
	if before != after {
		t.Error("a copy of a reply changed more than its count")
	}
}

// Control packets come to any worker; the flow is known to one. All of them learn
// what was said, at the time it was.
func TestControlPacketsReachTheWorkerThatKnowsTheFlow(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
	a, b := pairOf(t, cfg)
	a.w.shared = b.w.shared
	for _, r := range []*rig{a, b} {
		r.w.shown.Capable = r.w.shared.capable
		r.w.exchange = b.w.exchange
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	}
	b.send(acc0, udp4(hostB, hostA, 0, 8, 10)) // a flow of its own
	out := a.send(acc0, udp4(hostB, hostA, 0, 7, 10))
	sent, inner := unwrap(t, append(out[up0], out[up1]...)[0])
	if sent.Fabric.Opcode != overlay.OpRTTRequest || !sent.Fabric.Shim {
		t.Fatalf("the first packet has %+v", sent.Fabric)
	}
	reply := sent.Fabric
	reply.Opcode, reply.Arg = overlay.OpRTTReply, sent.Fabric.TxTstamp
	b.now = a.now.Add(300 * time.Microsecond)
	b.send(up0, wrap(vtep2, own(), 100, inner, &reply))
	if s := b.w.classes[0].policy.Stats().ConWeave; s.Replies != 0 || b.w.stats.SignalsHeard != 1 {
		t.Fatalf("the other worker: %+v", s)
	}
	a.now = a.now.Add(5 * time.Millisecond) // it slept: the reply was in time all the same
	a.settle()
	s := a.w.classes[0].policy.Stats().ConWeave
	if s.Replies != 1 || s.LateReplies != 0 || a.w.stats.SignalsTold != 1 || a.w.stats.SignalsHeard != 0 {
		t.Errorf("the worker that knows the flow: %d replies, %d late, %d signals told", s.Replies, s.LateReplies, a.w.stats.SignalsTold)
	}
	// A full ring loses, and says so.
	for range meshSize + 5 {
		b.send(up0, wrap(vtep2, own(), 100, inner, &reply))
	}
	if lost := b.w.snapshot().SignalsLost; lost != 5 {
		t.Errorf("%d signals lost, want 5", lost)
	}
	a.settle()
	if a.w.stats.SignalsTold != 1+meshSize {
		t.Errorf("%d signals told", a.w.stats.SignalsTold)
	}
}

// A control packet that some worker makes sense of was not ignored, whichever it
// came to; one that none does was ignored once, for the reason of whoever got
// furthest with it.
func TestIgnoredControlPacketsAreCountedOnce(t *testing.T) {
	type ignored struct{ leaf, flow, path uint64 }
	const n = 3
	flow := udp4(hostB, hostA, 0, 7, 10)
	stranger := udp4(hostB, hostA, 0, 9, 10)
	for _, tt := range []struct {
		name   string
		op     overlay.Opcode
		inner  []byte
		path   overlay.PathID
		behind bool // a worker has not heard of anything for long
		want   ignored
	}{
		{"REPLY of a flow", overlay.OpRTTReply, flow, 0, false, ignored{}},
		{"REPLY of no flow", overlay.OpRTTReply, stranger, 0, false, ignored{flow: n}},
		{"CLEAR of no flow", overlay.OpClear, stranger, 0, false, ignored{flow: n}},
		{"NOTIFY", overlay.OpNotify, flow, 0x10, false, ignored{}},
		{"NOTIFY of no path", overlay.OpNotify, flow, 0xf0, false, ignored{path: n}},
		{"CLEAR that not all are told of", overlay.OpClear, stranger, 0, true, ignored{}},
	} {
		for came := range 3 {
			t.Run(fmt.Sprint(tt.name, " to worker ", came), func(t *testing.T) {
				cfg := leafConfig()
				cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
				rigs := []*rig{newRig(t, cfg, leafTables()), newRig(t, cfg, leafTables()), newRig(t, cfg, leafTables())}
				signals := newMesh[signal](3)
				for i, r := range rigs {
					r.w.id, r.w.signals, r.w.gossip = i, signals, newMesh[learned](3)
					r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
				}
				rigs[0].send(acc0, udp4(hostB, hostA, 0, 8, 10)) // a flow of its own
				rigs[1].send(acc0, flow)                         // the third has sent nothing
				counted := func() (sum ignored) {
					for _, r := range rigs {
						s := r.w.classes[0].policy.Stats().ConWeave
						sum.leaf, sum.flow, sum.path = sum.leaf+s.UnknownLeaf, sum.flow+s.UnknownFlow, sum.path+s.UnknownPath
					}
					return sum
				}
				if tt.behind {
					for range meshSize {
						signals.tell(came, &signal{class: 99, poll: noPoll})
					}
					rigs[(came+1)%3].settle()
				}
				f := overlay.Fabric{Capable: true, Opcode: tt.op, Epoch: 1, Path: tt.path, Shim: tt.op != overlay.OpNotify}
				for range n {
					rigs[came].send(up0, wrap(vtep2, own(), 100, tt.inner, &f))
				}
				rigs[(came+1)%3].settle()
				if got := counted(); got != (ignored{}) {
					t.Errorf("counted %+v before a worker was asked", got)
				}
				rigs[(came+2)%3].settle()
				if got := counted(); got != tt.want {
					t.Errorf("counted %+v, want %+v", got, tt.want)
				}
			})
		}
	}
}

// What was lost on its way to a worker that was behind leaves nothing behind: what
// comes later is counted.
func TestIgnoredControlPacketsAreCountedAfterLosses(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
	a, b := pairOf(t, cfg)
	for range meshSize {
		a.w.signals.tell(0, &signal{class: 99, poll: noPoll})
	}
	s := signal{fields: overlay.Fabric{Capable: true, Opcode: overlay.OpClear}}
	for range 2 * meshSize {
		a.w.tellSignal(&s, balance.UnknownFlow)
	}
	b.settle()
	if got := b.w.classes[0].policy.Stats().ConWeave.UnknownFlow; got != 0 {
		t.Errorf("%d counted that nobody can know of", got)
	}
	a.w.tellSignal(&s, balance.UnknownFlow)
	b.settle()
	if got := b.w.classes[0].policy.Stats().ConWeave.UnknownFlow; got != 1 || a.w.snapshot().SignalsLost != 2*meshSize {
		t.Errorf("%d counted, want 1; %d lost", got, a.w.snapshot().SignalsLost)
	}
}

// With the shim a header is 4 bytes longer. What then does not fit is dropped by
// name; what fits leaves whole.
func TestShimAndTheMTU(t *testing.T) {
	for _, tt := range []struct {
		scheme string
		mtu    int
		fits   bool
	}{{"ecmp", 1550, true}, {"conweave", 1550, false}, {"conweave", 1553, false}, {"conweave", 1554, true}} {
		cfg, tables := leafConfig(), leafTables()
		cfg.Scheme = tt.scheme
		tables.Ports[up0].MTU, tables.Ports[up1].MTU = tt.mtu, tt.mtu
		r := newRig(t, cfg, tables)
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
		b := udp4(hostB, hostA, 0, 7, 1500-28)
		out := r.send(acc0, b)
		sent := append(out[up0], out[up1]...)
		switch {
		case tt.fits != (len(sent) == 1), tt.fits == (r.drops()[drop.TooBig] == 1):
			t.Errorf("%s, MTU %d: %d sent, drops %v", tt.scheme, tt.mtu, len(sent), r.drops())
		case tt.fits:
			if d, inner := unwrap(t, sent[0]); !bytes.Equal(inner, b) || d.Fabric.Shim != (tt.scheme == "conweave") {
				t.Errorf("%s, MTU %d: sent %+v with %d bytes", tt.scheme, tt.mtu, d.Fabric, len(inner))
			}
		}
	}
}

// A reload must not put a scheme in force whose header does not fit the uplinks.
func TestReloadChecksTheShimAgainstTheMTU(t *testing.T) {
	for _, tt := range []struct {
		mtu     int
		classes []Class
		scheme  string
		ok      bool
	}{
		{1553, nil, "conweave", false}, {1553, nil, "conga", true}, {1554, nil, "conweave-conga", true},
		{1553, []Class{{Protocol: 17, Scheme: "conweave"}}, "ecmp", false},
	} {
		tables := leafTables()
		tables.Ports[up0].MTU = tt.mtu
		r := newRig(t, leafConfig(), tables)
		n := node(r)
		n.tables = tables
		if err := n.SetSchemes(tt.scheme, balance.Options{}, tt.classes); (err == nil) != tt.ok {
			t.Errorf("scheme %s over MTU %d: %v", tt.scheme, tt.mtu, err)
		}
	}
}

func TestSignalsIsTrueOfSignallers(t *testing.T) {
	for _, name := range balance.Names() {
		p, err := balance.New(name, balance.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, is := p.(balance.Signaller); is != balance.Signals(name) { // what a class asks for
			t.Errorf("Signals(%q) is %v", name, balance.Signals(name))
		}
	}
}

// Frames that wait for a neighbour leave in the order they came in, and before
// what comes after them: ConWeave counts on each path's being one FIFO.
func TestHoldingForNeighboursKeepsOrder(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
	tables := leafTables()
	tables.Hops[0].Resolved, tables.Hops[1].Resolved = false, false
	r := newRig(t, cfg, tables)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	for seq := range uint32(20) {
		r.send(acc0, numbered(7, seq))
	}
	if r.w.holds.len() != 20 {
		t.Fatalf("%d frames wait", r.w.holds.len())
	}
	r.links[acc0].put(numbered(7, 20)) // comes in with the answer
	r.publish(leafTables())
	out := r.settle()
	var seqs []byte
	for _, b := range append(out[up0], out[up1]...) {
		_, inner := unwrap(t, b)
		seqs = append(seqs, inner[45])
	}
	if len(seqs) != 21 || !slices.IsSorted(seqs) || len(out[up0]) != 0 && len(out[up1]) != 0 {
		t.Errorf("left %d by one uplink and %d by the other, in order %v", len(out[up0]), len(out[up1]), seqs)
	}
}

// FuzzControl feeds a leaf control packets with any fields and any headers inside:
// nothing may panic, be lost from the account, or reach a host.
func FuzzControl(f *testing.F) {
	headers := udp4(hostB, hostA, 0, 1, 10)
	for op := overlay.OpData; op <= overlay.OpExtension; op++ {
		f.Add(uint8(op), uint8(1), uint8(0x13), uint16(7), uint8(0xff), headers)
		f.Add(uint8(op), uint8(0), uint8(0), uint16(0), uint8(0), headers[:14])
	}
	f.Add(uint8(overlay.OpClear), uint8(1), uint8(1), uint16(1), uint8(4), headers[:30])
	cfg := fuzzConfig(leafConfig())
	cfg.Scheme = "conweave"
	r := newRig(f, cfg, leafTables())
	r.send(acc0, udp4(bcast, hostB, 0, 1, 10))
	f.Fuzz(func(t *testing.T, op, epoch, path uint8, echo uint16, flags uint8, inner []byte) {
		if len(inner) > 1500 {
			return
		}
		r.t = t
		r.now = r.now.Add(time.Duration(echo) * time.Microsecond)
		fields := &overlay.Fabric{
			Capable: true, Opcode: overlay.Opcode(op & 7), Epoch: overlay.Epoch(epoch & 3), Path: overlay.PathID(path),
			Rerouted: flags&1 != 0, Tail: flags&2 != 0, Shim: flags&4 != 0, FBValid: flags&8 != 0, FBTag: flags >> 4,
			TxTstamp: overlay.Tstamp(echo), Arg: overlay.Tstamp(echo) ^ overlay.Tstamp(path),
		}
		waiting := 2 * r.w.order.held // data, whose time may come now; for all members there are two
		out := r.send(up0, wrap(vtep2, own(), 100, inner, fields))
		if fields.Opcode > overlay.OpRTTRequest && len(out[acc0])+len(out[acc1])+len(out[acc2]) > waiting {
			t.Fatalf("%v reached a host", fields.Opcode)
		}
		r.send(acc0, udp4(hostA, hostB, 0, echo, 10)) // and the flow goes on
	})
}

// Both sides, rerouting and holding all the time, allocate nothing.
func TestConWeaveDoesNotAllocate(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
	r := newRig(t, cfg, leafTables())
	for i := range r.links {
		r.links[i].keep = false
	}
	hello := wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 10), &overlay.Fabric{Capable: true})
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	r.send(up0, hello)
	var frames [][]byte
	for epoch := range overlay.Epoch(4) { // a request, a rerouted packet that waits, the TAIL; all over and over
		for _, f := range []overlay.Fabric{
			{Opcode: overlay.OpRTTRequest}, {Rerouted: true, Arg: 5, Path: 0x10}, {Tail: true, Arg: 5},
		} {
			f.Capable, f.Shim, f.Epoch = true, true, epoch
			frames = append(frames, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 7, 10), &f))
		}
	}
	host := udp4(hostB, hostA, 0, 7, 10)
	turn := func() {
		for i, b := range frames {
			r.now = r.now.Add(time.Millisecond)
			overlayStamp(b, overlay.TstampOf(r.now), overlay.TstampOf(r.now)-overlay.Tstamp(i%3))
			r.links[up0].put(b)
			r.links[acc0].put(host)
			for r.w.round(r.now) > 0 {
			}
		}
	}
	for range 10 {
		turn()
	}
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if d, s := r.w.order.side.Stats(), r.w.classes[0].policy.Stats().ConWeave; d.Held == 0 || d.Replies == 0 || d.Clears == 0 || s.Reroutes == 0 {
		t.Errorf("held %d, replied %d, cleared %d, rerouted %d", d.Held, d.Replies, d.Clears, s.Reroutes)
	}
}

// overlayStamp writes a shim's times.
func overlayStamp(b []byte, tx, tail overlay.Tstamp) {
	shim := b[vxlanAt+overlay.VXLANLen:]
	shim[0], shim[1], shim[2], shim[3] = byte(tx>>8), byte(tx), byte(tail>>8), byte(tail)
}

// An answer goes ahead of the data that waits for the uplink.
func TestAnswersGoFirst(t *testing.T) {
	cfg := leafConfig()
	cfg.Ports[up1].Egress.Rate, cfg.Ports[up1].Egress.Burst = 1e6, 2000 // a frame, and then 12 ms for each
	cfg.Options.Weights, cfg.Scheme = [balance.MaxPaths]uint32{1: 1}, "static"
	r := newRig(t, cfg, leafTables())
	r.send(up1, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	for range 5 {
		r.send(acc0, udp4(hostB, hostA, 0, 7, 1400))
	}
	if r.w.ports[up1].egress.data.len() == 0 {
		t.Fatal("nothing waits for the uplink")
	}
	out := r.send(up1, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 7, 10), &overlay.Fabric{Capable: true, Shim: true, Opcode: overlay.OpRTTRequest}))
	if got, _ := answers(t, out[up1]); len(got) != 1 || len(out[up1]) != 1 {
		t.Errorf("%d answers among %d packets, want the answer alone", len(got), len(out[up1]))
	}
}

// A peer may cease to be capable between the choice of a path and the header: then
// there is no shim, and the frame is whole.
func TestMarksForAPeerThatIsNoLongerCapable(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	b := udp4(hostB, hostA, 0, 7, 100)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	r.links[acc0].put(b)
	a := r.links[acc0].rx[0]
	r.links[acc0].rx = nil
	r.w.ports[acc0].stats.Received.Add(a.Len)
	r.w.pool.Take(a.Addr, r.w.ports[acc0].owner)
	f := fabricFrame{frame: frame{off: uint32(a.Addr), len: uint16(a.Len), in: acc0, flags: overlay.FlagIPv4, l3: 14}}
	r.w.send(&f, 0, &balance.Marks{Shim: true, Opcode: overlay.OpRTTRequest}, r.now)
	out := r.settle()
	if len(out[up0]) != 1 {
		t.Fatalf("%d packets left", len(out[up0]))
	}
	if d, inner := unwrap(t, out[up0][0]); d.Fabric != (overlay.Fabric{}) || !bytes.Equal(inner, b) {
		t.Errorf("sent %+v with %d bytes", d.Fabric, len(inner))
	}
}

// What waits to be put in order takes frames of its own, or a quarter of those that
// were asked for.
func TestFramesToHold(t *testing.T) {
	cfg := leafConfig()
	cfg.VTEP, cfg.Workers, cfg.RingSize, cfg.FDBSize = own(), 1, 512, 64
	cfg.Reorder = reorder.Lab()
	cfg.Reorder.Packets = 1000
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.UMEMFrames(), 5*2*512+dataQueueFrames+1000; got != want || cfg.Reorder.Packets != 1000 {
		t.Errorf("%d frames, want %d; %d of them to hold", got, want, cfg.Reorder.Packets)
	}
	cfg.Frames = 2000
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if cfg.UMEMFrames() != 2000 || cfg.Reorder.Packets != 500 {
		t.Errorf("%d frames, %d of them to hold", cfg.UMEMFrames(), cfg.Reorder.Packets)
	}
	spine := Config{Role: Spine, Ports: make([]PortConfig, 2), RingSize: 512, Reorder: reorder.Lab()}
	if got := spine.UMEMFrames(); got != 2*2*512+dataQueueFrames {
		t.Errorf("a spine has %d frames", got)
	}
}
