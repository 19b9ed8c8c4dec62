package dataplane

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// fastLeafRig is a leaf twice: the XDP programs of its ports with their tables, and a
// worker, whose table of addresses the programs read. Both get the same frames.
type fastLeafRig struct {
	*rig
	node   *Node
	fast   *fastPath
	tables *bpf.Fast
	states []fastPort
	progs  map[PortID]*ebpf.Program
	copy   int

	forwarded int
	reasons   map[string]int
	flow      int // the last one of uplinksOf
}

func newFastLeafRig(t testing.TB, cfg Config, tables *Tables) *fastLeafRig {
	t.Helper()
	testenv.NeedRoot(t)
	cfg.FastPath, cfg.FDBSize = FastAuto, 256
	completeConfig(t, &cfg, 1)
	n := &Node{cfg: cfg, shared: newShared(&cfg), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	n.cfg.Room = len(cfg.Ports)
	open, err := bpf.OpenFast(n.fastSize())
	if err != nil {
		t.Fatal(err)
	}
	n.shared.fast = open
	if n.shared.rules, err = newFastRules(&n.cfg, n.cfg.rules(), 0, n.shared.leaf); err != nil {
		t.Fatal(err)
	}
	r := &fastLeafRig{rig: newWorkerRig(t, &n.cfg, 0, n.shared), node: n, tables: open, progs: make(map[PortID]*ebpf.Program), reasons: make(map[string]int)}
	t.Cleanup(func() { r.w.leaf.withdraw(); open.Close() })
	r.publish(tables)
	n.workers = []*worker{r.w}
	n.layout.Store(r.ports)
	for i := range cfg.Ports {
		r.states = append(r.states, fastPort{ifindex: i + 1})
		if err := open.SetDevice(i, 1); err != nil { // the loopback: nothing is sent there
			t.Fatal(err)
		}
		r.progs[PortID(i)] = r.load(t, PortID(i))
	}
	n.fast = newFastPath(n, open)
	r.fast = n.fast
	open.SetDead(uint64(time.Hour))
	open.Beat(uint64(monotonic()))
	r.use()
	return r
}

func (r *fastLeafRig) load(t testing.TB, id PortID) *ebpf.Program {
	t.Helper()
	p, err := bpf.Load(bpf.Config{
		Kind: kinds[r.w.cfg.Ports[id].Kind], VTEP: r.w.cfg.VTEP, VXLANPort: r.w.cfg.VXLANPort, Seed: uint32(r.w.cfg.Seed), Queues: 1, Fast: r.tables, Port: uint16(id),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := p.SetSocket(0, fd); err != nil {
		t.Fatal(err)
	}
	return findProgram(t, p)
}

// use puts the worker's view in force for the programs.
func (r *fastLeafRig) use() {
	r.t.Helper()
	r.node.view.Store(r.w.view)
	if err := r.w.view.fastTables(r.tables, r.copy, r.states, nil); err != nil {
		r.t.Fatal(err)
	}
	terms := r.fast.terms()
	r.fast.fastAccess(r.w.view, r.copy, r.states, &terms)
	r.tables.Use(r.copy)
	r.speak()
	r.copy = 1 - r.copy
}

// speak says what changes with time, as fastPath.pulse does.
func (r *fastLeafRig) speak() {
	r.fast.voice.changes-- // of all peers
	r.fast.speak(r.now)
	r.tables.SetFresh(1 << 62)
}

// pass moves the time of both. The kernel's coarse clock may be some milliseconds behind: so it
// is late in a tick of the table of addresses, which both are in then.
func (r *fastLeafRig) pass(d time.Duration) {
	const tick, late = 1 << 24, 12_000_000
	r.now += mono.Time(d)
	if in := r.now % tick; in < late {
		r.now += late - in
	}
	r.w.now = r.now
	r.tables.SetZero(uint64(monotonic() - int64(r.now)))
}

// drain says that all that went to the worker has left.
func (r *fastLeafRig) drain() {
	for id := range r.progs {
		r.tables.Drain(r.tables.Ring(int(id), 0), 1<<40)
	}
}

// accounts are what a leaf counts about a frame that it delivers.
type accounts struct {
	received, sent       Traffic
	vnis, wrapped, local [8]Traffic
	peers, to            [8]Traffic
	hops                 [16]Traffic
	arrived, congested   uint64
	feedback, bad, drops uint64

	stamped, plain, fed, raised uint64
}

func accountsOf(s *WorkerStats) (a accounts) {
	for i := range s.Ports {
		p := &s.Ports[i]
		a.received.Frames, a.received.Bytes = a.received.Frames+p.Received.Frames, a.received.Bytes+p.Received.Bytes
		a.sent.Frames, a.sent.Bytes = a.sent.Frames+p.Sent.Frames, a.sent.Bytes+p.Sent.Bytes
		a.drops += p.Dropped()
		a.raised += p.CERaised
	}
	for i := range s.VNIs {
		a.vnis[i], a.wrapped[i], a.local[i] = s.VNIs[i].Decapsulated, s.VNIs[i].Encapsulated, s.VNIs[i].Local
	}
	copy(a.peers[:], s.PeerReceived)
	copy(a.to[:], s.PeerSent)
	copy(a.hops[:], s.HopSent)
	a.stamped, a.plain, a.fed = s.Exchange.Stamped, s.Exchange.Plain, s.Exchange.FeedbackSent
	a.arrived, a.congested, a.feedback = s.Exchange.Arrived, s.Exchange.CongestedArrived, s.Exchange.FeedbackReceived
	a.bad = s.Exchange.FeedbackBadTag + s.Exchange.FeedbackBadValue
	return a
}

// since returns what was counted after an earlier account.
func (a accounts) since(b accounts) accounts {
	less := func(x, y Traffic) Traffic { return Traffic{Frames: x.Frames - y.Frames, Bytes: x.Bytes - y.Bytes} }
	a.received, a.sent = less(a.received, b.received), less(a.sent, b.sent)
	for i := range a.vnis {
		a.vnis[i], a.peers[i] = less(a.vnis[i], b.vnis[i]), less(a.peers[i], b.peers[i])
		a.wrapped[i], a.to[i] = less(a.wrapped[i], b.wrapped[i]), less(a.to[i], b.to[i])
		a.local[i] = less(a.local[i], b.local[i])
	}
	for i := range a.hops {
		a.hops[i] = less(a.hops[i], b.hops[i])
	}
	a.stamped, a.plain, a.fed, a.raised = a.stamped-b.stamped, a.plain-b.plain, a.fed-b.fed, a.raised-b.raised
	a.arrived, a.congested, a.feedback, a.bad, a.drops = a.arrived-b.arrived, a.congested-b.congested, a.feedback-b.feedback, a.bad-b.bad, a.drops-b.drops
	return a
}

// both gives a frame to a port's program and to the worker. If the program delivers it,
// the worker must have sent the same bytes by the same port, counted the same, and learned
// nothing. It returns why the program did not; "": it did.
func (r *fastLeafRig) both(in PortID, frame []byte) (why string) {
	r.t.Helper()
	r.pass(0)
	fast := func() accounts { s := r.fast.stats(); return accountsOf(&s) }
	slow := func() accounts {
		l := r.w.leaf
		s := WorkerStats{VNIs: l.stats.VNIs, PeerReceived: l.stats.PeerReceived, PeerSent: l.stats.PeerSent, HopSent: r.w.hopSent, Exchange: l.brain.Exchange()}
		for i := range r.w.ports {
			s.Ports = append(s.Ports, r.w.ports[i].stats)
		}
		return accountsOf(&s)
	}
	beforeFast, beforeSlow, reasons, learned := fast(), slow(), slowsOf(r.tables, in), r.w.leaf.stats.FDBStats
	was := r.fast.stats()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	action, err := r.progs[in].Run(&opts)
	if err != nil {
		r.t.Fatalf("test run of %x: %v", frame, err)
	}
	now := r.fast.stats()
	byXDP := fast().since(beforeFast)
	out := r.byWorker(in, frame)
	byWorker := slow().since(beforeSlow)
	if byXDP.sent.Frames == 0 {
		if byXDP != (accounts{}) {
			r.t.Fatalf("XDP did not deliver, and counted %+v", byXDP)
		}
		why = slowsOf(r.tables, in).since(reasons)
		r.reasons[why]++
		return why
	}
	const redirect = 4
	if action != redirect {
		r.t.Fatalf("delivered, and the action is %d", action)
	}
	r.forwarded++
	to := -1
	for i := range now.Ports {
		if now.Ports[i].Sent != was.Ports[i].Sent {
			to = i
		}
	}
	for i := range out {
		switch {
		case i != to && len(out[i]) == 0:
		case i != to || len(out[i]) != 1:
			r.t.Fatalf("XDP sends by port %d; the worker sent %d frames by port %d (drops %v)\nframe %x", to, len(out[i]), i, r.drops(), frame)
		case !bytes.Equal(out[i][0], opts.DataOut):
			r.t.Fatalf("XDP sends\n%x, the worker\n%x\nframe %x", opts.DataOut, out[i][0], frame)
		}
	}
	if byXDP != byWorker {
		r.t.Fatalf("XDP counts\n%+v, the worker\n%+v\nframe %x", byXDP, byWorker, frame)
	}
	l := r.w.leaf.stats.FDBStats
	if l.FDBAged = learned.FDBAged; l != learned { // others age meanwhile
		r.t.Fatalf("XDP delivered what the worker has learned from: %+v, before %+v", l, learned)
	}
	return ""
}

// byWorker gives a frame to the worker, and returns what left by port.
func (r *fastLeafRig) byWorker(in PortID, frame []byte) (out [][][]byte) {
	r.t.Helper()
	if !r.links[in].put(frame) {
		r.t.Fatalf("port %d has no frame to receive into", in)
	}
	for range 3 {
		r.now += 1000
		r.w.round(r.now)
	}
	for _, l := range r.links {
		out = append(out, l.out)
		l.out = nil
	}
	return out
}

// fits is both for a frame that a test run takes.
func (r *fastLeafRig) fits(in PortID, b []byte) {
	if len(b) >= overlay.EthernetLen && len(b) < 1700 {
		r.both(in, b)
	}
}

// knows puts addresses into the worker's table.
func (r *fastLeafRig) knows(vni uint16, mac overlay.MAC, at overlay.Dest) {
	r.t.Helper()
	if l := r.w.leaf.fdb.LearnKey(overlay.MakeFDBKey(vni, mac), at, r.now); l > overlay.LearnedHeld {
		r.t.Fatalf("address %v is not learned: %d", mac, l)
	}
}

// sample returns a leaf that knows hostA behind acc0, with and without a tag, and hostB and
// hostC behind the first peer.
func newFastLeafSample(t testing.TB) *fastLeafRig {
	r := newFastLeafRig(t, leafConfig(), leafTables())
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	r.knows(1, hostA, overlay.DestLocal(uint16(acc0), 20))
	for vni := range uint16(3) {
		r.knows(vni, hostB, overlay.DestRemote(0))
		r.knows(vni, hostC, overlay.DestRemote(1))
	}
	return r
}

// tcp4 is a TCP packet in an Ethernet frame; its checksum is right, or left to a card.
func tcp4(dst, src overlay.MAC, tos byte, sport uint16, unfinished bool) []byte {
	b := append(append([]byte(nil), dst[:]...), src[:]...)
	b = append(b, 8, 0, 0x45, tos, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 172, 16, 0, 1, 172, 16, 0, 2)
	fixChecksum(b[14:])
	b = append(b, make([]byte, 40)...)
	b[34], b[35], b[37], b[46] = byte(sport>>8), byte(sport), 9, 5<<4
	sum := uint32(6 + 40)
	for _, w := range []int{26, 28, 30, 32} {
		sum += uint32(binary.BigEndian.Uint16(b[w:]))
	}
	if !unfinished {
		for w := 34; w < 74; w += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[w:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if unfinished {
		binary.BigEndian.PutUint16(b[50:], uint16(sum))
	} else {
		binary.BigEndian.PutUint16(b[50:], ^uint16(sum))
	}
	return b
}

// Each reason for which a frame out of a tunnel goes to the worker, and none for those that
// need not.
func TestFastLeafSaysWhyNot(t *testing.T) {
	r := newFastLeafSample(t)
	stray := overlay.MAC{2, 0, 0, 0, 0, 0xe}
	r.knows(0, stray, overlay.DestLocal(uint16(acc2), 0)) // which is not of the network any more
	inner := udp4(hostA, hostB, 0, 1, 64)
	good := wrap(vtep2, own(), 100, inner, nil)
	change := func(f func(b []byte)) []byte { b := slices.Clone(good); f(b); return b }
	capable := func(f overlay.Fabric) []byte { f.Capable = true; return wrap(vtep2, own(), 100, inner, &f) }
	marked := func(outer, in byte) []byte {
		b := wrap(vtep2, own(), 100, tcp4(hostA, hostB, in, 7, false), nil)
		overlay.IPv4(b[overlay.EthernetLen:]).SetTOS(outer)
		return b
	}
	for _, c := range []struct {
		name  string
		frame []byte
		why   string
	}{
		{"plain VXLAN", good, ""},
		{"to a port with a tag", wrap(vtep2, own(), 200, inner, nil), ""},
		{"with the fabric's fields", capable(overlay.Fabric{LBTag: 3, CE: 5, FBValid: true, FBTag: 1, FBMetric: 2}), ""},
		{"a request that is a tenant's frame, too", capable(overlay.Fabric{Opcode: overlay.OpRTTRequest}), ""},
		{"TCP", marked(0, 0), ""},
		{"marked by the fabric", marked(3, 2), ""},
		{"marked by a host", marked(3, 3), ""},
		{"marked, of who does no ECN", marked(3, 0), "odd"},
		{"changed by the fabric", marked(1, 2), "odd"},
		{"with a checksum that is not finished", wrap(vtep2, own(), 100, tcp4(hostA, hostB, 0, 7, true), nil), "odd"},
		{"a control packet", capable(overlay.Fabric{Opcode: overlay.OpNotify}), "odd"},
		{"with a shim", capable(overlay.Fabric{Shim: true}), "odd"},
		{"with feedback about an uplink that there is not", capable(overlay.Fabric{FBValid: true, FBTag: 9}), "odd"},
		{"with reserved bits", change(func(b []byte) { b[49] = 1 }), "odd"},
		{"for another MAC address", change(func(b []byte) { b[5]++ }), "odd"},
		{"with a wrong checksum", change(func(b []byte) { b[24]++ }), "odd"},
		{"that is padded", append(slices.Clone(good), 0), "odd"},
		{"with a tag inside", wrap(vtep2, own(), 100, udp4(hostA, hostB, 5, 1, 64), nil), "odd"},
		{"from nobody", wrap(netip.MustParseAddr("10.0.0.9"), own(), 100, inner, nil), "unbelieved"},
		{"of no network", wrap(vtep2, own(), 101, inner, nil), "network"},
		{"of another network", wrap(vtep2, own(), 300, inner, nil), "destination"},
		{"from a new host", wrap(vtep2, own(), 100, udp4(hostA, overlay.MAC{2, 9}, 0, 1, 64), nil), "source"},
		{"from a host behind another peer", wrap(vtep2, own(), 100, udp4(hostA, hostC, 0, 1, 64), nil), "source"},
		{"to nobody known", wrap(vtep2, own(), 100, udp4(overlay.MAC{2, 8}, hostB, 0, 1, 64), nil), "destination"},
		{"to a port of another network", wrap(vtep2, own(), 100, udp4(stray, hostB, 0, 1, 64), nil), "destination"},
		{"to all", wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 64), nil), "destination"},
		{"to the other side of the fabric", wrap(vtep2, own(), 100, udp4(hostB, hostB, 0, 1, 64), nil), "destination"},
		{"too long for the port", wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 1480), nil), "hop"},
	} {
		if why := r.both(up0, c.frame); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
	}
	dst := leafTables()
	dst.Ports[acc0].Up = false
	r.publish(dst)
	r.use()
	if why := r.both(up0, good); why != "destination" { // the worker has forgotten its addresses
		t.Errorf("to a port that is down: slow for %q", why)
	}
	r.publish(leafTables())
	r.use()
	r.drain()
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	for _, c := range []struct {
		name string
		set  func()
		why  string
	}{
		{"its port is not fast", func() { r.states[up0].in = "a reason" }, "off"},
		{"the way out is not fast", func() { r.states[acc0].out = "a reason" }, "hop"},
		{"the way out has a shaper", func() { r.w.view.layout.ports[acc0].Egress.Rate = 1e9 }, "hop"},
	} {
		was, egress := slices.Clone(r.states), r.w.view.layout.ports[acc0].Egress
		c.set()
		r.use()
		if why := r.both(up0, good); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
		r.states, r.w.view.layout.ports[acc0].Egress = was, egress
		r.use()
		if why := r.both(up0, good); why != "" {
			t.Errorf("%s no more, and slow for %q", c.name, why)
		}
	}
}

// randomLeaf returns a leaf's ports and tables.
func randomLeaf(rng *rand.Rand) (Config, *Tables) {
	cfg := leafConfig()
	cfg.Seed, cfg.ReversePath = rng.Uint64(), ReversePath(rng.IntN(3))
	tables := leafTables()
	for i := range tables.Ports[:3] {
		if rng.IntN(6) == 0 {
			tables.Ports[i].MTU = 120
		}
		tables.Ports[i].Up = rng.IntN(12) > 0
		if rng.IntN(10) == 0 {
			cfg.Ports[i].Egress.Delay = time.Nanosecond
		}
	}
	if tables.Ports[acc2].Transparent = rng.IntN(2) == 0; tables.Ports[acc2].Transparent {
		tables.Bindings = append(tables.Bindings, Binding{acc1, 40, 2})
	}
	tables.Peers[1].Hops = tables.Peers[1].Hops[:1]
	for i := range tables.VNIs {
		if rng.IntN(3) == 0 {
			tables.VNIs[i].Peers = []PeerID{PeerID(rng.IntN(2))}
		}
	}
	if rng.IntN(2) == 0 {
		tables.Static = []StaticMAC{{VNI: 0, MAC: hostA, Port: acc1}}
	}
	return cfg, tables
}

// randomArrival returns what other leaves could send to a leaf, mostly.
func randomArrival(rng *rand.Rand) []byte {
	hosts := []overlay.MAC{hostA, hostA, hostA, {2, 0, 0, 0, 0, 0x1a}, hostB, hostC, {2, 7}, bcast}
	dst, src := hosts[rng.IntN(len(hosts))], hosts[3+rng.IntN(4)]
	var in []byte
	switch rng.IntN(8) {
	case 0, 1, 2:
		in = tcp4(dst, src, byte(rng.IntN(256)), uint16(rng.Uint32()), rng.IntN(10) == 0)
	case 3:
		in = udp4(dst, src, uint16(rng.IntN(3)*20), uint16(rng.Uint32()), rng.IntN(200))
	case 4: // IPv6, UDP
		in = append(append(append([]byte(nil), dst[:]...), src[:]...), 0x86, 0xdd, 0x60|byte(rng.IntN(16)), byte(rng.Uint32()), 0, 0, 0, 16, 17, 64)
		for range 32 + 16 {
			in = append(in, byte(rng.Uint32()))
		}
		in[14+40+4], in[14+40+5] = 0, 16
	case 5: // no IP
		in = append(append(append([]byte(nil), dst[:]...), src[:]...), 8, 6)
		in = append(in, make([]byte, rng.IntN(50))...)
	default:
		in = udp4(dst, src, 0, uint16(rng.Uint32()), rng.IntN(200))
	}
	var f *overlay.Fabric
	if rng.IntN(3) > 0 {
		f = &overlay.Fabric{
			Capable: true, Path: overlay.PathID(rng.Uint32()), LBTag: uint8(rng.IntN(16)), CE: uint8(rng.IntN(8)), FBValid: rng.IntN(2) == 0,
			FBTag: uint8(rng.IntN(3)), FBMetric: uint8(rng.IntN(8)), Opcode: overlay.Opcode(max(0, rng.IntN(16)-8)), Shim: rng.IntN(8) == 0,
		}
	}
	from := []netip.Addr{vtep2, vtep2, vtep2, vtep3, own()}[rng.IntN(5)]
	b := wrap(from, own(), overlay.VNI(100*(1+rng.IntN(3))+rng.IntN(20)/19), in, f)
	b[34], b[35] = byte(rng.Uint32()), byte(rng.Uint32())
	if rng.IntN(6) == 0 {
		overlay.IPv4(b[overlay.EthernetLen:]).SetTOS(uint8(rng.Uint32()))
	}
	return b
}

// What XDP delivers at a leaf the worker would have delivered, by the same port, byte for
// byte, and counted alike: with random tables, and for packets as leaves send them and for
// damaged ones.
func TestFastLeafIsTheWorker(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	known := packets(t)
	forwarded, reasons := 0, make(map[string]int)
	for range 16 {
		cfg, tables := randomLeaf(rng)
		r := newFastLeafRig(t, cfg, tables)
		for range 700 {
			in := up0 + PortID(rng.IntN(2))
			switch rng.IntN(20) {
			case 0:
				b := slices.Clone(known[rng.IntN(len(known))])
				copy(b, ownMAC[:])
				r.fits(in, b)
			case 1, 2, 3:
				r.fits(in, testenv.Mutate(rng, randomArrival(rng), known))
			case 4:
				r.knows(uint16(rng.IntN(3)), []overlay.MAC{hostB, hostC, {2, 0, 0, 0, 0, 0x1a}}[rng.IntN(3)], overlay.DestRemote(uint16(rng.IntN(2))))
			case 5:
				vni := uint16(rng.IntN(3))
				places := []overlay.Dest{overlay.DestLocal(uint16(acc0), 0), overlay.DestLocal(uint16(acc0), 20), overlay.DestLocal(uint16(acc2), 0)}
				at := places[vni]
				if rng.IntN(8) == 0 { // behind a port of another network
					at = places[rng.IntN(3)]
				}
				if len(tables.Static) == 0 || vni > 0 {
					r.knows(vni, hostA, at)
				}
			case 6:
				r.pass(time.Duration(rng.IntN(int(20 * time.Second))))
			case 7, 8:
				b := randomArrival(rng)
				for range 3 { // of one flow, of which the worker may have some
					r.fits(in, b)
				}
			default:
				r.fits(in, randomArrival(rng))
			}
		}
		r.balance()
		forwarded += r.forwarded
		for why, n := range r.reasons {
			reasons[why] += n
		}
	}
	t.Logf("%d delivered, slow %v", forwarded, reasons)
	if forwarded < 150 {
		t.Errorf("only %d frames were delivered by XDP: the test shows nothing", forwarded)
	}
	for _, why := range []string{"odd", "hop", "unbelieved", "network", "source", "destination", "order"} {
		if reasons[why] == 0 {
			t.Errorf("no frame was slow for %q: the test shows little", why)
		}
	}
}
