package dataplane

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// stream sends numbered datagrams from a namespace to an address in another one until it
// is stopped, and knows which of them came.
type stream struct {
	t        *testing.T
	from, at *net.UDPConn
	sent     uint64
	stopping chan struct{}
	stopped  chan struct{}
}

func newStream(t *testing.T, from, to *testenv.Namespace, at string) *stream {
	t.Helper()
	s := &stream{t: t, stopping: make(chan struct{}), stopped: make(chan struct{})}
	addr := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at))
	to.Do(t, func() {
		var err error
		s.at, err = net.ListenUDP("udp4", addr)
		must(t, err)
	})
	must(t, s.at.SetReadBuffer(8<<20))
	from.Do(t, func() {
		var err error
		s.from, err = net.DialUDP("udp4", nil, addr)
		must(t, err)
	})
	go func() {
		defer close(s.stopped)
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		var b [200]byte
		for {
			select {
			case <-s.stopping:
				return
			case <-tick.C:
				binary.BigEndian.PutUint64(b[:], s.sent)
				if _, err := s.from.Write(b[:]); err == nil {
					s.sent++
				}
			}
		}
	}()
	return s
}

// missing ends the stream and returns the numbers that did not come, or came twice.
func (s *stream) missing() (lost []uint64, twice int) {
	s.t.Helper()
	close(s.stopping)
	<-s.stopped
	seen := make([]bool, s.sent)
	for got := uint64(0); got < s.sent; got++ {
		must(s.t, s.at.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		var b [256]byte
		if _, err := s.at.Read(b[:]); err != nil {
			break
		}
		n := binary.BigEndian.Uint64(b[:])
		if seen[n] {
			twice++
		}
		seen[n] = true
	}
	for n, ok := range seen {
		if !ok {
			lost = append(lost, uint64(n))
		}
	}
	must(s.t, s.from.Close())
	must(s.t, s.at.Close())
	return lost, twice
}

// Ports and uplinks come and go while frames flow, and none of them is lost.
func TestPortsChangeUnderTraffic(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Room = 5
	s.far.Sysctl(t, "net/ipv4/conf/all/rp_filter", "0")
	n := s.start(t)
	port := func(name string, kind PortKind) PortConfig {
		return PortConfig{Name: name, Kind: kind, Egress: EgressConfig{QueueBytes: 1 << 20}}
	}
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<16) // both ends know each other
	flow := newStream(t, s.host, s.far, "172.16.0.2:7000")
	// set has the node have ports, and tables of those that are named.
	tables := *s.tables
	set := func(ids []int, ports ...PortConfig) {
		t.Helper()
		time.Sleep(20 * time.Millisecond) // frames flow
		must(t, n.SetPorts(ports))
		have := n.Ports()
		for i, p := range ports {
			if have[ids[i]].Name != p.Name {
				t.Fatalf("ports %+v, want %s at %d", have, p.Name, ids[i])
			}
		}
		next := tables
		next.Ports, next.Bindings = make([]PortState, len(have)), nil
		next.Peers = []Peer{{VTEP: vtep2}}
		for id, p := range have {
			if p.Name == "" {
				continue
			}
			next.Ports[id] = portState(s.leaf.Link(t, p.Name))
			if p.Kind == Access {
				next.Bindings = append(next.Bindings, Binding{Port: PortID(id)})
			}
		}
		for h, hop := range next.Hops {
			if int(hop.Port) < len(have) && have[hop.Port].Kind == Uplink {
				next.Peers[0].Hops = append(next.Peers[0].Hops, HopID(h))
			}
		}
		must(t, n.Publish(&next))
		s.leaf.Do(t, func() {
			// On a loaded machine the kernel takes its time to give the queue of a port back that
			// was just closed.
			for end := time.Now().Add(5 * time.Second); n.followDevices() && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
		})
		for id, i := range n.settled(t) {
			if i.Open != (have[id].Name != "") || i.Name != have[id].Name {
				t.Fatalf("port %d, %q: open %v: %s", id, i.Name, i.Open, i.Error)
			}
		}
	}
	testenv.VethPair(t, s.leaf, "acc1", s.host, "eth1", testenv.VethOptions{})
	_, far := testenv.VethPair(t, s.leaf, "up1", s.far, "fab1", testenv.VethOptions{MTU: 1600})
	tables.Hops = append(slices.Clone(tables.Hops), Hop{Port: 2, Gateway: netip.MustParseAddr("192.168.1.2"), MAC: overlay.MAC(far.Attrs().HardwareAddr), Resolved: true})
	acc0, acc1, up0, up1 := port("acc0", Access), port("acc1", Access), port("up0", Uplink), port("up1", Uplink)

	set([]int{0, 1, 2, 3}, acc0, up0, up1, acc1)
	set([]int{0, 2, 3}, acc0, up1, acc1) // the uplink in use goes
	before := n.Stats().Workers[0].Ports[1]
	if before.Sent.Frames == 0 {
		t.Error("up0 has sent nothing: the test takes no uplink in use away")
	}
	if n.layout.Load().tags() != 1<<1 {
		t.Errorf("tags %b", n.layout.Load().tags())
	}
	acc0.Egress.QueueBytes, acc0.Egress.Rate, acc0.Egress.Burst = 2<<20, 1e9, 1<<20
	set([]int{1, 0, 2}, up0, acc0, up1) // comes back, and acc1 goes
	if after := n.Stats().Workers[0].Ports[1]; after.Sent.Frames < before.Sent.Frames || n.layout.Load().uplinkName(0) != "up0" {
		t.Errorf("up0 has lost its counters, or its tag: %+v", n.layout.Load())
	}
	set([]int{0, 1}, acc0, up0)
	time.Sleep(20 * time.Millisecond)
	lost, twice := flow.missing()
	if len(lost) > 0 || twice > 0 || flow.sent < 100 {
		t.Errorf("of %d datagrams %d are lost, %d came twice: %v; dropped %v", flow.sent, len(lost), twice, lost, n.Stats())
	}
	t.Logf("%d datagrams", flow.sent)
	if err := n.SetPorts([]PortConfig{acc0, up0, acc1, up1, port("up2", Uplink), port("up3", Uplink)}); err == nil {
		t.Error("there is room for 5 ports, and 6 are taken")
	}
}

