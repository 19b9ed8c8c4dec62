package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

var (
	kernelVTEP = netip.MustParseAddr("10.0.0.1")
	farVTEP    = netip.MustParseAddr("10.0.0.2")
)

func kernelModel() *bridge.Model {
	return &bridge.Model{
		VTEP: kernelVTEP, UDPPort: 8472, Peers: []netip.Addr{farVTEP},
		Domains: []bridge.Domain{{VNI: 100, BridgeName: "br0", DeviceName: "vx100", Ageing: 20 * time.Second, MTU: 1500}, {VNI: 200, BridgeName: "br", VLAN: 20, DeviceName: "svd", MTU: 1450}},
		Ports: []bridge.Port{
			{Index: 7, Name: "eth3", VLANs: []bridge.Binding{{Tag: 0, VNI: 100}, {Tag: 20, VNI: 200}}},
			{Index: 8, Name: "eth1", VLANs: []bridge.Binding{{Tag: 0, VNI: 100}}}, // an uplink
		},
		Left: []bridge.Left{{Name: "eth4", Reason: bridge.STP, Detail: "spanning tree: blocking"}},
	}
}

func kernelNode(t *testing.T) *node {
	t.Helper()
	l, err := config.ParseLeaf("leafd.yaml", []byte("overlay: kernel\nuplinks: [{interface: eth1}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &node{file: l, common: l.Common, dp: l.ToDataplane()}
}

// What the kernel says completes the file; a bridge's port that is listed as an uplink
// stays one.
func TestDiscover(t *testing.T) {
	n := kernelNode(t).discover(kernelModel(), dataplane.LargestMTU)
	o := n.overlay()
	if n.dp.VTEP != kernelVTEP || n.dp.VXLANPort != 8472 || !n.dp.KernelOverlay || !slices.Equal(o.Peers, []netip.Addr{farVTEP}) {
		t.Errorf("VTEP %v, UDP port %d, kernel's %t, peers %v", n.dp.VTEP, n.dp.VXLANPort, n.dp.KernelOverlay, o.Peers)
	}
	if len(n.dp.Ports) != 2 || n.dp.Ports[0].Kind != dataplane.Uplink || n.dp.Ports[1].Name != "eth3" || n.dp.Ports[1].Kind != dataplane.Access {
		t.Errorf("ports are %+v", n.dp.Ports)
	}
	if a := o.Access[0]; a.VNI != 100 || len(a.VLANs) != 1 || a.VLANs[20] != 200 {
		t.Errorf("eth3 is in %+v", a)
	}
	if v := o.VNIs; len(v) != 2 || v[0].Refresh != 5*time.Second || v[1].Refresh != 0 || v[0].Flood == nil || len(v[0].Flood) != 0 {
		t.Errorf("networks are %+v", v)
	}
	if n.dp.Room <= len(n.dp.Ports)+4 {
		t.Errorf("there is room for %d ports", n.dp.Room)
	}
	var out strings.Builder
	n.printKernel(&out)
	for _, want := range []string{"VTEP 10.0.0.1, UDP port 8472, 1 peers", "VNI 200: bridge br VLAN 20, svd, MTU 1450", "port eth3: untagged in VNI 100, VLAN 20 in VNI 200"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not say %q", out.String(), want)
		}
	}
	if f := leftFindings(n.model); len(f) != 1 || f[0].Fatal || f[0].Problem != "eth4 is left to the kernel: spanning tree: blocking" {
		t.Errorf("findings are %+v", f)
	}
}

// addressBook is a data plane that keeps what a follower tells, and has room for some.
type addressBook struct {
	room int
	has  map[overlay.MAC]dataplane.AddressChange
	err  error
}

func (a *addressBook) change(list []dataplane.AddressChange) (refused []dataplane.AddressChange, err error) {
	if a.err != nil {
		return nil, a.err
	}
	for _, c := range list {
		delete(a.has, c.MAC)
		switch {
		case c.Gone:
		case len(a.has) >= a.room:
			refused = append(refused, c)
		default:
			a.has[c.MAC] = c
		}
	}
	return refused, nil
}

// Addresses get the data plane's numbers. Those for which there is no room, or no number
// yet, wait, and are forgotten when the kernel forgets them.
func TestFollowerNumbersAddresses(t *testing.T) {
	r, _ := newReloader(t, Leaf, kernelFile)
	tables := &dataplane.Tables{
		Ports: make([]dataplane.PortState, 2), VNIs: []dataplane.VNI{{VNI: 200}, {VNI: 100}}, Peers: []dataplane.Peer{{}, {VTEP: farVTEP}},
	}
	book := &addressBook{room: 2, has: make(map[overlay.MAC]dataplane.AddressChange)}
	f := &follower{
		ctx: t.Context(), again: r, change: book.change, log: slog.New(slog.DiscardHandler), model: kernelModel(),
		tables: func() *dataplane.Tables { return tables }, waiting: make(map[addressKey]bridge.Place), stale: make(map[addressKey]struct{}),
		ports: func() []dataplane.PortConfig {
			return []dataplane.PortConfig{{Name: "eth1", Kind: dataplane.Uplink}, {Name: "eth3", Kind: dataplane.Access}}
		},
	}
	f.number()
	mac := func(i byte) overlay.MAC { return overlay.MAC{2, 0, 0, 0, 0, i} }
	far, near := bridge.Place{VTEP: farVTEP}, bridge.Place{Port: 7, Tag: 20}
	f.ChangeAddresses([]bridge.Change{
		{VNI: 100, MAC: mac(1), To: far}, {VNI: 200, MAC: mac(2), To: near}, {VNI: 100, MAC: mac(3), To: far}, // one too many
		{VNI: 300, MAC: mac(4), To: far}, {VNI: 100, MAC: mac(5), To: bridge.Place{VTEP: kernelVTEP}}, // no such network, no such peer
	})
	if c := book.has[mac(1)]; c.VNI != 1 || c.Port != dataplane.NoPort || c.Peer != 1 {
		t.Errorf("an address behind a VTEP is %+v", c)
	}
	if c := book.has[mac(2)]; c.VNI != 0 || c.Port != 1 || c.VLAN != 20 {
		t.Errorf("an address behind a port is %+v", c)
	}
	if len(book.has) != 2 || len(f.waiting) != 3 {
		t.Errorf("the data plane has %d addresses, and %d wait", len(book.has), len(f.waiting))
	}
	f.ChangeAddresses([]bridge.Change{{VNI: 300, MAC: mac(4)}, {VNI: 100, MAC: mac(5)}, {VNI: 100, MAC: mac(1)}})
	if c := book.has[mac(3)]; c.Peer != 1 || len(f.waiting) != 0 {
		t.Errorf("with room for it, the third address is %+v; %d wait", c, len(f.waiting))
	}
	book.err = errors.New("no")
	f.ChangeAddresses([]bridge.Change{{VNI: 100, MAC: mac(6), To: far}})
	f.timer.Stop() // the test tries again by itself
	book.err, book.room = nil, 9
	f.retry(len(f.waiting))
	if c := book.has[mac(6)]; c.Peer != 1 || len(f.waiting) != 0 {
		t.Errorf("after an error an address is %+v; %d wait", c, len(f.waiting))
	}
	book.err = errors.New("no")
	f.ChangeAddresses([]bridge.Change{{VNI: 100, MAC: mac(6)}, {VNI: 200, MAC: mac(2), To: bridge.Place{VTEP: kernelVTEP}}}) // the second one waits, too
	f.timer.Stop()
	book.err = nil
	f.retry(len(f.waiting))
	for _, i := range []byte{2, 6} {
		if c, ok := book.has[mac(i)]; ok {
			t.Errorf("an address that has gone while the data plane failed is still %+v", c)
		}
	}
	if _, ok := f.waiting[addressKey{200, mac(2)}]; !ok || len(f.stale) != 0 {
		t.Errorf("%v wait, %v are to be deleted", f.waiting, f.stale)
	}
}

const kernelFile = "overlay: kernel\nuplinks: [{interface: eth1}]\n"

// A bridge's port for which there is no room is the kernel's, and the file can be
// reloaded all the same.
func TestReloadBesideAPortWithoutRoom(t *testing.T) {
	r, p := newReloader(t, Leaf, kernelFile)
	p.full = "eth3"
	if _, err := r.setModel(t.Context(), kernelModel()); err != nil {
		t.Fatal(err)
	}
	want := []string{"eth1 uplink"}
	if got := portsOf(p.ports); !slices.Equal(got, want) {
		t.Errorf("ports %q, want %q", got, want)
	}
	r.write(t, kernelFile+"log: {level: debug}\n")
	if changed, err := r.reload(t.Context()); !changed || err != nil {
		t.Errorf("reload: changed %v, error %v", changed, err)
	}
	if got := portsOf(p.ports); !slices.Equal(got, want) || len(p.overlay.VNIs) != 2 {
		t.Errorf("ports %q, want %q; networks %+v", got, want, p.overlay.VNIs)
	}
	p.full = "eth1"
	if _, err := r.setModel(t.Context(), kernelModel()); err == nil {
		t.Error("an uplink without room is no error")
	}
}

// A model that the data plane refuses in part is taken back.
func TestModelFailsWhole(t *testing.T) {
	r, p := newReloader(t, Leaf, kernelFile)
	before := r.now.Load()
	p.refuses["tables"] = errors.New("no")
	if _, err := r.setModel(t.Context(), kernelModel()); err == nil {
		t.Fatal("no error")
	}
	if got := portsOf(p.ports); !slices.Equal(got, []string{"eth1 uplink"}) || r.now.Load() != before {
		t.Errorf("ports are %q", got)
	}
	// The ports of a node that was handed over are not to be put back either.
	p.refuses["ports"], p.calls = dataplane.ErrOver, nil
	if _, err := r.setModel(t.Context(), kernelModel()); !errors.Is(err, dataplane.ErrOver) || len(p.calls) != 1 {
		t.Errorf("handed over: error %v, calls %q", err, p.calls)
	}
}

// TestModelIsTriedAgain: what the data plane refuses for a while is put in force without
// anything new from the kernel, addresses too.
func TestModelIsTriedAgain(t *testing.T) {
	for _, what := range []string{"tables", "addresses"} {
		t.Run(what, func(t *testing.T) {
			r, p := newReloader(t, Leaf, kernelFile)
			tables := &dataplane.Tables{Ports: make([]dataplane.PortState, 2), VNIs: []dataplane.VNI{{VNI: 100}}, Peers: []dataplane.Peer{{VTEP: farVTEP}}}
			book := &addressBook{room: 9, has: make(map[overlay.MAC]dataplane.AddressChange)}
			var log bytes.Buffer
			f := &follower{
				ctx: t.Context(), again: r, change: book.change, log: slog.New(slog.NewTextHandler(&log, nil)),
				tables: func() *dataplane.Tables { return tables }, ports: p.Ports, waiting: make(map[addressKey]bridge.Place), stale: make(map[addressKey]struct{}),
			}
			no := errors.New("no")
			p.refuses["tables"], book.err = no, no
			if what == "addresses" {
				delete(p.refuses, "tables")
			}
			near := overlay.MAC{2, 0, 0, 0, 0, 2}
			f.SetModel(kernelModel())
			f.ChangeAddresses([]bridge.Change{{VNI: 100, MAC: near, To: bridge.Place{Port: 7}}})
			// state returns what is in force, and the pause before the next try.
			state := func() (ports, addresses int, pause time.Duration) {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(p.ports), len(book.has), f.pause
			}
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if _, _, pause := state(); pause >= 4*firstPause {
					break
				}
				if time.Now().After(end) {
					t.Fatal("it is not tried again, or without larger pauses")
				}
			}
			if ports, addresses, _ := state(); ports != map[string]int{"tables": 1, "addresses": 2}[what] || addresses != 0 {
				t.Errorf("refused: %d ports, %d addresses", ports, addresses)
			}
			f.mu.Lock()
			if n := strings.Count(log.String(), "level=ERROR"); n == 0 || n > 2 {
				t.Errorf("%d errors are logged: %s", n, &log)
			}
			delete(p.refuses, "tables")
			book.err = nil
			f.mu.Unlock()
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				ports, addresses, pause := state()
				if ports == 2 && addresses == 1 && pause == 0 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%d ports, %d addresses are in force", ports, addresses)
				}
			}
		})
	}
}

