package dataplane

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// nodeOf makes a node of workers between links in memory, whose ports are all open.
func nodeOf(t testing.TB, cfg Config, tables *Tables, workers int, log *slog.Logger) (*Node, []*rig) {
	t.Helper()
	rigs := newRigs(t, cfg, leafTables(), workers)
	n := &Node{cfg: *rigs[0].w.cfg, log: log, changed: make(chan struct{}, 1)}
	n.layout.Store(rigs[0].ports)
	for i := range tables.Ports {
		n.opened = append(n.opened, i+1)
	}
	for _, r := range rigs {
		r.w.views = &n.view
		n.workers = append(n.workers, r.w)
	}
	if err := n.openRule(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.rule != nil {
			if err := n.rule.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	if err := n.Publish(tables); err != nil {
		t.Fatal(err)
	}
	for _, r := range rigs {
		r.settle()
	}
	return n, rigs
}

// kernelConfig is leafConfig with an overlay of the kernel's.
func kernelConfig() Config {
	cfg := leafConfig()
	cfg.KernelOverlay = true
	return cfg
}

// anAddress is the address of a number.
func anAddress(i int) overlay.MAC { return overlay.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)} }

// D11 of the findings: static addresses without room are counted and logged, no worker
// knows them, and another list tries them again.
func TestStaticsWithoutRoom(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	cfg.FDBSize = 8 // 16 places
	for i := range 40 {
		tables.Static = append(tables.Static, StaticMAC{VNI: 1, MAC: anAddress(i), Peer: 1, Port: NoPort})
	}
	var log bytes.Buffer
	n, rigs := nodeOf(t, cfg, tables, 2, slog.New(slog.NewTextHandler(&log, nil)))
	known := func() (all int) {
		a, b := rigs[0].w.leaf.fdb, rigs[1].w.leaf.fdb
		for i := range 40 {
			at, too := a.Lookup(1, anAddress(i), 0), b.Lookup(1, anAddress(i), 0)
			if at != too {
				t.Errorf("address %d is at %x for one worker and at %x for the other", i, at, too)
			}
			if at != overlay.DestNone {
				all++
			}
		}
		return all
	}
	have := known()
	s := n.workers[0].snapshot()
	if have == 0 || have > 16 || s.FDBRefused != uint64(40-have) {
		t.Fatalf("%d of 40 addresses have room, %d are counted as refused", have, s.FDBRefused)
	}
	if !strings.Contains(log.String(), "no room for static addresses") || !strings.Contains(log.String(), "vni=200") {
		t.Errorf("the log says %q", log.String())
	}
	next := *tables
	next.Static = tables.Static[30:]
	need(t, n.Publish(&next))
	s = n.workers[0].snapshot()
	if now := known(); now == 0 || n.statics == nil || len(n.statics) != now {
		t.Errorf("%d of 10 addresses have room, the node says %d", now, len(n.statics))
	}
}

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever changes, and whatever has no room: all workers and the XDP programs know the
// same addresses at the same places, those of a naive model without the refused ones.
func TestChangeAddressesAgainstModel(t *testing.T) {
	testenv.NeedRoot(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg := kernelConfig()
	cfg.FDBSize = 512 // of 1024 places in workers' tables
	n, rigs := nodeOf(t, cfg, leafTables(), 2, slog.New(slog.DiscardHandler))
	model := make(map[overlay.FDBKey]overlay.Dest)
	refusals := 0
	for round := range 60 {
		var changes []AddressChange
		for range rng.IntN(600) {
			c := AddressChange{StaticMAC: StaticMAC{VNI: VNIIndex(rng.IntN(2)), MAC: anAddress(rng.IntN(500)), Port: NoPort, Peer: PeerID(rng.IntN(2))}, Gone: rng.IntN(3) == 0}
			if rng.IntN(2) == 0 {
				c.Port, c.VLAN = PortID(rng.IntN(2)), uint16(rng.IntN(3)*10)
			}
			if rng.IntN(100) == 0 {
				c.MAC[0] |= 1 // a group: no table takes it
			}
			changes = append(changes, c)
		}
		refused, err := n.ChangeAddresses(changes)
		need(t, err)
		for i := range changes {
			if c := &changes[i]; c.Gone {
				delete(model, c.key())
			} else {
				model[c.key()] = c.dest()
			}
		}
		for i := range refused {
			if refused[i].Gone {
				t.Errorf("refused to forget %v", refused[i].MAC)
			}
			// A later change of the same call may have found room.
			if _, ok, _ := n.rule.LookAt(refused[i].key()); !ok {
				delete(model, refused[i].key())
			}
		}
		refusals += len(refused)
		known := 0
		for vni := range uint16(2) {
			for i := range 500 {
				key := overlay.MakeFDBKey(vni, anAddress(i))
				a, _, err := n.rule.LookAt(key)
				need(t, err)
				if a.At != model[key] {
					t.Fatalf("round %d: the XDP programs have %x at %x, want %x", round, key, a.At, model[key])
				}
				for _, r := range rigs {
					if at := r.w.leaf.fdb.LookupKey(key, 0); at != a.At {
						t.Fatalf("round %d: a worker has %x at %x, the XDP programs at %x", round, key, at, a.At)
					}
				}
				if a.At != overlay.DestNone {
					known++
				}
			}
		}
		tables, _ := n.KernelTables()
		if known != len(model) || known > 512 || tables.Addresses != known || tables.Capacity != 512 {
			t.Fatalf("round %d: %d addresses are known, the model has %d, and the node says %+v", round, known, len(model), tables)
		}
	}
	if refusals == 0 || rigs[0].w.leaf.stats.FDBRefused == 0 {
		t.Errorf("%d refusals, %d counted: the tables were never full", refusals, rigs[0].w.leaf.stats.FDBRefused)
	}
}

// When a worker is to change an address, the XDP programs do not know it any more, or not
// yet; when it has, they do.
func TestChangeAddressesInOrder(t *testing.T) {
	testenv.NeedRoot(t)
	n, rigs := nodeOf(t, kernelConfig(), leafTables(), 1, slog.New(slog.DiscardHandler))
	w := rigs[0].w
	w.begin() // it runs: calls wait until it reads
	defer w.end()
	first, moved := StaticMAC{MAC: hostA, Port: acc0}, StaticMAC{MAC: hostA, Port: NoPort, Peer: 1}
	for _, c := range []struct {
		name   string
		change AddressChange
		was    overlay.Dest
		is     overlay.Dest
	}{
		{"new", AddressChange{StaticMAC: first}, overlay.DestNone, first.dest()},
		{"moves", AddressChange{StaticMAC: moved}, first.dest(), moved.dest()},
		{"goes", AddressChange{StaticMAC: moved, Gone: true}, moved.dest(), overlay.DestNone},
	} {
		done := make(chan error, 1)
		go func() {
			_, err := n.ChangeAddresses([]AddressChange{c.change})
			done <- err
		}()
		for !w.mail.waiting.Load() {
			time.Sleep(time.Millisecond)
		}
		if _, ok, err := n.KernelAddress(0, hostA); ok || err != nil {
			t.Errorf("%s: the XDP programs know the address while the worker has yet to change it; error %v", c.name, err)
		}
		if at := w.leaf.fdb.Lookup(0, hostA, 0); at != c.was {
			t.Errorf("%s: the worker has it at %x, want %x", c.name, at, c.was)
		}
		w.mail.read()
		need(t, <-done)
		a, ok, err := n.KernelAddress(0, hostA)
		if at := w.leaf.fdb.Lookup(0, hostA, 0); at != c.is || a.At != c.is || ok != (c.is != overlay.DestNone) || err != nil {
			t.Errorf("%s: the worker has it at %x, the XDP programs at %x, want %x; error %v", c.name, at, a.At, c.is, err)
		}
	}
}

func TestChangeAddressesRefuses(t *testing.T) {
	testenv.NeedRoot(t)
	own, _ := nodeOf(t, leafConfig(), leafTables(), 1, slog.New(slog.DiscardHandler))
	if _, err := own.ChangeAddresses(nil); err == nil {
		t.Error("a node that learns took changes")
	}
	n, _ := nodeOf(t, kernelConfig(), leafTables(), 1, slog.New(slog.DiscardHandler))
	for _, c := range []AddressChange{
		{StaticMAC: StaticMAC{VNI: 3, MAC: hostA, Port: NoPort}},
		{StaticMAC: StaticMAC{VNI: 3, MAC: hostA, Port: NoPort}, Gone: true},
		{StaticMAC: StaticMAC{MAC: hostA, Port: NoPort, Peer: 2}},
		{StaticMAC: StaticMAC{MAC: hostA, Port: 5}},
	} {
		if _, err := n.ChangeAddresses([]AddressChange{c}); err == nil || !strings.Contains(err.Error(), "names") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
	tables := leafTables()
	tables.Static = []StaticMAC{{MAC: hostA, Port: acc0}}
	if err := n.Publish(tables); err == nil || !strings.Contains(err.Error(), "static") {
		t.Errorf("static addresses beside the kernel's: %v", err)
	}
}

// What the XDP programs know of tables follows them.
func TestRuleFollowsTables(t *testing.T) {
	testenv.NeedRoot(t)
	cfg, tables := kernelConfig(), leafTables()
	tables.VNIs[1].Refresh = time.Minute
	n, rigs := nodeOf(t, cfg, tables, 1, slog.New(slog.DiscardHandler))
	rigLayout := rigs[0].ports
	n.view.Load().ports[acc1].up = false
	r := ruleTables(n.view.Load())
	if len(r.Networks) != 3 || r.Networks[200] != 1 || !r.Peers[vtep2] || len(r.Peers) != 2 {
		t.Errorf("networks %v, peers %v", r.Networks, r.Peers)
	}
	var ports []int
	for i, yes := range r.Ports {
		if yes {
			ports = append(ports, i)
		}
	}
	if !slices.Equal(ports, []int{int(acc0), int(acc2)}) || !r.Ways[0] || !r.Ways[1] || r.Ways[2] {
		t.Errorf("ports %v, ways %v", ports, r.Ways[:3])
	}
	var vlans [bpf.VLANs]bpf.VLAN
	boundVLANs(n.view.Load(), &n.view.Load().ports[acc0], &vlans)
	if vlans[0] != (bpf.VLAN{Network: 1, Refresh: DefaultRefresh}) || vlans[20] != (bpf.VLAN{Network: 2, Refresh: time.Minute}) || vlans[30] != (bpf.VLAN{}) {
		t.Errorf("VLANs %v, %v, %v", vlans[0], vlans[20], vlans[30])
	}
	changes := []AddressChange{
		{StaticMAC: StaticMAC{VNI: 0, MAC: hostA, Port: NoPort, Peer: 0}}, {StaticMAC: StaticMAC{VNI: 0, MAC: hostB, Port: NoPort, Peer: 1}},
		{StaticMAC: StaticMAC{VNI: 1, MAC: hostA, Port: acc1}}, {StaticMAC: StaticMAC{VNI: 2, MAC: hostA, Port: acc1}},
	}
	refused, err := n.ChangeAddresses(changes)
	if err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	other := leafTables()
	other.Peers[1].VTEP, other.VNIs[2].VNI = netip.MustParseAddr("10.0.0.99"), 999
	need(t, n.Publish(other))
	for i, want := range []overlay.Dest{overlay.DestRemote(0), 0, overlay.DestLocal(uint16(acc1), 0), 0} {
		a, _, err := n.KernelAddress(changes[i].VNI, changes[i].MAC)
		if at := n.workers[0].leaf.fdb.LookupKey(changes[i].key(), 0); a.At != want || at != want || err != nil {
			t.Errorf("address %d: the XDP programs have it at %x, the worker at %x, want %x; error %v", i, a.At, at, want, err)
		}
	}
	gone := *n.layout.Load()
	gone.ports = slices.Clone(gone.ports)
	gone.ports[acc1] = seat{}
	n.layout.Store(&gone)
	need(t, n.Publish(other.keep(func(id PortID) bool { return id != acc1 })))
	if tables, _ := n.KernelTables(); tables.Addresses != 1 || n.workers[0].leaf.fdb.Len() != 1 {
		t.Errorf("the XDP programs have %d addresses and the worker %d, after the port of one has gone; want 1", tables.Addresses, n.workers[0].leaf.fdb.Len())
	}
	n.layout.Store(rigLayout)
	away := leafTables()
	away.Peers[1].Hops, away.Ports[acc0].Up = nil, false
	need(t, n.Publish(away))
	if r := ruleTables(n.view.Load()); r.Ways[1] || r.Ports[acc0] || !r.Ports[acc1] {
		t.Errorf("ways %v, ports %v", r.Ways[:2], r.Ports[:2])
	}
}

// A worker of a node with the kernel's overlay forwards what it was told of. It neither
// learns nor floods.
func TestKernelOverlayNeitherLearnsNorFloods(t *testing.T) {
	testenv.NeedRoot(t)
	n, rigs := nodeOf(t, kernelConfig(), leafTables(), 1, slog.New(slog.DiscardHandler))
	r := rigs[0]
	put := func(changes ...AddressChange) {
		t.Helper()
		if refused, err := n.ChangeAddresses(changes); err != nil || len(refused) != 0 {
			t.Fatal(refused, err)
		}
	}
	at := func(mac overlay.MAC, port PortID, vlan uint16) AddressChange {
		return AddressChange{StaticMAC: StaticMAC{VNI: 1, MAC: mac, Port: port, VLAN: vlan}}
	}
	behind := AddressChange{StaticMAC: StaticMAC{VNI: 1, MAC: hostC, Port: NoPort, Peer: 0}}
	put(at(hostA, acc0, 20), at(hostB, acc1, 30), behind)
	shim := &overlay.Fabric{Capable: true, Shim: true}
	for _, c := range []struct {
		name  string
		in    PortID
		frame []byte
		out   PortID // none: NoPort
		why   drop.Reason
	}{
		{"to the fabric", acc0, udp4(hostC, hostA, 20, 1, 10), up0, 0},
		{"to another port", acc0, udp4(hostB, hostA, 20, 1, 10), acc1, 0},
		{"from the fabric", up0, wrap(vtep2, own(), 200, udp4(hostB, hostC, 0, 1, 10), nil), acc1, 0},
		{"from the fabric with a shim", up0, wrap(vtep2, own(), 200, udp4(hostA, hostC, 0, 1, 10), shim), acc0, 0},
		{"to nobody", acc0, udp4(gwMAC, hostA, 20, 1, 10), NoPort, drop.NotMirrored},
		{"to all", acc0, udp4(bcast, hostA, 20, 1, 10), NoPort, drop.NotMirrored},
		{"from the fabric to nobody", up0, wrap(vtep2, own(), 200, udp4(gwMAC, hostC, 0, 1, 10), shim), NoPort, drop.NotMirrored},
		{"from the fabric to all", up0, wrap(vtep2, own(), 200, udp4(bcast, hostC, 0, 1, 10), nil), NoPort, drop.NotMirrored},
		{"from the fabric to a peer", up0, wrap(vtep2, own(), 200, udp4(hostC, hostC, 0, 1, 10), shim), NoPort, drop.SplitHorizon},
		{"to the port it came from", acc0, udp4(hostA, hostA, 20, 1, 10), NoPort, drop.SamePort},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := r.drops()
			out := r.send(c.in, c.frame)
			for p := range out {
				uplink := PortID(p) == up1 && c.out == up0
				if (PortID(p) == c.out || uplink) && len(out[c.out])+len(out[up1]) == 1 {
					continue
				}
				if len(out[p]) != 0 {
					t.Errorf("port %d sent %d frames", p, len(out[p]))
				}
			}
			sent := 0
			for p := range out {
				sent += len(out[p])
			}
			if (sent == 1) != (c.out != NoPort) {
				t.Errorf("%d frames left", sent)
			}
			if c.why != 0 && r.drops()[c.why] != before[c.why]+1 {
				t.Errorf("drops %v, want one more %v", r.drops(), c.why)
			}
		})
	}
	if got := r.w.leaf.fdb.Len(); got != 3 {
		t.Errorf("%d addresses are known, want the 3 that the node was told of", got)
	}
	if out := r.send(acc0, udp4(hostB, hostA, 20, 1, 10)); !bytes.Equal(out[acc1][0][12:16], []byte{0x81, 0, 0, 30}) {
		t.Errorf("the frame left with the tag %x", out[acc1][0][12:16])
	}

	// It moves, and then its port is taken from the network.
	put(at(hostB, acc0, 20))
	if out := r.send(up0, wrap(vtep2, own(), 200, udp4(hostB, hostC, 0, 1, 10), nil)); len(out[acc0]) != 1 {
		t.Error("the frame went where the host was")
	}
	put(AddressChange{StaticMAC: StaticMAC{VNI: 1, MAC: hostB}, Gone: true})
	if r.send(up0, wrap(vtep2, own(), 200, udp4(hostB, hostC, 0, 1, 10), nil)); r.drops()[drop.NotMirrored] != 5 {
		t.Errorf("drops %v", r.drops())
	}
}