// settled returns what ports got when those that were removed are closed.
func (n *Node) settled(t *testing.T) []PortInfo {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		infos, have := n.PortInfos(), n.Ports()
		if !slices.ContainsFunc(infos, func(i PortInfo) bool {
			return i.Name != "" && !slices.ContainsFunc(have, func(p PortConfig) bool { return p.Name == i.Name })
		}) {
			return infos
		}
		if time.Now().After(end) {
			t.Fatalf("ports that were removed are not closed: %+v", infos)
		}
	}
}

// TestRemovedPortDrains: what waits for a port that goes is sent, and nobody has to wait
// for that but the port itself, if it comes back.
func TestRemovedPortDrains(t *testing.T) {
	const datagrams, size = 40, 1000
	s := newSite(t, 1)
	s.cfg.Drain = 30 * time.Second
	s.cfg.Room = 3
	n := s.start(t)
	slow := slices.Clone(s.cfg.Ports)
	slow[0].Egress = EgressConfig{QueueBytes: 1 << 20, Rate: 8 * size * datagrams / 2, Burst: 2000} // two seconds
	must(t, n.SetPorts(slow))
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<10)
	var at *net.UDPConn
	s.host.Do(t, func() {
		var err error
		at, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(172, 16, 0, 1), Port: 7000})
		must(t, err)
	})
	defer at.Close()
	s.far.Do(t, func() {
		from, err := net.DialUDP("udp4", nil, at.LocalAddr().(*net.UDPAddr))
		must(t, err)
		defer from.Close()
		for range datagrams {
			_, err := from.Write(make([]byte, size))
			must(t, err)
		}
	})
	waiting := func() uint64 { return n.Stats().Workers[0].Ports[0].QueueFrames }
	for end := time.Now().Add(5 * time.Second); waiting() < datagrams/2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d frames wait", waiting())
		}
	}
	must(t, n.SetPorts(slow[1:]))
	if waiting() == 0 {
		t.Error("SetPorts waited until all was sent")
	}
	if i := n.PortInfos()[0]; !i.Open {
		t.Error("a port for which frames wait was closed")
	}
	s.leaf.Do(t, func() { n.followDevices(); n.lookAtDevices() }) // not their business
	must(t, n.SetPorts(slow))                                     // has its place again when the one before is closed
	for got := range datagrams {
		must(t, at.SetReadDeadline(time.Now().Add(5*time.Second)))
		if _, err := at.Read(make([]byte, 2*size)); err != nil {
			t.Fatalf("%d of %d datagrams came: %v", got, datagrams, err)
		}
	}
	// Nobody waits for it any more: it is closed in its own time.
	must(t, n.SetPorts(slow[1:]))
	n.settled(t)
}

// A node may start with no ports at all.
func TestNodeStartsWithoutPorts(t *testing.T) {
	s := newSite(t, 1)
	ports := s.cfg.Ports
	s.cfg.Ports, s.cfg.Room = nil, len(ports)
	tables := s.tables
	s.tables = &Tables{}
	n := s.start(t)
	if reasons := Unready(n.Ports(), n.PortInfos(), s.tables); len(reasons) > 0 {
		t.Errorf("it is not ready: %v", reasons)
	}
	must(t, n.SetPorts(ports))
	must(t, n.Publish(tables))
	s.leaf.Do(t, func() { n.followDevices() })
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<16)
	// A port whose frames are to be the kernel's while nobody serves it is opened anew.
	open := slices.Clone(ports)
	open[0].FailOpen = true
	s.leaf.Do(t, func() { must(t, n.SetPorts(open)) }) // where the old program is
	if i := n.PortInfos()[0]; i.Open {
		t.Error("the port is open as before")
	}
	s.leaf.Do(t, func() {
		for end := time.Now().Add(5 * time.Second); n.followDevices() && time.Now().Before(end); {
			time.Sleep(reopenAfter) // the kernel has yet to give the queue back
		}
	})
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<16)
	must(t, n.SetPorts(nil))
	for _, i := range n.settled(t) {
		if i.Open || i.Name != "" {
			t.Errorf("%+v is left", i)
		}
	}
}

