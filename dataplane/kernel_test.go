package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// kernelLeaf is a leaf whose overlay is the kernel's: a bridge, with a host's port and a
// VXLAN device that does not learn, and a node beside them.
type kernelLeaf struct {
	t          *testing.T
	leaf, host *testenv.Namespace
	vtep       netip.Addr
	mac        overlay.MAC // of the host
	br         netlink.Link
	tx         int // AF_PACKET socket of the host
	cfg        Config
	tables     *Tables
	node       *Node
	stop       func()
}

const bridgeAgeing = 2 * time.Second

// newKernelLeaf makes the kernel's half.
func newKernelLeaf(t *testing.T, number byte) *kernelLeaf {
	k := &kernelLeaf{
		t: t, leaf: testenv.NewNamespace(t, "dpkleaf"), host: testenv.NewNamespace(t, "dpkhost"),
		vtep: netip.AddrFrom4([4]byte{10, 0, 0, number}), mac: overlay.MAC{2, 0, 0, 0, 7, number},
	}
	testenv.VethPair(t, k.leaf, "acc0", k.host, "eth0", testenv.VethOptions{})
	addr(t, k.leaf, "lo", k.vtep.String()+"/32")
	k.leaf.Do(t, func() {
		ageing := uint32(bridgeAgeing / (10 * time.Millisecond)) // in hundredths of a second
		br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), AgeingTime: &ageing, MulticastSnooping: new(bool)}
		br.Name = "br0"
		must(t, netlink.LinkAdd(br))
		vx := &netlink.Vxlan{LinkAttrs: netlink.NewLinkAttrs(), VxlanId: siteVNI, Port: overlay.DefaultPort, SrcAddr: k.vtep.AsSlice()}
		vx.Name, vx.MTU = "vx0", 1500
		must(t, netlink.LinkAdd(vx))
		for _, name := range []string{"acc0", "vx0"} {
			l, err := netlink.LinkByName(name)
			must(t, errors.Join(err, netlink.LinkSetMaster(l, br), netlink.LinkSetUp(l)))
		}
		must(t, netlink.LinkSetUp(br))
	})
	k.br = k.leaf.Link(t, "br0")
	k.tx = rawSocket(t, k.host, "eth0")
	return k
}

// join connects two leaves, and tells the kernels of each other's host, as EVPN would.
func (k *kernelLeaf) join(far *kernelLeaf) {
	up, there := testenv.VethPair(k.t, k.leaf, "up0", far.leaf, "up0", testenv.VethOptions{MTU: 1600})
	for i, one := range []*kernelLeaf{k, far} {
		other, near, away := far, up, there
		if i == 1 {
			other, near, away = k, there, up
		}
		addr(k.t, one.leaf, "up0", netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)}).String()+"/24")
		gw := netip.AddrFrom4([4]byte{192, 168, 0, byte(2 - i)})
		vx := one.leaf.Link(k.t, "vx0").Attrs().Index
		one.leaf.Do(k.t, func() {
			must(k.t, netlink.RouteAdd(&netlink.Route{Dst: cidr(other.vtep.String() + "/32"), Gw: gw.AsSlice()}))
			for _, e := range []netlink.Neigh{
				{Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: other.vtep.AsSlice(), HardwareAddr: make(net.HardwareAddr, 6)},
				{Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: other.vtep.AsSlice(), HardwareAddr: other.mac[:]},
				{Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: other.mac[:]}, // static
			} {
				e.LinkIndex, e.Family = vx, unix.AF_BRIDGE
				must(k.t, netlink.NeighAppend(&e))
			}
		})
		one.cfg = Config{
			Role: Leaf, Name: "leaf", VTEP: one.vtep, VXLANPort: overlay.DefaultPort, Workers: 1,
			Polling: Interrupt, RingSize: 1024, FDBSize: 1024, FDBAge: time.Minute, HoldTime: time.Second,
			Drain: 200 * time.Millisecond, MaxMTU: 1600, Seed: 1, KernelOverlay: true,
			Ports: []PortConfig{
				{Name: "acc0", Kind: Access, Egress: EgressConfig{QueueBytes: 1 << 20}},
				{Name: "up0", Kind: Uplink, Egress: EgressConfig{QueueBytes: 1 << 20}},
			},
		}
		one.tables = &Tables{
			Ports: []PortState{portState(one.leaf.Link(k.t, "acc0")), portState(near)},
			Hops:  []Hop{{Port: 1, Gateway: gw, MAC: overlay.MAC(away.Attrs().HardwareAddr), Resolved: true}},
			Peers: []Peer{{VTEP: other.vtep, Hops: []HopID{0}}},
			VNIs:  []VNI{{VNI: siteVNI}}, Bindings: []Binding{{Port: 0, VLAN: 0, VNI: 0}},
		}
	}
}

