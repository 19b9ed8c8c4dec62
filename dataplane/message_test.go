package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
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
	fixChecksum(options[14:])
	fragment := udp4(hostA, hostB, 0, 7, 300)
	fragment[14+6] = 0x20
	fixChecksum(fragment[14:])
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
			cfg.Seed = 99
			tables := leafTables()
			tables.Ports[acc0].Transparent = true
			tables.Bindings = slices.DeleteFunc(tables.Bindings, func(b Binding) bool { return b.Port == acc0 && b.VLAN != 0 })
			r := newRig(t, cfg, tables)
			r.prove(0)
			r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
			request := &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest, Epoch: 2, LBTag: 5,
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
			if d.Dst != overlay.AddrOf(vtep2) || d.Src != overlay.AddrOf(own()) || d.VNI != 100 || d.TOS != overlay.DSCPControl {
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
	of := func(scheme overlay.SchemeID, op overlay.Opcode) *overlay.Fabric {
		return &overlay.Fabric{Capable: true, Scheme: scheme, Shim: op != overlay.OpNotify, Opcode: op, Epoch: 1, Path: 0xf3}
	}
	control := func(op overlay.Opcode) *overlay.Fabric { return of(reorder.SchemeID, op) }
	for _, tt := range []struct {
		name   string
		scheme string
		b      []byte
		reason drop.Reason
	}{
		{"from an unknown VTEP", "conweave", wrap(stranger, own(), 100, headers, control(overlay.OpClear)), drop.VTEPUnknown},
		{"for another VNI", "conweave", wrap(vtep2, own(), 999, headers, control(overlay.OpClear)), drop.VNIUnknown},
		{"without headers", "conweave", wrap(vtep2, own(), 100, headers[:13], control(overlay.OpClear)), drop.BadInner},
		{"without a shim's room", "conweave", wrap(vtep2, own(), 100, nil, control(overlay.OpClear)), drop.BadInner},
		{"of no scheme", "conweave", wrap(vtep2, own(), 100, headers, of(0, overlay.OpClear)), drop.BadOpcode},
		{"of a scheme that there is not", "conweave", wrap(vtep2, own(), 100, headers, of(overlay.NumSchemes-1, overlay.OpClear)), drop.BadOpcode},
		{"EXTENSION of no scheme", "conweave", wrap(vtep2, own(), 100, headers, of(0, overlay.OpExtension)), drop.BadOpcode},
		{"to a scheme that does not ask", "conga", wrap(vtep2, own(), 100, headers, control(overlay.OpRTTReply)), drop.Control},
		{"about no flow, to no scheme that asks", "conga", wrap(vtep2, own(), 0, headers, control(overlay.OpRTTReply)), drop.Control},
		{"CLEAR of an unknown flow", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpClear)), 0},
		{"REPLY of an unknown flow", "conweave", wrap(vtep2, own(), 100, headers[:14], control(overlay.OpRTTReply)), 0},
		{"NOTIFY of an unknown path", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpNotify)), 0},
		{"EXPLORE, which ConWeave does not have", "conweave", wrap(vtep2, own(), 100, headers, control(overlay.OpExplore)), 0},
		{"CLEAR about no flow", "conweave", wrap(vtep2, own(), 0, headers, control(overlay.OpClear)), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := leafConfig()
			cfg.Scheme = tt.scheme
			r := newRig(t, cfg, leafTables())
			r.send(acc0, udp4(bcast, hostB, 0, 1, 10)) // the host that the packet looks meant for
			r.prove(0)
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
			if tt.reason == 0 {
				received, _ := r.messages()
				known := r.w.leaf.brain.Stats().Known
				if r.w.consumed != 1 || received != 1 || known != [overlay.NumOpcodes]uint64{} {
					t.Errorf("consumed %d, received %d, known %v", r.w.consumed, received, known)
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

// Messages come to any worker; the flow is known to one. All of them handle what was
// said, with the time at which it came.
func TestMessagesReachTheWorkerThatKnowsTheFlow(t *testing.T) {
	cfg := leafConfig()
	useConWeave(&cfg, labConWeave())
	a, b := pairOf(t, cfg)
	for _, r := range []*rig{a, b} {
		r.prove(0)
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	}
	b.send(acc0, udp4(hostB, hostA, 0, 8, 10)) // a flow of its own
	out := a.send(acc0, udp4(hostB, hostA, 0, 7, 10))
	sent, inner := unwrap(t, append(out[up0], out[up1]...)[0])
	if sent.Fabric.Opcode != overlay.OpRTTRequest || !sent.Fabric.Shim || sent.Fabric.Scheme != reorder.SchemeID {
		t.Fatalf("the first packet has %+v", sent.Fabric)
	}
	reply := sent.Fabric
	reply.Opcode, reply.Arg = overlay.OpRTTReply, sent.Fabric.TxTstamp
	b.now = a.now.Add(300 * time.Microsecond)
	b.send(up0, wrap(vtep2, own(), 100, inner, &reply))
	s := source(b.w.leaf.classes[0])
	if received, relayed := b.messages(); s.Replies != 0 || received != 1 || relayed != 0 {
		t.Fatalf("the other worker: %d received, %d passed on to it, %+v", received, relayed, s)
	}
	a.now = a.now.Add(5 * time.Millisecond) // it slept: the reply was in time all the same
	a.settle()
	s = source(a.w.leaf.classes[0])
	if received, relayed := a.messages(); s.Replies != 1 || s.LateReplies != 0 || relayed != 1 || received != 0 {
		t.Errorf("the worker that knows the flow: %d replies, %d late, %d received, %d passed on to it", s.Replies, s.LateReplies, received, relayed)
	}
	// A full ring loses, and says so.
	for range ringSize + 5 {
		b.send(up0, wrap(vtep2, own(), 100, inner, &reply))
	}
	if lost := b.w.snapshot().MessagesLost; lost != 5 {
		t.Errorf("%d messages lost, want 5", lost)
	}
	a.settle()
	if _, relayed := a.messages(); relayed != 1+ringSize {
		t.Errorf("%d messages passed on", relayed)
	}
}

// A message that some worker knows about is known, whichever worker it came to, and
// known once. About those that no worker knows there is a difference between what was
// received and what was known, as soon as all workers have looked.
func TestMessagesAboutNothing(t *testing.T) {
	const n = 3
	flow, other := udp4(hostB, hostA, 0, 7, 10), udp4(hostB, hostA, 0, 9, 10)
	for _, tt := range []struct {
		name   string
		op     overlay.Opcode
		inner  []byte
		path   overlay.PathID
		behind bool // a worker has not looked for long: what it would know is lost
		known  uint64
	}{
		{"REPLY of a flow", overlay.OpRTTReply, flow, 0, false, n},
		{"REPLY of no flow", overlay.OpRTTReply, other, 0, false, 0},
		{"CLEAR of a flow", overlay.OpClear, flow, 0, false, n},
		{"CLEAR of no flow", overlay.OpClear, other, 0, false, 0},
		{"NOTIFY", overlay.OpNotify, flow, 0x10, false, n},
		{"NOTIFY of no path", overlay.OpNotify, flow, 0xf0, false, 0},
		{"CLEAR of no flow, lost on its way", overlay.OpClear, other, 0, true, 0},
	} {
		for came := range 3 {
			t.Run(fmt.Sprint(tt.name, " to worker ", came), func(t *testing.T) {
				cfg := leafConfig()
				useConWeave(&cfg, labConWeave())
				rigs := newRigs(t, cfg, leafTables(), 3)
				for _, r := range rigs {
					r.prove(0)
					r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
				}
				rigs[0].send(acc0, udp4(hostB, hostA, 0, 8, 10)) // a flow of its own
				rigs[1].send(acc0, flow)                         // the third has sent nothing
				if tt.behind {
					for range ringSize {
						rigs[came].w.leaf.messages.send(came, &message{class: 99})
					}
					rigs[(came+1)%3].settle()
				}
				f := overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Opcode: tt.op, Epoch: 1, Path: tt.path, Shim: tt.op != overlay.OpNotify}
				for range n {
					rigs[came].send(up0, wrap(vtep2, own(), 100, tt.inner, &f))
				}
				rigs[(came+1)%3].settle()
				rigs[(came+2)%3].settle()
				var received, known, relayed uint64
				for _, r := range rigs {
					s := r.w.snapshot().Leaf
					received, known, relayed = received+s.Received[tt.op], known+s.Known[tt.op], relayed+s.Relayed
				}
				passed := uint64(2 * n)
				if tt.behind {
					passed = n
				}
				if received != n || known != tt.known || relayed != passed {
					t.Errorf("%d received, %d known, %d passed on; want %d, %d and %d", received, known, relayed, n, tt.known, passed)
				}
				if lost := rigs[came].w.snapshot().MessagesLost; lost != 2*n-passed {
					t.Errorf("%d messages lost", lost)
				}
			})
		}
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
		r.prove(0)
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
		{1553, nil, "conweave", false}, {1553, nil, "conga", true}, {1554, nil, "conweave-informed", true},
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

// What a reload asks of the uplinks is more or less than under the schemes in force, not
// than at the start: by now their MTU may be another one.
func TestReloadChecksTheMTUOfNow(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	useConWeave(&cfg, labConWeave())
	tables.Ports[up0].MTU = 1554
	r := newRig(t, cfg, tables)
	n := node(r)
	n.tables = tables
	for i, step := range []struct {
		scheme string
		mtu    int // of an uplink, when the file is read
		ok     bool
	}{
		{"ecmp", 1554, true}, {"conweave", 1550, false}, {"conga", 1550, true}, {"conweave-informed", 1553, false},
		{"conweave", 1554, true}, {"conweave-informed", 1550, true}, // no worse than it is
	} {
		now := *tables
		now.Ports = slices.Clone(tables.Ports)
		now.Ports[up0].MTU = step.mtu
		n.tables = &now
		if err := n.SetSchemes(step.scheme, balance.Options{}, nil); (err == nil) != step.ok {
			t.Errorf("step %d, to %s over MTU %d: %v", i, step.scheme, step.mtu, err)
		}
	}
}

// Frames that wait for a neighbour leave in the order they came in, and before
// what comes after them: ConWeave counts on each path's being one FIFO.
func TestHoldingForNeighboursKeepsOrder(t *testing.T) {
	cfg := leafConfig()
	useConWeave(&cfg, labConWeave())
	tables := leafTables()
	tables.Hops[0].Resolved, tables.Hops[1].Resolved = false, false
	r := newRig(t, cfg, tables)
	r.prove(0)
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
		f.Add(uint8(reorder.SchemeID<<4)|uint8(op), uint8(1), uint8(0x13), uint16(7), uint8(0xff), headers)
		f.Add(uint8(op), uint8(0), uint8(0), uint16(0), uint8(0), headers[:14])
	}
	f.Add(uint8(reorder.SchemeID<<4)|uint8(overlay.OpClear), uint8(1), uint8(1), uint16(1), uint8(4), headers[:30])
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
			Capable: true, Scheme: overlay.SchemeID(op >> 4), Opcode: overlay.Opcode(op & 7), Epoch: overlay.Epoch(epoch & 3), Path: overlay.PathID(path),
			Rerouted: flags&1 != 0, Tail: flags&2 != 0, Shim: flags&4 != 0, FBValid: flags&8 != 0, FBTag: flags >> 4,
			TxTstamp: overlay.Tstamp(echo), Arg: overlay.Tstamp(echo) ^ overlay.Tstamp(path),
		}
		waiting := 2 * r.held() // data, whose time may come now; for all members there are two
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
	useConWeave(&cfg, labConWeave())
	r := newRig(t, cfg, leafTables())
	for i := range r.links {
		r.links[i].keep = false
	}
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	var frames [][]byte
	for epoch := range overlay.Epoch(4) { // a request, a rerouted packet that waits, the TAIL; all over and over
		for _, f := range []overlay.Fabric{
			{Opcode: overlay.OpRTTRequest}, {Rerouted: true, Arg: 5, Path: 0x10}, {Tail: true, Arg: 5},
		} {
			f.Capable, f.Scheme, f.Shim, f.Epoch = true, reorder.SchemeID, true, epoch
			frames = append(frames, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 7, 10), &f))
		}
	}
	host := udp4(hostB, hostA, 0, 7, 10)
	turn := func() {
		for i, b := range frames {
			r.now = r.now.Add(time.Millisecond)
			r.prove(0)
			overlayStamp(b, overlay.TstampOf(r.now), overlay.TstampOf(r.now)-overlay.Tstamp(i%3))
			r.links[up0].put(b)
			r.links[acc0].put(host)
			for r.w.round(r.now) > 0 {
			}
		}
	}
	f := overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTReply, Epoch: 1}
	frames = append(frames, wrap(vtep2, own(), 100, host, &f)) // and a message of the other leaf's
	for range 10 {
		turn()
	}
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if received, _ := r.messages(); received == 0 {
		t.Error("no message came")
	}
	if d, s := r.destination().Counters(), source(r.w.leaf.classes[0]); d.Held == 0 || d.Replies == 0 || d.Clears == 0 || s.Reroutes == 0 {
		t.Errorf("held %d, replied %d, cleared %d, rerouted %d", d.Held, d.Replies, d.Clears, s.Reroutes)
	}
}

