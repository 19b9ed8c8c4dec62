package dataplane

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gaissmai/bart"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// fastRig is a spine twice: its XDP programs with their tables, and a worker. Both get the
// same frames.
type fastRig struct {
	*rig
	tables *bpf.Fast
	states []fastPort
	progs  []*ebpf.Program // by port
	copy   int
	full   []PortState // links that are kept full; nil: none

	forwarded, slow int
	reasons         map[string]int
}

// newFastRig makes the programs of a spine's first ports, so many of them.
func newFastRig(t testing.TB, cfg Config, tables *Tables, programs int) *fastRig {
	t.Helper()
	testenv.NeedRoot(t)
	r := &fastRig{rig: newRig(t, cfg, tables), reasons: make(map[string]int)}
	room := len(cfg.Ports)
	var err error
	if r.tables, err = bpf.OpenFast(bpf.FastSize{Ports: room, Queues: 1, Hops: 64, Groups: 64}); err != nil {
		t.Fatal(err)
	}
	routes, err := bpf.NewRoutes()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { routes.Close(); r.tables.Close() })
	if err := routes.Take(map[netip.Prefix]bool{netip.MustParsePrefix("0.0.0.0/0"): true}); err != nil {
		t.Fatal(err)
	}
	for i := range room {
		r.states = append(r.states, fastPort{ifindex: i + 1})
		if err := r.tables.SetDevice(i, 1); err != nil { // the loopback: nothing is sent there
			t.Fatal(err)
		}
	}
	for i := range programs {
		p, err := bpf.Load(bpf.Config{
			Kind: bpf.Spine, Routes: routes, VXLANPort: r.w.cfg.VXLANPort, Seed: uint32(cfg.Seed), Queues: 1,
			Fast: r.tables, AnySource: cfg.ReversePath == AnyPath, Port: uint16(i),
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
		r.progs = append(r.progs, findProgram(t, p))
	}
	r.tables.SetDead(uint64(time.Hour))
	r.tables.Beat(uint64(monotonic()))
	r.use()
	return r
}

// findProgram returns the kernel's program behind p.
func findProgram(t testing.TB, p *bpf.Program) *ebpf.Program {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			t.Fatal(err)
		}
		if id = next; !p.Is(uint32(id)) {
			continue
		}
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { prog.Close() })
		return prog
	}
}

// use puts the worker's view in force for the programs.
func (r *fastRig) use() {
	r.t.Helper()
	ports, hops, groups := r.tables.Copy(r.copy)
	v := r.w.view
	v.fastRows(r.states, ports, hops, groups)
	if err := r.tables.SetRoutes(r.copy, v.fastRoutes(v.taken())); err != nil {
		r.t.Fatal(err)
	}
	r.tables.Use(r.copy)
	r.copy = 1 - r.copy
}

// moved returns what the programs have forwarded, by next hop.
func (r *fastRig) moved(in PortID) (frames [64]uint64) {
	for hop := range frames {
		frames[hop], _ = r.tables.Moved(int(in), hop)
	}
	return frames
}

// slowCounts are why frames of a port went to the worker, in the order of
// [bpf.FastSlowNames].
type slowCounts [16]uint64

func slowsOf(t *bpf.Fast, in PortID) (n slowCounts) {
	for i := range bpf.FastSlowNames() {
		n[i] = t.Slow(int(in), i)
	}
	return n
}

// since returns why a frame went to the worker after other counts; "passed": it was the
// kernel's.
func (n slowCounts) since(before slowCounts) string {
	for i, name := range bpf.FastSlowNames() {
		if n[i] != before[i] {
			return name
		}
	}
	return "passed"
}

