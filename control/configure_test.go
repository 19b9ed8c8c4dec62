package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
)

// Access ports are in the networks that the file says, by the numbers that the tables have
// for both.
func TestBuildBindsPorts(t *testing.T) {
	ports := []dataplane.PortConfig{
		{Name: "up0", Kind: dataplane.Uplink}, {Name: "acc0", Kind: dataplane.Access}, {}, {Name: "acc1", Kind: dataplane.Access},
		{Name: "acc9", Kind: dataplane.Access},
	}
	o := leafOverlay()
	o.Access = []config.Access{
		{Interface: "acc1", VNI: 200, Transparent: true},
		{Interface: "acc0", VNI: 100, VLANs: map[uint16]uint32{9: 200, 7: 300}},
		{Interface: "gone", VNI: 100},
	}
	s := leafState()
	b := NewBuilder(dataplane.Leaf, ports)
	got := b.Build(&s, &o, epoch)
	want := []dataplane.Binding{{Port: 1, VNI: 0}, {Port: 1, VLAN: 9, VNI: 1}, {Port: 3, VNI: 1}} // VNI 300 is none of the leaf's
	if !slices.Equal(got.Bindings, want) {
		t.Errorf("bindings %v, want %v", got.Bindings, want)
	}
	if !got.Ports[3].Transparent || got.Ports[1].Transparent || got.Ports[2].Ifindex != 0 {
		t.Errorf("ports %+v", got.Ports)
	}
	o.Access = slices.Clone(o.Access)
	o.Access[0].VNI = 100
	if next := b.Build(&s, &o, epoch); next == got || next.Bindings[2].VNI != 0 {
		t.Errorf("a port that has changed its network: %v", next.Bindings)
	}
}

// A mirror that is told of other ports and another overlay makes tables of them, at once,
// and publishes even what says the same: the data plane may have forgotten it.
func TestMirrorIsConfigured(t *testing.T) {
	o := leafOverlay()
	m, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: newFake(leafState()), Overlay: &o})
	first, _ := p.until(t, "tables", func(*dataplane.Tables) bool { return true })
	if err := m.Configure(t.Context(), leafPorts, &o); err != nil {
		t.Fatal(err)
	}
	if again, _ := p.until(t, "the same again", func(*dataplane.Tables) bool { return true }); again == first || !sameTables(again, first) {
		t.Errorf("tables %+v, want %+v", again, first)
	}
	fewer := slices.Clone(leafPorts)
	i := slices.IndexFunc(fewer, func(p dataplane.PortConfig) bool { return p.Kind == dataplane.Uplink })
	fewer[i] = dataplane.PortConfig{} // its place
	other := o
	other.VNIs = o.VNIs[:1]
	if err := m.Configure(t.Context(), fewer, &other); err != nil {
		t.Fatal(err)
	}
	next := m.Tables() // published by then
	if next.Ports[i] != (dataplane.PortState{}) || next.VNIs[1].VNI != 0 {
		t.Errorf("ports %+v, VNIs %+v", next.Ports, next.VNIs)
	}
	for _, h := range next.Hops {
		if int(h.Port) == i && h.Gateway.IsValid() {
			t.Errorf("a next hop on a port that is gone: %+v", h)
		}
	}
}

// refuser takes no tables.
type refuser struct{}

func (refuser) Publish(*dataplane.Tables) error { return errors.New("none of these") }

func TestMirrorSaysThatTablesAreRefused(t *testing.T) {
	o := leafOverlay()
	m := NewMirror(Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: newFake(leafState()), Overlay: &o, Publisher: refuser{}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Configure(ctx, leafPorts, &o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a mirror that does not run: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	if err := m.Configure(t.Context(), leafPorts, &o); err != nil && !strings.Contains(err.Error(), "none of these") {
		t.Errorf("error %v", err) // nil: before everything was listed
	}
	if err := m.Configure(t.Context(), leafPorts, &o); err == nil || !strings.Contains(err.Error(), "none of these") {
		t.Errorf("error %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