// start opens and runs the node, which knows both hosts.
func (k *kernelLeaf) start(far *kernelLeaf) {
	t := k.t
	k.leaf.Do(t, func() {
		var err error
		k.node, err = Open(k.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
	})
	must(t, k.node.Publish(k.tables))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.node.Run(ctx) }()
	k.stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-done)
		balanced(t, k.node)
		must(t, k.node.Close())
	})
	t.Cleanup(k.stop)
	for k.node.Stats().Workers[0].Bursts == 0 {
		time.Sleep(time.Millisecond)
	}
	refused, err := k.node.ChangeAddresses([]AddressChange{
		{StaticMAC: StaticMAC{MAC: k.mac, Port: 0}}, {StaticMAC: StaticMAC{MAC: far.mac, Port: NoPort, Peer: 0}},
	})
	if err != nil || len(refused) != 0 {
		t.Fatal(refused, err)
	}
}

// hears reports whether the kernel's bridge knows where the leaf's host is.
func (k *kernelLeaf) hears() (yes bool) {
	k.leaf.Do(k.t, func() {
		all, err := netlink.NeighList(k.leaf.Link(k.t, "acc0").Attrs().Index, unix.AF_BRIDGE)
		must(k.t, err)
		for _, e := range all {
			yes = yes || overlay.MAC(e.HardwareAddr) == k.mac
		}
	})
	return yes
}

// classified returns how many frames of the port met a verdict.
func (k *kernelLeaf) classified(port int, verdict string) uint64 {
	return k.node.PortInfos()[port].Classifier[verdict]
}

// rawSocket opens an AF_PACKET socket on an interface, which gives up reading soon.
func rawSocket(t *testing.T, n *testenv.Namespace, name string) (fd int) {
	index := n.Link(t, name).Attrs().Index
	n.Do(t, func() {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // htons
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		must(t, err)
		must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
		must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
		must(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
		must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}))
	})
	return fd
}

// streams count numbered frames that arrive at an interface, by stream and number.
type streams struct {
	mu  sync.Mutex
	got map[uint16]map[uint32]int
}

// listen counts until the test ends.
func listen(t *testing.T, n *testenv.Namespace, name string) *streams {
	s, fd := &streams{got: make(map[uint16]map[uint32]int)}, rawSocket(t, n, name)
	done, stop := make(chan bool), atomic.Bool{}
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for !stop.Load() {
			n, err := unix.Read(fd, b)
			if err != nil || n < 46 {
				continue
			}
			s.mu.Lock()
			stream, number := binary.BigEndian.Uint16(b[34:]), binary.BigEndian.Uint32(b[42:])
			if s.got[stream] == nil {
				s.got[stream] = make(map[uint32]int)
			}
			s.got[stream][number]++
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { stop.Store(true); <-done; _ = unix.Close(fd) })
	return s
}

// expect waits until all frames of a stream are there, and fails unless each came once.
func (s *streams) expect(t *testing.T, what string, stream uint16, frames int) {
	t.Helper()
	count := func() (different, all int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range s.got[stream] {
			different, all = different+1, all+n
		}
		return different, all
	}
	deadline := time.Now().Add(5 * time.Second)
	for n, _ := count(); n < frames && time.Now().Before(deadline); n, _ = count() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // for a second copy
	if different, all := count(); different != frames || all != frames {
		t.Errorf("%s: %d of %d frames came, and %d copies", what, different, frames, all-different)
	}
}

// numberedFrame is a frame of a stream.
func numberedFrame(dst, src overlay.MAC, stream uint16, number uint32) []byte {
	b := udp4(dst, src, 0, stream, 40)
	binary.BigEndian.PutUint32(b[42:], number)
	return b
}

// say sends frames of a stream, a few at a time.
func (k *kernelLeaf) say(dst overlay.MAC, stream uint16, from, to uint32, pause time.Duration) {
	for n := from; n < to; n++ {
		if _, err := unix.Write(k.tx, numberedFrame(dst, k.mac, stream, n)); err != nil {
			k.t.Errorf("send: %v", err)
		}
		if n%32 == 31 {
			time.Sleep(pause)
		}
	}
}