// both gives a frame to a port's program and to the worker. If the program forwards it, the
// worker must have sent the same bytes by the same port. It returns why the program did not;
// "": it did.
func (r *fastRig) both(in PortID, frame []byte) (why string) {
	r.t.Helper()
	for i := range r.full { // a link of known speed is full, one of unknown speed says nothing
		if rate := r.full[i].Speed; rate != 0 {
			r.w.shared.meters[i].Publish(1, r.now, 1e15)
			r.tables.SetCE(i, r.w.shared.meters[i].Metric(r.now, rate))
		}
	}
	before, slow := r.moved(in), slowsOf(r.tables, in)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	action, err := r.progs[in].Run(&opts)
	if err != nil {
		r.t.Fatalf("test run of %x: %v", frame, err)
	}
	hop := -1
	for i, n := range r.moved(in) {
		switch {
		case n == before[i]:
		case n == before[i]+1 && hop < 0:
			hop = i
		default:
			r.t.Fatalf("next hop %d was counted %d times, and next hop %d, for one frame", i, n-before[i], hop)
		}
	}
	out := r.send(in, frame)
	if hop < 0 {
		r.slow++
		why = slowsOf(r.tables, in).since(slow)
		r.reasons[why]++
		return why
	}
	const redirect = 4
	if action != redirect {
		r.t.Fatalf("forwarded, and the action is %d", action)
	}
	r.forwarded++
	port := r.w.view.hops[hop].port
	for i := range out {
		switch {
		case PortID(i) != port && len(out[i]) == 0:
		case PortID(i) != port || len(out[i]) != 1:
			r.t.Fatalf("XDP sends by port %d; the worker sent %d frames by port %d (drops %v)\nframe %x", port, len(out[i]), i, r.drops(), frame)
		case !bytes.Equal(out[i][0], opts.DataOut):
			r.t.Fatalf("XDP sends\n%x, the worker\n%x\nframe %x", opts.DataOut, out[i][0], frame)
		}
	}
	return ""
}

// packets returns every golden packet, and what fuzzers have found.
func packets(t testing.TB) (all [][]byte) {
	t.Helper()
	golden, err := filepath.Glob("../overlay/testdata/*.hex")
	if err != nil || len(golden) == 0 {
		t.Fatalf("golden packets: %d, %v", len(golden), err)
	}
	for _, file := range golden {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var digits strings.Builder
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			if f := strings.Fields(line); len(f) > 1 { // the first one is the offset
				digits.WriteString(strings.Join(f[1:], ""))
			}
		}
		b, err := hex.DecodeString(digits.String())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, b)
	}
	found, err := filepath.Glob("../overlay/testdata/fuzz/FuzzDecap/*")
	if err != nil || len(found) == 0 {
		t.Fatalf("fuzz corpus: %d, %v", len(found), err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if q, ok := strings.CutPrefix(strings.TrimSpace(line), "[]byte("); ok {
				s, err := strconv.Unquote(strings.TrimSuffix(q, ")"))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				all = append(all, []byte(s))
			}
		}
	}
	return all
}

// randomSpine returns a spine's ports and tables: next hops that are up, down, unresolved,
// narrow or shaped, groups with and without weights of which next hops are gone.
func randomSpine(rng *rand.Rand) (Config, *Tables) {
	cfg := Config{Role: Spine, Seed: rng.Uint64(), ReversePath: ReversePath(rng.IntN(3))}
	tables := &Tables{Routes: new(bart.Table[uint32])}
	for i := range 6 {
		p := PortConfig{Name: "dn" + strconv.Itoa(i), Kind: SpinePort}
		switch rng.IntN(8) {
		case 0:
			p.Egress.Delay = time.Nanosecond
		case 1:
			p.Egress.Kmin, p.Egress.Kmax, p.Egress.Pmax = 1000, 2000, 1
		}
		cfg.Ports = append(cfg.Ports, p)
		mtu := 1600
		if rng.IntN(4) == 0 {
			mtu = 120
		}
		tables.Ports = append(tables.Ports, PortState{Ifindex: i + 1, Up: rng.IntN(10) > 0, MAC: ownMAC, MTU: mtu, Speed: uint64(rng.IntN(2)) * 1e9})
	}
	for i := range 24 {
		tables.Hops = append(tables.Hops, Hop{
			Port: PortID(rng.IntN(6)), Gateway: netip.AddrFrom4([4]byte{192, 168, byte(i), 1}), MAC: overlay.MAC{2, 3, 0, 0, 0, byte(i)}, Resolved: rng.IntN(8) > 0,
		})
	}
	for range 8 {
		g := Group{}
		for range rng.IntN(MaxPaths) {
			g.Hops = append(g.Hops, HopID(rng.IntN(len(tables.Hops))))
		}
		weighted := rng.IntN(3) == 0
		for range g.Hops {
			if weighted {
				g.Weights = append(g.Weights, uint16(1+rng.IntN(9)))
			}
		}
		for place := range MaxPaths - len(g.Hops) {
			if rng.IntN(4) == 0 {
				g.Gone = append(g.Gone, Gone{Place: uint8(place), Weight: uint16(1 + rng.IntN(3))})
			}
		}
		tables.Groups = append(tables.Groups, g)
	}
	for _, p := range []string{"10.0.0.0/24", "10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/30", "10.0.1.0/24", "10.255.0.0/16", "10.0.0.0/8", "0.0.0.0/0"} {
		if rng.IntN(5) > 0 {
			tables.Routes.Insert(netip.MustParsePrefix(p), uint32(rng.IntN(len(tables.Groups))))
		}
	}
	if rng.IntN(2) == 0 {
		tables.Local = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	}
	return cfg, tables
}