// An uplink whose interface is missing keeps others from sending here, and no start from
// ending.
func TestMissingUplinkIsNotReady(t *testing.T) {
	ports := []PortConfig{{Name: "up0", Kind: Uplink, Optional: true}, {}, {Name: "acc0", Kind: Access, Optional: true}}
	infos := []PortInfo{{Error: "no such interface"}, {}, {}}
	got := Unready(ports, infos, &Tables{Ports: make([]PortState, 3)})
	if len(got) != 1 || got[0].Port != "up0" || !got[0].Forwards() {
		t.Errorf("reasons %+v, want up0, without which the node forwards", got)
	}
}

// A worker's frames add up whatever ports come and go, and a place that another port gets
// begins to count anew.
func TestPlacesGoToOthers(t *testing.T) {
	cfg := leafConfig()
	cfg.Room = 6
	r := newRig(t, cfg, leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	r.send(acc0, udp4(hostB, hostA, 0, 1, 100))
	s := newSeats(6)
	now := time.Unix(1000, 0)
	l, err := s.arrange(Leaf, cfg.Ports, now)
	must(t, err)
	r.ports = l
	// acc1 goes: what was learned behind it does, too.
	without := slices.Delete(slices.Clone(cfg.Ports), int(acc1), int(acc1)+1)
	l, err = s.arrange(Leaf, without, now)
	must(t, err)
	r.ports = l
	r.publish(leafTables())
	out := r.send(acc0, udp4(hostB, hostA, 0, 1, 100))
	if len(out[acc1]) != 0 || len(out[up0])+len(out[up1]) != 2 {
		t.Errorf("a frame for a host behind a port that is gone went to %d, %d, %d; it is to be flooded", len(out[acc1]), len(out[up0]), len(out[up1]))
	}
	r.send(acc1, udp4(hostA, hostB, 0, 1, 10)) // it is not closed yet
	if r.drops()[drop.VLANUnknown] != 1 {
		t.Errorf("a frame from a port that goes: %v", r.drops())
	}
	link := r.w.detach(&r.w.ports[acc1]).(*memLink)
	*link = memLink{t: t, area: link.area, size: link.size, keep: true}
	r.w.reclaim(&r.w.ports[acc1])
	r.balance()
	// After its rest the place is another port's.
	more := append(without, PortConfig{Name: "new0", Kind: Access}, PortConfig{Name: "new1", Kind: Uplink})
	for i := range more {
		more[i].Egress.QueueBytes = 1 << 20
	}
	l, err = s.arrange(Leaf, more, now.Add(portRest))
	must(t, err)
	if id := l.find("new1", Uplink); PortID(id) != acc1 {
		t.Fatalf("the ports are %+v: new1 is to have the place of acc1", l.configs())
	}
	r.ports = l
	for _, id := range []PortID{acc1, 5} {
		p := &l.ports[id].PortConfig
		r.w.seat(id, p, r.w.newEgress(id, &p.Egress))
	}
	r.links = append(r.links, &memLink{t: t, area: link.area, size: link.size, keep: true})
	r.w.attach(&r.w.ports[acc1], link)
	r.w.attach(&r.w.ports[5], r.links[5])
	tables := leafTables()
	tables.Ports = append(tables.Ports, tables.Ports[0])
	tables.Bindings = []Binding{{acc0, 0, 0}, {5, 0, 0}, {acc1, 30, 1}} // those of acc1 are old
	tables.Hops = append(tables.Hops, Hop{Port: acc1, Gateway: netip.MustParseAddr("192.168.2.1"), MAC: gwMAC, Resolved: true})
	tables.Peers[0].Hops, tables.Peers[1].Hops = []HopID{2}, []HopID{2}
	r.publish(tables)
	out = r.send(5, udp4(bcast, hostC, 0, 1, 10))
	if len(out[acc0]) != 1 || len(out[acc1]) != 2 {
		t.Errorf("a frame from the new port: %d to acc0, %d by the new uplink, want 1 and 2; %v", len(out[acc0]), len(out[acc1]), r.drops())
	}
	if got := r.w.snapshot().Ports[acc1]; got.Received.Frames != 0 || got.Sent.Frames != 2 {
		t.Errorf("the new uplink's counters begin at %+v", got)
	}
	if r.w.gone.Received.Frames != 2 || r.w.gone.Dropped != 1 {
		t.Errorf("of acc1 remain %+v", r.w.gone)
	}
	if allocs := testing.AllocsPerRun(100, func() { r.w.round(r.now) }); allocs != 0 {
		t.Errorf("%v allocations a round", allocs)
	}
}