// Neither forwarding nor a change of addresses allocates on the worker.
func TestKernelOverlayDoesNotAllocate(t *testing.T) {
	testenv.NeedRoot(t)
	n, rigs := nodeOf(t, kernelConfig(), leafTables(), 1, slog.New(slog.DiscardHandler))
	r := rigs[0]
	if _, err := n.ChangeAddresses([]AddressChange{{StaticMAC: StaticMAC{MAC: hostA, Port: acc0}}, {StaticMAC: StaticMAC{MAC: hostB, Port: acc1}}}); err != nil {
		t.Fatal(err)
	}
	r.links[acc1].keep = false
	known, none := udp4(hostB, hostA, 0, 1, 10), udp4(hostC, hostA, 0, 1, 10)
	if got := testing.AllocsPerRun(200, func() {
		r.links[acc0].put(known)
		r.links[acc0].put(none)
		r.now += 1000
		r.w.round(r.now)
		r.w.round(r.now)
	}); got != 0 {
		t.Errorf("%v allocations for two frames", got)
	}
	changes, full := make([]AddressChange, changeBatch), make([]bool, changeBatch)
	for i := range changes {
		changes[i].StaticMAC = StaticMAC{MAC: anAddress(i), Port: NoPort}
	}
	if got := testing.AllocsPerRun(100, func() {
		for i := range changes {
			changes[i].Gone = !changes[i].Gone
		}
		r.w.leaf.changeAddresses(changes, full)
	}); got != 0 {
		t.Errorf("%v allocations for a batch of changes", got)
	}
}