// As long as the ports are a predecessor's, addresses are told to the data plane, and a
// model is not put in force; then it is.
func TestFollowerWaitsForThePorts(t *testing.T) {
	r, p := newReloader(t, Leaf, kernelFile)
	tables := &dataplane.Tables{Ports: make([]dataplane.PortState, 1), VNIs: []dataplane.VNI{{VNI: 100}}, Peers: []dataplane.Peer{{VTEP: farVTEP}}}
	book := &addressBook{room: 9, has: make(map[overlay.MAC]dataplane.AddressChange)}
	f := &follower{
		held: true, ctx: t.Context(), again: r, change: book.change, log: slog.New(slog.DiscardHandler),
		tables: func() *dataplane.Tables { return tables }, ports: p.Ports, waiting: make(map[addressKey]bridge.Place), stale: make(map[addressKey]struct{}),
	}
	f.SetModel(kernelModel())
	far, near := overlay.MAC{2, 0, 0, 0, 0, 1}, overlay.MAC{2, 0, 0, 0, 0, 2}
	f.ChangeAddresses([]bridge.Change{{VNI: 100, MAC: far, To: bridge.Place{VTEP: farVTEP}}, {VNI: 100, MAC: near, To: bridge.Place{Port: 7}}})
	if len(p.calls) > 0 || len(book.has) != 1 || book.has[far].Gone {
		t.Errorf("held: calls %q, addresses %v", p.calls, book.has)
	}
	tables.Ports = make([]dataplane.PortState, 2)
	f.proceed()
	if got := portsOf(p.ports); len(got) != 2 || len(book.has) != 2 || book.has[near].Port != 1 {
		t.Errorf("afterwards: calls %q, ports %q, addresses %v", p.calls, got, book.has)
	}
}

