package dataplane

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/overlay"
)

// left is what a rig's worker leaves to another process.
type left struct {
	names, shared, worker, stats []byte
}

// leave has the worker stop and write its snapshot.
func (r *rig) leave() (l left) {
	r.t.Helper()
	w := r.w
	w.leaf.flush(r.now)
	var s snapshot.Writer
	namesOf(nil, w.view).save(&s)
	l.names = section(r.t, s.Bytes(), sectionNames).Body
	var shared, own snapshot.Writer
	w.shared.savePeers(&shared, len(w.view.tables.Peers))
	l.shared = shared.Bytes()
	w.save(&own, r.now, 0)
	l.worker = own.Bytes()
	stats := w.snapshot()
	c, err := carryStats(&stats)
	if err == nil {
		l.stats, err = json.Marshal(c)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func section(t testing.TB, b []byte, name string) *snapshot.Section {
	t.Helper()
	all, err := snapshot.Sections(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	t.Fatalf("no section %s", name)
	return nil
}

// heir makes the worker that goes on where r has stopped, with the same area and links,
// and with another configuration and other tables.
func (r *rig) heir(cfg Config, tables *Tables, l left, log *slog.Logger) (*rig, error) {
	r.t.Helper()
	next := newRig(r.t, cfg, tables)
	cfg = *next.w.cfg
	v := next.w.view
	w, err := newWorker(0, &cfg, r.w.area, xsk.NewPool(r.w.pool.Frames(), testFrameSize), testFrameSize, newShared(&cfg))
	if err != nil {
		r.t.Fatal(err)
	}
	next.w, next.now = w, r.now
	w.ask = next.ask
	w.leaf.brain.SetHello(idle)
	w.views.Store(v)
	w.adopt(v, next.now)
	theirs, err := loadNames(l.names)
	if err != nil {
		return nil, err
	}
	x := namesOf(nil, v).translate(theirs)
	sections, frames, err := sectionsOf(l.worker, x)
	if err != nil {
		return nil, err
	}
	var owner []uint16
	for old := range theirs.ports {
		id := at(x.ports, old)
		if id < 0 {
			id = int(goneOwner(old))
		}
		owner = append(owner, uint16(id))
	}
	if _, err := w.inheritFrames(frames, x, owner, next.now); err != nil {
		return nil, err
	}
	next.links = make([]*memLink, len(cfg.Ports))
	for old, id := range x.ports {
		if id >= 0 {
			next.links[id] = r.links[old]
			w.ports[id].take(r.links[old], next.now)
		}
	}
	w.listOpen()
	for id := range next.links {
		if next.links[id] == nil {
			next.links[id] = &memLink{t: r.t, area: w.area, size: cfg.RingSize, keep: true}
			w.attach(&w.ports[id], next.links[id])
		}
	}
	if err := w.shared.loadPeers(section(r.t, l.shared, sectionShared), x); err != nil {
		log.Warn("shared", "err", err)
	}
	w.load(sections, x, nil, next.now, log)
	var c carriedStats
	if err := json.Unmarshal(l.stats, &c); err != nil {
		r.t.Fatal(err)
	}
	stats := w.snapshot()
	base := c.base(&stats, x)
	w.base = &base
	return next, nil
}

// payloadOf returns the number of a test's frame that came out of an uplink.
func numberIn(t *testing.T, b []byte) int {
	_, inner := unwrap(t, b)
	return int(binary.BigEndian.Uint16(inner[34:])) // the UDP source port
}

// What waits in a worker goes on in the next one: behind a shaper, in a delay line, on a
// full ring, for a next hop's address. Each frame comes out once, whole, in its order; the
// books balance over both.
func TestCarryFrames(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config, *Tables, *rig)
	}{
		{"ring", func(_ *Config, _ *Tables, r *rig) {
			if r != nil {
				r.links[up0].stuck = true
			}
		}},
		{"shaper", func(c *Config, _ *Tables, _ *rig) { c.Ports[up0].Egress.Rate, c.Ports[up0].Egress.Burst = 1e6, 1600 }},
		{"delay", func(c *Config, _ *Tables, _ *rig) { c.Ports[up0].Egress.Delay = time.Millisecond }},
		{"neighbour", func(_ *Config, t *Tables, _ *rig) { t.Hops[0].Resolved = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			build := func() (Config, *Tables) {
				cfg, tables := leafConfig(), leafTables()
				cfg.RingSize = 256
				tables.Peers[0].Hops, tables.Peers[1].Hops = []HopID{0}, []HopID{0}
				return cfg, tables
			}
			cfg, tables := build()
			c.change(&cfg, tables, nil)
			r := newRig(t, cfg, tables)
			c.change(&cfg, tables, r)
			r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 40), nil)) // where hostB is
			before := r.send(acc0, udp4(hostB, hostA, 0, 0, 40))
			n := 25
			if c.name == "ring" {
				n = 200
			}
			out := before[up0]
			for i := 1; i < n; i++ {
				out = append(out, r.send(acc0, udp4(hostB, hostA, 0, uint16(i), 40))[up0]...)
			}
			l := r.leave()
			if got := int(r.w.held()) + r.links[up0].TXPending(); got < n/2 {
				t.Fatalf("only %d frames wait", got)
			}
			cfg2, tables2 := build()
			c.change(&cfg2, tables2, nil)
			next, err := r.heir(cfg2, tables2, l, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			next.balance()
			next.links[up0].stuck = false
			_, resolved := build()
			next.publish(resolved)
			for range 200 {
				out = append(out, next.settle()[up0]...)
				next.now += mono.Time(time.Millisecond)
			}
			if len(out) != n {
				t.Fatalf("%d frames came out, want %d; dropped %v", len(out), n, next.drops())
			}
			for i, b := range out {
				if got := numberIn(t, b); got != i {
					t.Fatalf("frame %d came as number %d", got, i)
				}
			}
			if s := next.w.snapshot(); s.Ports[acc0].Received.Frames != uint64(n) {
				t.Errorf("%d frames were received in all, want %d", s.Ports[acc0].Received.Frames, n)
			}
		})
	}
}