// BenchmarkNodeChangeAddresses reports how long 100,000 changes take, in two workers'
// tables and that of the XDP programs: of addresses that are new, that move, and that go.
func BenchmarkNodeChangeAddresses(b *testing.B) {
	testenv.NeedRoot(b)
	cfg := kernelConfig()
	cfg.FDBSize = 1 << 17
	n, _ := nodeOf(b, cfg, leafTables(), 2, slog.New(slog.DiscardHandler))
	changes := make([]AddressChange, 100_000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range changes {
		changes[i].StaticMAC = StaticMAC{MAC: overlay.MACFromUint64(rng.Uint64() &^ (1 << 40)), Port: NoPort}
	}
	for b.Loop() {
		for _, part := range []string{"new", "move", "go"} {
			began := time.Now()
			for i := range changes {
				changes[i].Peer, changes[i].Gone = 1-changes[i].Peer, part == "go"
			}
			if refused, err := n.ChangeAddresses(changes); err != nil || len(refused) > 0 {
				b.Fatal(len(refused), err)
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds()), part+"-ms")
		}
	}
}

// BenchmarkKernelOverlay is the work of [BenchmarkLeafHostToFabric] with an overlay of
// the kernel's, which has 100,000 addresses.
func BenchmarkKernelOverlay(b *testing.B) {
	benchEach(b, func(b *testing.B, sizes []int, flows int) {
		r := newRig(b, kernelConfig(), leafTables())
		changes := []AddressChange{{StaticMAC: StaticMAC{MAC: hostA, Port: acc0}}, {StaticMAC: StaticMAC{MAC: hostB, Port: NoPort}}}
		for i := range uint64(100_000) {
			changes = append(changes, AddressChange{StaticMAC: StaticMAC{MAC: overlay.MACFromUint64(2<<40 | 7<<32 | i), Port: NoPort}})
		}
		if refused := applyAddresses([]*worker{r.w}, changes); len(refused) > 0 {
			b.Fatal(len(refused))
		}
		meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
		bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, sizes, flows, meta,
			func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }, nil)
	})
}

// BenchmarkChangeAddresses reports how long a batch of changes keeps a worker, in a table
// of 100,000 addresses that no cache holds.
func BenchmarkChangeAddresses(b *testing.B) {
	r := newRig(b, leafConfig(), leafTables())
	const all = 100_000
	changes := make([]AddressChange, all)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range changes {
		changes[i].StaticMAC = StaticMAC{MAC: overlay.MACFromUint64(rng.Uint64() &^ (1 << 40)), Port: NoPort, Peer: PeerID(i % 2)}
	}
	full := make([]bool, all)
	r.w.leaf.changeAddresses(changes, full)
	i, worst := 0, time.Duration(0)
	for b.Loop() {
		part := changes[i : i+changeBatch]
		for j := range part {
			part[j].Peer ^= 1
		}
		began := time.Now()
		r.w.leaf.changeAddresses(part, full)
		worst = max(worst, time.Since(began))
		if i += changeBatch; i+changeBatch > all {
			i = 0
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*changeBatch), "ns/address")
	b.ReportMetric(float64(worst.Nanoseconds())/1e3, "worst-µs")
}