// A port whose frames would not fit packet buffers, which are made once, is the kernel's:
// at the start as later, and over a reload.
func TestWidePortsAreTheKernels(t *testing.T) {
	m := kernelModel()
	m.Ports[0].MTU = dataplane.LargestMTU + 1
	if n := kernelNode(t).discover(m, dataplane.LargestMTU); len(n.dp.Ports) != 1 {
		t.Errorf("at the start: ports %q", portsOf(n.dp.Ports))
	}
	if f := wideFindings(m, dataplane.LargestMTU); len(f) != 1 || f[0].Place != "eth3" || f[0].Fatal {
		t.Errorf("findings are %+v", f)
	}
	r, p := newReloader(t, Leaf, kernelFile)
	for _, tc := range []struct{ mtu, ports int }{{1500, 2}, {dataplane.MaxMTU(2048) + 1, 1}, {dataplane.MaxMTU(2048), 2}, {2000, 1}} {
		m := kernelModel()
		m.Ports[0].MTU = tc.mtu
		if _, err := r.setModel(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got := portsOf(p.ports); len(got) != tc.ports {
			t.Errorf("MTU %d: ports %q", tc.mtu, got)
		}
	}
	r.write(t, kernelFile+"log: {level: debug}\n")
	if _, err := r.reload(t.Context()); err != nil || len(p.ports) != 1 {
		t.Errorf("reloaded: ports %q, error %v", portsOf(p.ports), err)
	}
}

// A port for which there is no room until another's number has rested is taken then,
// whether or not the kernel has something to say.
func TestPortWaitsForRoom(t *testing.T) {
	r, p := newReloader(t, Leaf, kernelFile)
	p.full, p.wait = "eth3", 20*time.Millisecond
	tables := &dataplane.Tables{Ports: make([]dataplane.PortState, 2)}
	f := &follower{
		ctx: t.Context(), again: r, log: slog.New(slog.DiscardHandler), tables: func() *dataplane.Tables { return tables }, ports: p.Ports,
		waiting: make(map[addressKey]bridge.Place), stale: make(map[addressKey]struct{}),
	}
	f.SetModel(kernelModel())
	ports := func() []string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return portsOf(p.ports)
	}
	if got := ports(); len(got) != 1 {
		t.Errorf("without room: ports %q", got)
	}
	f.mu.Lock()
	p.full = ""
	f.mu.Unlock()
	for end := time.Now().Add(5 * time.Second); len(ports()) != 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("with room: ports %q", ports())
		}
	}
}