// randomPacket returns what a leaf could send to a spine, mostly.
func randomPacket(rng *rand.Rand) []byte {
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(rng.IntN(2)), byte(1 + rng.IntN(7))}) }
	var f *overlay.Fabric
	if rng.IntN(3) > 0 {
		f = &overlay.Fabric{Capable: true, Path: overlay.PathID(rng.Uint32()), CE: uint8(rng.IntN(8)), Opcode: overlay.Opcode(max(0, rng.IntN(12)-4)), Shim: rng.IntN(2) == 0}
	}
	b := wrap(addr(), addr(), 100, udp4(hostA, hostB, 0, uint16(rng.Uint32()), rng.IntN(100)), f)
	b[34], b[35] = byte(rng.Uint32()), byte(rng.Uint32())
	if rng.IntN(20) == 0 {
		overlay.IPv4(b[overlay.EthernetLen:]).SetTOS(uint8(rng.Uint32()))
	}
	if rng.IntN(6) == 0 {
		b = append(b, make([]byte, rng.IntN(40))...)
	}
	return b
}

// What XDP forwards at a spine the worker would have sent, by the same port and byte for
// byte: with random routes, and for packets as leaves send them and for damaged ones.
func TestFastPathIsTheWorker(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	known := packets(t)
	forwarded, reasons := 0, make(map[string]int)
	for range 12 {
		cfg, tables := randomSpine(rng)
		r := newFastRig(t, cfg, tables, 2)
		r.full = tables.Ports
		for _, b := range known {
			r.fits(PortID(rng.IntN(2)), b)
			if b = slices.Clone(b); len(b) >= len(ownMAC) {
				copy(b, ownMAC[:])
				r.fits(PortID(rng.IntN(2)), b)
			}
		}
		for range 400 {
			r.fits(PortID(rng.IntN(2)), randomPacket(rng))
		}
		for range 200 {
			r.fits(PortID(rng.IntN(2)), testenv.Mutate(rng, randomPacket(rng), known))
		}
		forwarded += r.forwarded
		for why, n := range r.reasons {
			reasons[why] += n
		}
	}
	t.Logf("%d forwarded, slow %v", forwarded, reasons)
	if forwarded < 500 {
		t.Errorf("only %d frames were forwarded by XDP: the test shows nothing", forwarded)
	}
	for _, why := range []string{"odd", "no_route", "hop", "spread", "unbelieved"} {
		if reasons[why] == 0 {
			t.Errorf("no frame was slow for %q: the test shows little", why)
		}
	}
}

// fits is both for a frame that a test run takes.
func (r *fastRig) fits(in PortID, b []byte) {
	if len(b) >= overlay.EthernetLen && len(b) < 1700 {
		r.both(in, b)
	}
}