// Ports, peers and networks are others in the successor, or have other numbers: what is
// known goes with the names, and what is no more is dropped under a name.
func TestCarryOtherNumbers(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	r := newRig(t, cfg, tables)
	r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 40), nil))
	r.send(up1, wrap(vtep3, own(), 100, udp4(hostA, hostC, 0, 1, 40), nil))
	r.send(acc0, udp4(hostB, hostA, 0, 1, 40))
	r.send(acc0, udp4(hostB, hostA, 20, 1, 40))
	hostD := overlay.MAC{2, 0, 0, 0, 0, 0xd}
	r.send(acc1, udp4(hostB, hostD, 0, 1, 40))
	r.links[up1].stuck = true
	for i := range 60 {
		r.send(acc0, udp4(hostC, hostA, 0, uint16(i), 40))
	}
	l := r.leave()

	// acc1 is gone, acc0 and acc2 have changed places, peers and VNIs too.
	var cfg2 Config
	cfg2.Role = Leaf
	cfg2.Ports = []PortConfig{leafConfig().Ports[acc2], leafConfig().Ports[acc0], leafConfig().Ports[up0], leafConfig().Ports[up1]}
	t2 := leafTables()
	t2.Ports = t2.Ports[1:]
	t2.Hops = []Hop{{Port: 3, Gateway: t2.Hops[1].Gateway, MAC: gwMAC, Resolved: true}, {Port: 2, Gateway: t2.Hops[0].Gateway, MAC: gwMAC, Resolved: true}}
	t2.Peers = []Peer{{VTEP: netip.MustParseAddr("10.0.0.9")}, {VTEP: vtep3, Hops: []HopID{0, 1}}, {VTEP: vtep2, Hops: []HopID{0, 1}}}
	t2.VNIs = []VNI{{VNI: 300}, {VNI: 100}, {VNI: 200}}
	t2.Bindings = []Binding{{0, 0, 0}, {1, 0, 1}, {1, 20, 2}}
	next, err := r.heir(cfg2, t2, l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		vni  uint16
		mac  overlay.MAC
		want overlay.Dest
	}{
		{1, hostA, overlay.DestLocal(1, 0)}, {2, hostA, overlay.DestLocal(1, 20)}, {0, hostA, overlay.DestNone},
		{1, hostB, overlay.DestRemote(2)}, {1, hostC, overlay.DestRemote(1)}, {1, hostD, overlay.DestNone},
	} {
		if got := next.w.leaf.fdb.Lookup(c.vni, c.mac, next.now); got != c.want {
			t.Errorf("%v in network %d is at %#x, want %#x", c.mac, c.vni, got, c.want)
		}
	}
	next.w.pool.Reclaim(xsk.OwnerPort(goneOwner(int(acc1)))) // as when its socket is closed
	next.links[3].stuck = false
	if out := next.settle(); len(out[3]) == 0 {
		t.Error("nothing left by the port that was stuck")
	}
	if n := next.w.snapshot().PeerSent[1].Frames; n < 60 {
		t.Errorf("%d of 60 frames were sent to the peer", n)
	}
	if d := next.drops(); len(d) > 0 {
		t.Errorf("dropped %v", d)
	}
}

