package dataplane

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/testenv"
)

// A queue that somebody else has keeps the port closed, and nobody waiting: counters are
// read meanwhile, and a port behind it opens. When the queue is free, the port opens.
func TestBusyQueueHoldsNobodyUp(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Ports = append(slices.Clone(s.cfg.Ports), PortConfig{Name: "acc1", Kind: Access, Optional: true, Egress: EgressConfig{QueueBytes: 1 << 20}})
	s.cfg.Ports[0].Optional = true
	s.leaf.DeleteLink(t, "acc0")
	s.tables.Ports[0] = PortState{}
	s.tables.Ports = append(s.tables.Ports, PortState{})
	var n *Node
	s.leaf.Do(t, func() {
		var err error
		n, err = Open(s.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
	})
	t.Cleanup(func() { must(t, n.Close()) })
	n.serving = true // as if the workers ran

	busy, _ := testenv.VethPair(t, s.leaf, "acc0", s.host, "eth0", testenv.VethOptions{})
	free, _ := testenv.VethPair(t, s.leaf, "acc1", s.host, "eth1", testenv.VethOptions{})
	u, err := xsk.NewUmem(xsk.UmemConfig{Frames: 1024, FrameSize: 2048})
	must(t, err)
	var other *xsk.Socket
	s.leaf.Do(t, func() {
		other, err = xsk.Open(u, xsk.SocketConfig{Ifindex: busy.Attrs().Index, Name: "acc0", RX: 256, TX: 256, Fill: 256, Completion: 256, Generic: true})
		must(t, err)
	})
	tables := *s.tables
	tables.Ports = slices.Clone(s.tables.Ports)
	tables.Ports[0], tables.Ports[2] = portState(busy), portState(free)
	must(t, n.Publish(&tables))
	// The device watcher, in the namespace: what Run starts is elsewhere.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		s.leaf.Do(t, func() {
			for {
				n.followDevices()
				select {
				case <-stop:
					return
				case <-time.After(reopenAfter):
				}
			}
		})
	}()
	t.Cleanup(func() { close(stop); <-stopped })

	longest, opened := time.Duration(0), time.Duration(0)
	for start := time.Now(); time.Since(start) < 2*time.Second; time.Sleep(time.Millisecond) {
		asked := time.Now()
		ports := n.Stats().Ports
		longest = max(longest, time.Since(asked))
		if ports[0].Open {
			t.Fatal("a port is open whose queue is somebody else's")
		}
		if ports[2].Open && opened == 0 {
			opened = time.Since(start)
		}
	}
	if longest > xsk.DefaultRetry*8/10 { // a loaded machine takes its time, too
		t.Errorf("who read counters waited %v for a queue that was busy", longest)
	}
	if opened == 0 {
		t.Error("the port behind did not open")
	}
	t.Logf("counters took %v at the longest, the port behind opened after %v", longest, opened)
	if err := n.Stats().Ports[0].Error; !strings.Contains(err, "acc0") || !strings.Contains(err, "busy") {
		t.Errorf("the port's error is %q", err)
	}
	must(t, other.Close())
	must(t, u.Close())
	for start := time.Now(); !n.Stats().Ports[0].Open; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatalf("the port did not open after its queue was free: %s", n.Stats().Ports[0].Error)
		}
	}
}

// An index that belongs to another interface now is no reason to touch that one.
func TestPortOpensUnderItsNameOnly(t *testing.T) {
	s := newSite(t, 1)
	other, _ := testenv.VethPair(t, s.leaf, "other0", s.host, "eth1", testenv.VethOptions{})
	s.leaf.Do(t, func() {
		n, err := Open(s.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
		defer func() { must(t, n.Close()) }()
		must(t, n.closeDevice(n.devices[0]))
		if err := n.openDevice(n.devices[0], other.Attrs().Index); err == nil || !strings.Contains(err.Error(), "acc0") {
			t.Errorf("port acc0 opened on the index of other0: error %v", err)
		}
		l, err := netlink.LinkByName("other0")
		must(t, err)
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			t.Error("other0 has a program")
		}
		must(t, n.openDevice(n.devices[0], s.tables.Ports[0].Ifindex))
	})
}