// overlayStamp writes a shim's times.
func overlayStamp(b []byte, tx, tail overlay.Tstamp) {
	shim := b[vxlanAt4+overlay.VXLANLen:]
	shim[0], shim[1], shim[2], shim[3] = byte(tx>>8), byte(tx), byte(tail>>8), byte(tail)
}

// An answer goes ahead of the data that waits for the uplink.
func TestAnswersGoFirst(t *testing.T) {
	cfg := leafConfig()
	cfg.Ports[up1].Egress.Rate, cfg.Ports[up1].Egress.Burst = 1e6, 2000 // a frame, and then 12 ms for each
	cfg.Options.Keys, cfg.Scheme = weights(0, 1), "static"
	r := newRig(t, cfg, leafTables())
	r.prove(0)
	r.send(up1, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	for range 5 {
		r.send(acc0, udp4(hostB, hostA, 0, 7, 1400))
	}
	if r.w.ports[up1].egress.data.len() == 0 {
		t.Fatal("nothing waits for the uplink")
	}
	out := r.send(up1, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 7, 10), &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest}))
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
	r.w.pool.TakeAll(r.w.ports[acc0].owner, []xsk.Desc{a})
	f := fabricFrame{frame: frame{off: uint32(a.Addr), len: uint16(a.Len), in: acc0, flags: overlay.FlagIPv4, l3: 14}}
	p := balance.Packet{Marks: balance.Marks{Shim: true, Opcode: overlay.OpRTTRequest}}
	if reason := r.w.leaf.send(r.w.leaf.classes[0], &f, &p, 0, r.now); reason != drop.None {
		t.Fatal(reason)
	}
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
	p := labConWeave()
	p.Destination.Packets = 1000
	cfg.Sections = map[string]balance.Params{"conweave": p}
	hold := func() (conweave, all int) {
		t.Helper()
		if err := cfg.check(); err != nil {
			t.Fatal(err)
		}
		sections := cfg.sections()
		return sections["conweave"].(balance.Holder).Holds(), holdable(sections)
	}
	held, all := hold()
	if got, want := cfg.UMEMFrames(), 5*(2*512+queueShare)+dataQueueFrames+all; got != want || held != 1000 {
		t.Errorf("%d frames, want %d; %d of them for ConWeave", got, want, held)
	}
	cfg.Frames = 2000
	if held, all := hold(); cfg.UMEMFrames() != 2000 || held > 500 || all > 500 || held == 0 || p.Destination.Packets != 1000 {
		t.Errorf("%d frames, %d of them to hold, %d for ConWeave", cfg.UMEMFrames(), all, held)
	}
	spine := Config{Role: Spine, Ports: make([]PortConfig, 2), RingSize: 512, Sections: cfg.Sections}
	if got := spine.UMEMFrames(); got != 2*(2*512+queueShare)+dataQueueFrames {
		t.Errorf("a spine has %d frames", got)
	}
}