// Each reason for which a frame goes to the worker, and none for those that need not.
func TestFastPathSaysWhyNot(t *testing.T) {
	tables := spineTables()
	tables.Hops = append(tables.Hops, Hop{Port: 2, Gateway: netip.AddrFrom4([4]byte{192, 168, 9, 1})})
	tables.Groups = append(tables.Groups, Group{Hops: []HopID{3}}, Group{Hops: []HopID{0, 1}, Weights: []uint16{3, 1}, Gone: []Gone{{0, 2}}})
	tables.Routes.Insert(netip.MustParsePrefix("10.0.2.0/24"), 4) // nobody knows its MAC address
	tables.Routes.Insert(netip.MustParsePrefix("10.0.3.0/24"), 5)
	cfg := spineConfig()
	r := newFastRig(t, cfg, tables, 1)
	good := viaSpine(vtep3, 1, nil)
	change := func(f func(b []byte)) []byte { b := slices.Clone(good); f(b); return b }
	for _, c := range []struct {
		name  string
		frame []byte
		why   string
	}{
		{"plain VXLAN", good, ""},
		{"with the fabric's fields", viaSpine(vtep3, 1, &overlay.Fabric{Capable: true}), ""},
		{"a request that is a tenant's frame, too", viaSpine(vtep3, 1, &overlay.Fabric{Capable: true, Opcode: overlay.OpRTTRequest}), ""},
		{"a control packet", viaSpine(vtep3, 1, &overlay.Fabric{Capable: true, Opcode: overlay.OpNotify}), "odd"},
		{"for another MAC address", change(func(b []byte) { b[5]++ }), "odd"},
		{"with a wrong checksum", change(func(b []byte) { b[24]++ }), "odd"},
		{"that is longer than its frame", change(func(b []byte) { b[16]++ }), "odd"},
		{"at the end of its life", change(func(b []byte) {
			for ip := overlay.IPv4(b[14:]); ip.TTL() > 1; {
				ip.DecTTL()
			}
		}), "odd"},
		{"from nowhere", wrap(netip.MustParseAddr("172.16.0.1"), vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil), "unbelieved"},
		{"to where no next hop is", viaSpine(netip.MustParseAddr("10.0.1.1"), 1, nil), "no_route"},
		{"to a next hop without a MAC address", viaSpine(netip.MustParseAddr("10.0.2.1"), 1, nil), "hop"},
		{"too long for the next hop", append(viaSpine(vtep3, 1, nil), make([]byte, 1500)...), "hop"},
	} {
		if why := r.both(dn0, c.frame); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
	}
	r.w.holds.visit(r.w, func(HopID, *heldFrame) (drop.Reason, bool) { return drop.Shutdown, true })

	spread := 0
	for flow := range 64 {
		switch why := r.both(dn0, viaSpine(netip.MustParseAddr("10.0.3.1"), flow, nil)); why {
		case "":
		case "spread":
			spread++
		default:
			t.Fatalf("flow %d is slow for %q", flow, why)
		}
		r.drain()
	}
	if spread == 0 || spread == 64 {
		t.Errorf("%d of 64 flows belong to a next hop that is gone", spread)
	}

	for _, c := range []struct {
		name  string
		set   func()
		frame []byte
		why   string
	}{
		{"its port is not fast", func() { r.states[dn0].in = "a reason" }, good, "off"},
		{"the way out is not fast", func() { r.states[dn2].out = "a reason" }, good, "hop"},
		{"the way out is not open", func() { r.states[dn2].ifindex = 0 }, good, "hop"},
		{"the way out has a shaper", func() { r.w.view.layout.ports[dn2].Egress.Rate = 1e9 }, good, "hop"},
		{"the way out has a delay", func() { r.w.view.layout.ports[dn2].Egress.Delay = time.Millisecond }, good, "hop"},
		{"the way out marks congestion, and has no speed", func() { r.w.view.layout.ports[dn2].Egress.Kmax = 1000 }, good, "hop"},
	} {
		was, egress := slices.Clone(r.states), r.w.view.layout.ports[dn2].Egress
		c.set()
		r.use()
		if why := r.both(dn0, c.frame); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
		r.states, r.w.view.layout.ports[dn2].Egress = was, egress
		r.use()
		if why := r.both(dn0, c.frame); why != "" {
			t.Errorf("%s no more, and slow for %q", c.name, why)
		}
	}
	r.tables.SetDead(uint64(10 * time.Second)) // after five times of that it would hang
	r.tables.Beat(uint64(monotonic() - int64(20*time.Second)))
	if why := r.both(dn0, good); why != "stale" {
		t.Errorf("nobody lives: slow for %q", why)
	}
	r.tables.Off()
	if why := r.both(dn0, good); why != "off" {
		t.Errorf("off: slow for %q", why)
	}
}

