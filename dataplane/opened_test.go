package dataplane

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/overlay"
)

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