// A port that waits for its shaper, and is no more in the successor, gives its frames
// back under a name.
func TestCarryFromPortThatIsGone(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	cfg.Ports[acc1].Egress.Rate, cfg.Ports[acc1].Egress.Burst = 1e6, 1600
	r := newRig(t, cfg, tables)
	r.send(acc1, udp4(hostA, hostC, 0, 1, 40))
	for range 40 {
		r.send(acc0, udp4(hostC, hostA, 0, 1, 1000))
	}
	waiting := int(r.w.ports[acc1].egress.held())
	l := r.leave()
	cfg2, t2 := leafConfig(), leafTables()
	cfg2.Ports = slices.Delete(cfg2.Ports, int(acc1), int(acc1)+1)
	t2.Ports, t2.Bindings = t2.Ports[:4], []Binding{{0, 0, 0}, {0, 20, 1}, {1, 0, 2}}
	for i := range t2.Hops {
		t2.Hops[i].Port--
	}
	next, err := r.heir(cfg2, t2, l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if n := next.drops()[drop.PortReset]; waiting < 10 || int(n) != waiting {
		t.Errorf("%d frames waited, %d were dropped", waiting, n)
	}
	next.w.pool.Reclaim(xsk.OwnerPort(goneOwner(int(acc1))))
	r.links[acc1].filled, r.links[acc1].tx, r.links[acc1].done = nil, nil, nil
	next.balance()
}

// A section of another version, or with a wrong checksum, is left out with a line in the
// log, and the others are used; without names or frames nothing is.
func TestCarryRefusesInPart(t *testing.T) {
	for _, c := range []struct {
		section string
		broken  bool
		fatal   bool
		learned bool
		capable bool
	}{
		{"", false, false, true, true},
		{sectionFDB, false, false, false, true},
		{sectionFDB, true, false, false, true},
		{sectionPeers, false, false, true, true},
		{sectionShared, false, false, true, false},
		{"flows/0/letflow", false, false, true, true},
		{sectionFrames, false, true, false, false},
		{sectionFrames, true, true, false, false},
	} {
		t.Run(fmt.Sprint(c.section, c.broken), func(t *testing.T) {
			cfg := leafConfig()
			cfg.Scheme = "letflow"
			r := newRig(t, cfg, leafTables())
			r.prove(0)
			r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 40), nil))
			r.send(acc0, udp4(hostB, hostA, 0, 1, 40))
			l := r.leave()
			for _, b := range []*[]byte{&l.worker, &l.shared} {
				*b = spoil(t, *b, c.section, c.broken)
			}
			var log bytes.Buffer
			next, err := r.heir(cfg, leafTables(), l, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != c.fatal {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), c.section) {
					t.Errorf("error %v does not name section %s", err, c.section)
				}
				return
			}
			if said := strings.Contains(log.String(), c.section) && log.Len() > 0; said == (c.section == "") {
				t.Errorf("the log says %q", &log)
			}
			if got := next.w.leaf.fdb.Lookup(0, hostB, next.now) == overlay.DestRemote(0); got != c.learned {
				t.Errorf("the address is known: %v", got)
			}
			if got := next.w.shared.leaf.Capable.Capable(0, next.now); got != c.capable {
				t.Errorf("the peer is capable: %v", got)
			}
			next.balance()
		})
	}
	r := newRig(t, leafConfig(), leafTables())
	l := r.leave()
	l.names = l.names[:len(l.names)-1]
	if _, err := r.heir(leafConfig(), leafTables(), l, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("names that end in the middle were taken")
	}
}