// drain says that all that went to the worker by dn0 has left.
func (r *fastRig) drain() { r.tables.Drain(0, 1<<40) }

// CE is raised by XDP as by a worker, and counted.
func TestFastPathRaisesCE(t *testing.T) {
	tables := spineTables()
	for i := range tables.Ports {
		tables.Ports[i].Speed = 1e9
	}
	r := newFastRig(t, spineConfig(), tables, 1)
	raised := 0
	for metric := range uint8(8) {
		r.tables.SetCE(int(dn2), metric)
		for ce := range uint8(8) {
			f := overlay.Fabric{Capable: true, CE: ce}
			r.raise(t, viaSpine(vtep3, 1, &f), max(ce, metric))
			if metric > ce {
				raised++
			}
		}
		r.raise(t, viaSpine(vtep3, 1, nil), 0) // it has no such field
	}
	if n := r.tables.Raised(int(dn2)); n != uint64(raised) {
		t.Errorf("%d frames are counted as raised, want %d", n, raised)
	}
}

func (r *fastRig) raise(t *testing.T, frame []byte, want uint8) {
	t.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	if _, err := r.progs[dn0].Run(&opts); err != nil {
		t.Fatal(err)
	}
	var f overlay.Fabric
	if _, _, reason := overlay.VXLAN(opts.DataOut[vxlanAt4:]).Decode(&f); reason != drop.None || f.CE != want {
		t.Errorf("CE came out as %d (%v), want %d", f.CE, reason, want)
	}
}

// What XDP remembers of an address is not taken for what another one's routes say that has
// the same slot, nor for what routes said before.
func TestFastPathRemembersRoutes(t *testing.T) {
	tables := spineTables()
	tables.Routes.Insert(netip.MustParsePrefix("10.1.0.0/16"), 1) // dn2
	tables.Routes.Insert(netip.MustParsePrefix("10.2.0.0/16"), 2) // no next hop
	r := newFastRig(t, spineConfig(), tables, 1)
	slot := func(a netip.Addr) uint32 { // as fast_route has it
		b := a.As4()
		return binary.NativeEndian.Uint32(b[:]) * 0x9E3779B1 >> 22
	}
	known := netip.MustParseAddr("10.1.0.1")
	other := netip.MustParseAddr("10.2.0.0")
	for slot(other) != slot(known) {
		other = other.Next()
	}
	for range 3 {
		if why := r.both(dn0, viaSpine(known, 1, nil)); why != "" {
			t.Fatalf("to %v: slow for %q", known, why)
		}
		if why := r.both(dn0, viaSpine(other, 1, nil)); why != "no_route" {
			t.Fatalf("to %v, which has the slot of %v: slow for %q", other, known, why)
		}
		r.drain()
	}
	without := spineTables()
	without.Routes.Insert(netip.MustParsePrefix("10.1.0.0/16"), 2)
	for i, c := range []struct {
		tables *Tables
		why    string
	}{{without, "no_route"}, {without, "no_route"}, {tables, ""}, {tables, ""}} { // each copy says both
		r.publish(c.tables)
		r.use()
		if why := r.both(dn0, viaSpine(known, 1, nil)); why != c.why {
			t.Fatalf("change %d of routes: slow for %q, want %q", i, why, c.why)
		}
		r.drain()
	}
}
