package control

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// A route over an interface that is no port, or into an encapsulation, is told of once,
// and when it is over.
func TestMirrorTellsOfStrays(t *testing.T) {
	s := leafState()
	k := newFake(s)
	out := logged(t, k, Options{})
	route := func(hops ...NextHop) {
		k.set(Routes, func(f *fakeKernel) {
			f.state.Routes = slices.Clone(f.state.Routes)
			f.state.Routes[1].Hops = hops
		})
	}
	route(hop(10, "10.1.0.0"), hop(13, "10.1.3.0"))
	out.take(t, `the route to 10.255.0.2/32 leads over interface mgmt, which is no port of Loom: nothing is sent there, and VXLAN that comes in there is left to the kernel" interface=mgmt fix="list mgmt as a port`)
	encap := hop(10, "10.1.0.0")
	encap.Encap = 1
	route(encap)
	out.take(t, `10.255.0.2/32 leads over interface up0 by way of an encapsulation of the kernel's (mpls), which Loom does not make`)
	route(hop(10, "10.1.0.0"))
	out.take(t, `no route to a VTEP leads over an interface any more that Loom cannot use" interface=up0`)
}

func TestStraysAreCounted(t *testing.T) {
	dead := hop(13, "10.1.3.0")
	dead.Dead = true
	for _, c := range []struct {
		name   string
		change func(*State)
		want   int
	}{
		{"only a default route leads elsewhere", func(*State) {}, 0},
		{"a default route leads elsewhere, too", func(s *State) { s.Routes[0].Hops = []NextHop{hop(13, "192.168.0.1"), hop(10, "10.1.0.0")} }, 1},
		{"another interface", func(s *State) { s.Routes[1].Hops[0] = hop(13, "10.1.3.0") }, 1},
		{"an access port", func(s *State) { s.Routes[1].Hops[0] = hop(12, "10.1.3.0") }, 1},
		{"two", func(s *State) { s.Routes[1].Hops = []NextHop{hop(13, "10.1.3.0"), hop(12, "10.1.4.0")} }, 2},
		{"one that is dead", func(s *State) { s.Routes[1].Hops[0] = dead }, 0},
		{"an uplink that is down", func(s *State) { s.Links[0].Up = false }, 0},
		{"a backup route", func(s *State) {
			s.Routes = slices.Insert(s.Routes, 2, Route{Dst: pfx("10.255.0.2/32"), Metric: 9, Hops: []NextHop{hop(13, "10.1.3.0")}})
		}, 0},
	} {
		s := leafState()
		c.change(&s)
		k := newFake(s)
		o := leafOverlay()
		m, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: k, Overlay: &o})
		p.until(t, c.name, func(*dataplane.Tables) bool { return true })
		for end := time.Now().Add(5 * time.Second); m.Stats().Published == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if got := m.Stats().Unlisted; got != c.want {
			t.Errorf("%s: %d unlisted ports, want %d", c.name, got, c.want)
		}
	}
}

// A spine tells of leaves' routes that vanish and return, at most some by name, and of
// such that lead elsewhere if they are leaves'.
func TestSpineTellsOfLostRoutes(t *testing.T) {
	s := State{Links: []Link{link(10, "p0"), link(11, "p1"), link(13, "mgmt")}}
	for i := range 20 {
		s.Routes = append(s.Routes, Route{Dst: pfx(fmt.Sprintf("10.255.0.%d/32", i)), Hops: []NextHop{hop(10+i%2, fmt.Sprintf("10.1.%d.1", i%2))}})
	}
	s.Routes = append(s.Routes, Route{Dst: pfx("10.7.0.1/32"), Hops: []NextHop{hop(13, "192.168.0.1")}})
	k := newFake(s)
	out := new(lines)
	m, p := startMirror(t, Options{
		Role: dataplane.Spine, Ports: spinePorts, Kernel: k, VTEPs: []netip.Prefix{pfx("10.255.0.0/24")},
		Log: slog.New(slog.NewTextHandler(out, nil)),
	})
	p.until(t, "start", func(*dataplane.Tables) bool { return true })
	all := s.Routes
	lost := func(want int) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); m.Stats().Lost != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d lost routes, want %d", m.Stats().Lost, want)
			}
		}
	}
	k.set(Routes, func(f *fakeKernel) { f.state.Routes = all[1:] })
	out.take(t, `no route to leaves by way of a port that is up" routes=1 prefixes=[10.255.0.0/32]`)
	lost(1)
	k.set(Links, func(f *fakeKernel) { f.state.Links = slices.Clone(f.state.Links); f.state.Links[1].Up = false })
	out.take(t, `routes=10 prefixes="[10.255.0.1/32 10.255.0.3/32 10.255.0.5/32 10.255.0.7/32 10.255.0.9/32 10.255.0.11/32 10.255.0.13/32 10.255.0.15/32]"`)
	lost(11)
	k.set(Routes, func(f *fakeKernel) { f.state.Routes = all })
	out.take(t, `leaves are routed again" routes=1 prefixes=[10.255.0.0/32]`)
	moved := slices.Clone(all)
	moved[2].Hops = []NextHop{hop(13, "192.168.0.1")}
	k.set(Routes, func(f *fakeKernel) { f.state.Routes = moved })
	out.take(t, `the route to 10.255.0.2/32 leads over interface mgmt`)
	if out.mu.Lock(); strings.Contains(out.b.String(), "10.7.0.1") {
		t.Error("a route that is no leaf's is told of")
	}
	out.mu.Unlock()
}

// The neighbours of IPv6 do not speak ARP.
func TestResolverNamesTheProtocol(t *testing.T) {
	for gateway, want := range map[string]string{"10.1.1.0": "does not answer ARP;", "fe80::1": "does not answer neighbour solicitations;"} {
		s, o := leafState(), leafOverlay()
		s.Routes[1].Hops = []NextHop{hop(11, gateway)}
		out := new(lines)
		r := resolver{kernel: newFake(s), log: slog.New(slog.NewTextHandler(out, nil)), tries: make(map[target]*try)}
		r.update(&s, NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch), false)
		for at := epoch; at.Before(epoch.Add(6 * time.Second)); at = at.Add(100 * time.Millisecond) {
			r.step(at)
		}
		out.take(t, want)
	}
}
