package dataplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// site is a leaf with one host, and beyond its uplink a plain Linux machine
// with a kernel vxlan device.
type site struct {
	leaf, host, far *testenv.Namespace
	cfg             Config
	tables          *Tables
}

const siteVNI = 100

func newSite(t *testing.T, queues int) *site {
	testenv.NeedRoot(t)
	s := &site{
		leaf: testenv.NewNamespace(t, "dpleaf"),
		host: testenv.NewNamespace(t, "dphost"),
		far:  testenv.NewNamespace(t, "dpfar"),
	}
	acc, _ := testenv.VethPair(t, s.leaf, "acc0", s.host, "eth0", testenv.VethOptions{Queues: queues})
	up, far := testenv.VethPair(t, s.leaf, "up0", s.far, "fab0", testenv.VethOptions{Queues: queues, MTU: 1600})
	addr(t, s.leaf, "up0", "192.168.0.1/24")
	addr(t, s.far, "fab0", "192.168.0.2/24")
	addr(t, s.far, "lo", "10.0.0.2/32")
	addr(t, s.host, "eth0", "172.16.0.1/24")
	s.far.Do(t, func() {
		must(t, netlink.RouteAdd(&netlink.Route{Dst: cidr("10.0.0.1/32"), Gw: net.ParseIP("192.168.0.1")}))
		vx := &netlink.Vxlan{LinkAttrs: netlink.NewLinkAttrs(), VxlanId: siteVNI, Port: overlay.DefaultPort,
			SrcAddr: net.ParseIP("10.0.0.2"), Learning: true}
		vx.Name, vx.MTU = "vx0", 1500
		must(t, netlink.LinkAdd(vx))
		must(t, netlink.LinkSetUp(vx))
		must(t, netlink.NeighAppend(&netlink.Neigh{LinkIndex: vx.Attrs().Index, Family: 7, /* AF_BRIDGE */
			Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: net.ParseIP("10.0.0.1"), HardwareAddr: make(net.HardwareAddr, 6)}))
	})
	addr(t, s.far, "vx0", "172.16.0.2/24")
	s.cfg = Config{
		Role: Leaf, Name: "leaf", VTEP: own(), VXLANPort: overlay.DefaultPort, Workers: queues,
		Polling: Interrupt, RingSize: 1024, FDBSize: 1024, FDBAge: time.Minute, HoldTime: time.Second,
		Drain: 200 * time.Millisecond, MaxMTU: 1600, Seed: 1,
		Ports: []PortConfig{
			{Name: "acc0", Kind: Access, Egress: EgressConfig{QueueBytes: 1 << 20}},
			{Name: "up0", Kind: Uplink, Egress: EgressConfig{QueueBytes: 1 << 20}},
		},
	}
	s.tables = &Tables{
		Ports: []PortState{portState(acc), portState(up)},
		Hops:  []Hop{{Port: 1, Gateway: netip.MustParseAddr("192.168.0.2"), MAC: overlay.MAC(far.Attrs().HardwareAddr), Resolved: true}},
		Peers: []Peer{{VTEP: vtep2, Hops: []HopID{0}}},
		VNIs:  []VNI{{VNI: siteVNI, Flood: []PeerID{0}}},

		Bindings: []Binding{{Port: 0}},
	}
	return s
}

func portState(l netlink.Link) PortState {
	a := l.Attrs()
	return PortState{Ifindex: a.Index, Up: true, MAC: overlay.MAC(a.HardwareAddr), MTU: a.MTU}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

func addr(t *testing.T, ns *testenv.Namespace, dev, a string) {
	t.Helper()
	l := ns.Link(t, dev)
	ns.Do(t, func() {
		parsed, err := netlink.ParseAddr(a)
		must(t, err)
		must(t, netlink.AddrAdd(l, parsed))
	})
}

// start opens the node inside the leaf's namespace and runs it.
func (s *site) start(t *testing.T) *Node {
	t.Helper()
	var n *Node
	s.leaf.Do(t, func() {
		var err error
		n, err = Open(s.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
	})
	must(t, n.Publish(s.tables))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		balanced(t, n)
		must(t, n.Close())
	})
	return n
}

func balanced(t *testing.T, n *Node) {
	t.Helper()
	for q, w := range n.Stats().Workers {
		if a := w.Account(); !a.Balances() {
			t.Errorf("worker %d: %v", q, a)
		}
	}
}

// exchange sends size bytes over TCP from one namespace to an address in
// another, which sends them back.
func exchange(t *testing.T, from, to *testenv.Namespace, at string, size int) {
	t.Helper()
	var l net.Listener
	to.Do(t, func() {
		var err error
		l, err = net.Listen("tcp4", at)
		must(t, err)
	})
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		served <- err
	}()
	var c net.Conn
	from.Do(t, func() {
		var err error
		c, err = net.DialTimeout("tcp4", at, 5*time.Second)
		must(t, err)
	})
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	sent := bytes.Repeat([]byte("warp and weft. "), size/15+1)[:size]
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-wrote, <-served); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes came back, %d were sent, or others", len(got), len(sent))
	}
}

func TestNodeTalksToKernelVXLAN(t *testing.T) {
	for _, queues := range []int{1, 2} {
		s := newSite(t, queues)
		n := s.start(t)
		exchange(t, s.host, s.far, "172.16.0.2:5001", 4<<20)
		exchange(t, s.far, s.host, "172.16.0.1:5001", 4<<20)
		st := n.Stats()
		var missing, full uint64
		for q := range st.Workers {
			for _, p := range st.Workers[q].Ports {
				missing += p.MetaMissing
				full += p.Sent.Frames
			}
		}
		if missing != 0 {
			t.Errorf("%d queues: %d frames came without metadata", queues, missing)
		}
		if full < 2*(4<<20)/1460 {
			t.Errorf("%d queues: only %d frames went through the rings", queues, full)
		}
	}
}

func TestNodeRefusesPortsInUse(t *testing.T) {
	s := newSite(t, 1)
	s.start(t)
	s.leaf.Do(t, func() {
		n, err := Open(s.cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			must(t, n.Close())
			t.Fatal("two nodes on one interface")
		}
		if !strings.Contains(err.Error(), "acc0") || !strings.Contains(err.Error(), "loom_access") {
			t.Errorf("error does not say who has what: %v", err)
		}
	})
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<20) // the first is unharmed
}

func TestOpenLeavesNothingBehindOnFailure(t *testing.T) {
	s := newSite(t, 1)
	bad := s.cfg
	bad.Ports = append([]PortConfig(nil), s.cfg.Ports...)
	bad.Ports[1].Name = "nosuch0"
	s.leaf.Do(t, func() {
		if _, err := Open(bad, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "nosuch0") {
			t.Fatalf("error: %v", err)
		}
	})
	s.start(t) // acc0 is free again
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<16)
}