// spoil gives a section of a snapshot another version, or a byte that is wrong.
func spoil(t *testing.T, b []byte, name string, broken bool) []byte {
	t.Helper()
	all, err := snapshot.Sections(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Name != name {
			continue
		}
		b = bytes.Clone(b)
		at := bytes.Index(b, append([]byte{byte(len(name))}, name...)) + 1 + len(name)
		if broken {
			b[at+2+8+3] ^= 1
		} else {
			b[at]++
		}
	}
	return b
}

// Flowlets go on where they were.
func TestCarryFlowlets(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	r := newRig(t, cfg, leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 40), nil))
	way := func(r *rig, flow int) PortID {
		out := r.send(acc0, udp4(hostB, hostA, 0, uint16(flow), 40))
		if len(out[up0]) > 0 {
			return up0
		}
		return up1
	}
	was := make([]PortID, 64)
	for i := range was {
		was[i] = way(r, i)
	}
	next, err := r.heir(cfg, leafTables(), r.leave(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range was {
		if now := way(next, i); now != was[i] {
			t.Errorf("flow %d goes by port %d, and went by %d", i, now, was[i])
		}
	}
	// With other uplinks the numbers mean something else, and flowlets start anew.
	swapped := leafConfig()
	swapped.Scheme = "letflow"
	swapped.Ports[up0].Name, swapped.Ports[up1].Name = "up1", "up0"
	tables := leafTables()
	tables.Hops[0].Port, tables.Hops[1].Port = up1, up0
	var log bytes.Buffer
	if _, err := next.heir(swapped, tables, next.leave(), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "the uplinks are others"); n != 3 { // shared, peers, flows
		t.Errorf("%d of 3 sections were left out: %s", n, &log)
	}
}

// FuzzCarry loads anything: nothing may panic, no frame may have two owners, and what is
// refused leaves the worker as it was.
func FuzzCarry(f *testing.F) {
	cfg := fuzzConfig(leafConfig())
	cfg.Scheme = "letflow"
	cfg.Ports[up0].Egress.Delay = time.Millisecond
	r := newRig(f, cfg, leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 40), nil))
	for i := range 8 {
		r.send(acc0, udp4(hostB, hostA, 0, uint16(i), 40))
	}
	l := r.leave()
	for _, b := range [][]byte{l.names, l.shared, l.worker} {
		f.Add(b, uint8(0))
	}
	all, err := snapshot.Sections(l.worker)
	if err != nil {
		f.Fatal(err)
	}
	for i := range all {
		f.Add(all[i].Body, uint8(i))
	}
	next := newRig(f, cfg, leafTables())
	x := namesOf(nil, next.w.view).translate(namesOf(nil, r.w.view))
	f.Fuzz(func(_ *testing.T, b []byte, which uint8) {
		_, _ = loadNames(b)
		if frames, err := readFrames(b, x); err == nil {
			_, _, _ = xsk.RestorePool(frames.owners, frames.frameSize, []uint16{0, 1, 2, 3, 4}, frames.kept())
		}
		w := next.w
		// Each section by itself, its checksum right.
		s := snapshot.Section{Name: all[int(which)%len(all)].Name, Version: 1, Body: b}
		w.load([]snapshot.Section{s}, x, []uint32{1, 2, 3}, next.now, slog.New(slog.DiscardHandler))
		_ = w.shared.loadPeers(&snapshot.Section{Name: sectionShared, Version: 1, Body: b}, x)
		w.round(next.now)
		_, _, _ = sectionsOf(b, x)
		var c carriedStats
		if json.Unmarshal(b, &c) == nil {
			stats := w.snapshot()
			base := c.base(&stats, x)
			stats.addBase(&base)
		}
	})
}
