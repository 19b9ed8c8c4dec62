package dataplane

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// TestFramesAreTheKernelsUntilWorkersForward: a start takes nothing from the kernel before
// it can forward. What waited on rings meanwhile came late, in a burst that hosts had no room for.
func TestFramesAreTheKernelsUntilWorkersForward(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Ports[0].FailOpen = true
	var n *Node
	s.leaf.Do(t, func() {
		var err error
		n, err = Open(s.cfg, slog.New(slog.DiscardHandler))
		must(t, err)
	})
	var host net.Conn
	s.host.Do(t, func() {
		var err error
		host, err = net.Dial("udp4", "172.16.0.255:7000")
		must(t, err)
	})
	defer host.Close()
	// send has the host send, and returns how many frames went to workers, and to the kernel.
	send := func() (workers, kernel uint64) {
		const frames = 20
		before := n.PortInfos()[0].Classifier
		for range frames {
			_, err := host.Write([]byte("hello"))
			must(t, err)
		}
		for end := time.Now().Add(5 * time.Second); workers+kernel < frames && time.Now().Before(end); time.Sleep(time.Millisecond) {
			now := n.PortInfos()[0].Classifier
			workers, kernel = now["redirect"]-before["redirect"], now["pass_no_socket"]-before["pass_no_socket"]
		}
		if workers+kernel < frames {
			t.Errorf("%d frames to workers and %d to the kernel are not all %d", workers, kernel, frames)
		}
		return workers, kernel
	}
	before := func(what string) {
		t.Helper()
		if workers, _ := send(); workers > 0 || n.PortInfos()[0].Open {
			t.Errorf("%s: %d frames went to workers; the port is open: %t", what, workers, n.PortInfos()[0].Open)
		}
	}
	before("before there are tables")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-done)
		balanced(t, n)
		must(t, n.Close())
	}()
	time.Sleep(20 * time.Millisecond)
	before("workers run without tables")
	must(t, n.Publish(s.tables))
	for end := time.Now().Add(5 * time.Second); !n.PortInfos()[0].Open; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the port does not open: %+v", n.PortInfos()[0])
		}
	}
	if _, kernel := send(); kernel > 0 {
		t.Errorf("with workers that forward %d frames went to the kernel", kernel)
	}
	exchange(t, s.host, s.far, "172.16.0.2:5001", 1<<16)
}

// An uplink that the kernel calls up but that could not be opened, as after it
// returned with fewer queues, gets no share of the traffic until it is open.
func TestPortsThatAreNotOpenAreDown(t *testing.T) {
	cfg := leafConfig()
	cfg.VTEP, cfg.VXLANPort = netip.MustParseAddr(testVTEP), overlay.DefaultPort
	n := &Node{cfg: cfg, log: slog.New(slog.DiscardHandler), changed: make(chan struct{}, 1), opened: make([]int, len(cfg.Ports))}
	n.layout.Store(layoutOf(t, &cfg))
	tables := leafTables()
	for i := range tables.Ports {
		n.opened[i] = tables.Ports[i].Ifindex
	}
	paths := func() uint8 { return n.view.Load().paths[0].N }
	if err := n.Publish(tables); err != nil {
		t.Fatal(err)
	}
	if n.view.Load().tables != tables || paths() != 2 {
		t.Fatalf("%d paths with all ports open", paths())
	}
	n.setOpened(up1, 0)
	if paths() != 1 || n.view.Load().ports[up1].up {
		t.Errorf("%d paths with an uplink closed, want 1", paths())
	}
	if !tables.Ports[up1].Up {
		t.Error("published tables were changed")
	}
	n.setOpened(up1, 77) // not the interface of the tables: not yet
	if paths() != 1 {
		t.Error("a path over another interface")
	}
	n.setOpened(up1, tables.Ports[up1].Ifindex)
	if paths() != 2 {
		t.Errorf("%d paths after the uplink was opened again, want 2", paths())
	}
}