// TestKernelOverlay: known unicast goes by Loom and all else by the kernel, nothing twice;
// the kernel learns and does not age what talks; its protocols reach it; and when the node
// is gone, it carries on.
func TestKernelOverlay(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := newKernelLeaf(t, 1), newKernelLeaf(t, 2)
	a.join(b)
	a.tables.VNIs[0].Refresh = bridgeAgeing / 5
	b.tables.VNIs[0].Refresh = 15 * time.Minute // its kernel has to forget, by which we see that a's does not
	atB, atA, byA := listen(t, b.host, "eth0"), listen(t, a.host, "eth0"), listen(t, a.leaf, "acc0")

	const plain = 100
	a.say(b.mac, 1, 0, plain, time.Millisecond)
	atB.expect(t, "without nodes", 1, plain)
	b.say(a.mac, 1, 0, plain, time.Millisecond)
	atA.expect(t, "without nodes, back", 1, plain)

	// Each node starts amid traffic.
	all := sync.WaitGroup{}
	all.Go(func() { a.say(b.mac, 2, 0, 3200, 5*time.Millisecond) })
	a.start(b)
	b.start(a)
	all.Wait()
	atB.expect(t, "while nodes start", 2, 3200)

	before := a.classified(0, "redirect")
	heard, silent := 0, 0
	ended := make(chan bool)
	const many = 10_000
	all.Go(func() { a.say(b.mac, 3, 0, many, 8*time.Millisecond) })
	all.Go(func() { b.say(a.mac, 3, 0, many, 8*time.Millisecond) })
	go func() { all.Wait(); close(ended) }()
	for open := true; open; {
		select {
		case <-ended:
			open = false
		case <-time.After(50 * time.Millisecond):
			if a.hears() {
				heard++
			} else {
				silent++
			}
		}
	}
	atB.expect(t, "known unicast", 3, many)
	atA.expect(t, "known unicast, back", 3, many)
	if silent > 0 || heard < 20 {
		t.Errorf("a's bridge knew its host %d times, and %d times not", heard, silent)
	}
	if b.hears() {
		t.Error("b's bridge knows its host, although it was shown no frame of it: the test shows nothing")
	}
	shown, ours := a.classified(0, "pass_refresh"), a.classified(0, "redirect")-before
	if ours < many*9/10 || shown < 4 || shown > 100 || a.classified(1, "redirect") < many*9/10 {
		t.Errorf("of %d frames %d went by Loom, and %d were shown to the kernel; %d came back by Loom", many, ours, shown, a.classified(1, "redirect"))
	}

	// All but known unicast is flooded by the kernels, once.
	nobody := overlay.MAC{2, 0, 0, 0, 9, 9}
	a.say(bcast, 4, 0, plain, time.Millisecond)
	a.say(nobody, 5, 0, plain, time.Millisecond)
	a.say(overlay.MAC{1, 0, 0x5e, 0, 0, 9}, 6, 0, plain, time.Millisecond)
	for stream, what := range map[uint16]string{4: "broadcast", 5: "unknown unicast", 6: "multicast"} {
		atB.expect(t, what, stream, plain)
	}
	// What the link's protocols and the gateway say is the kernel's.
	for stream, dst := range map[uint16]overlay.MAC{
		7: {1, 0x80, 0xc2, 0, 0, 0x0e}, 8: {1, 0x80, 0xc2, 0, 0, 2}, 9: {1, 0x80, 0xc2, 0, 0, 0},
		10: overlay.MAC(a.br.Attrs().HardwareAddr),
	} {
		a.say(dst, stream, 0, 10, 0)
		byA.expect(t, "to "+dst.String(), stream, 10)
	}
	if drops := errors.Join(a.dropped(), b.dropped()); drops != nil {
		t.Error(drops)
	}

	// The node of the sender goes amid traffic.
	all.Go(func() { a.say(b.mac, 11, 0, 3200, 5*time.Millisecond) })
	time.Sleep(100 * time.Millisecond)
	a.stop()
	all.Wait()
	atB.expect(t, "while a's node stops", 11, 3200)
	b.stop()
	a.say(b.mac, 12, 0, plain, time.Millisecond)
	b.say(a.mac, 12, 0, plain, time.Millisecond)
	atB.expect(t, "after the nodes", 12, plain)
	atA.expect(t, "after the nodes, back", 12, plain)
}

// dropped reports what the node has dropped.
func (k *kernelLeaf) dropped() error {
	s := k.node.Stats()
	if d := s.Drops(); len(d) > 0 {
		return fmt.Errorf("the node of %v dropped %v", k.vtep, d)
	}
	return nil
}
