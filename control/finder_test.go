package control

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// finderState is a machine with uplinks eth1 to eth3, a host port, and what else has
// routes.
func finderState(routes ...Route) *State {
	s := &State{Links: []Link{link(1, "eth1"), link(2, "eth2"), link(3, "eth3"), link(4, "eth10"), link(5, "host0"), link(6, "br0"), link(7, "lo"), link(8, "bond0"), link(9, "mgmt")}}
	s.Links[5].Kind, s.Links[6].Loopback, s.Links[7].Kind = "bridge", true, "bond"
	s.Routes = routes
	return s
}

func routeTo(dst string, hops ...NextHop) Route { return Route{Dst: pfx(dst), Hops: hops} }

func TestFinderFindsUplinks(t *testing.T) {
	dead := hop(2, "10.0.2.1")
	dead.Dead = true
	encap := hop(2, "10.0.2.1")
	encap.Encap = 1
	peers := []netip.Addr{addr("10.255.0.2"), addr("10.255.0.3")}
	mgmt := routeTo("0.0.0.0/0", hop(9, "192.168.0.1"))
	for _, c := range []struct {
		name    string
		state   *State
		want    []string
		refused []Refusal
	}{
		{"next hops of all peers", finderState(routeTo("10.255.0.2/32", hop(4, "10.0.4.1"), hop(2, "10.0.2.1")), routeTo("10.255.0.3/32", hop(1, "10.0.1.1"))), []string{"eth1", "eth2", "eth10"}, nil},
		{"none of others", finderState(routeTo("10.255.0.2/31", hop(1, "10.0.1.1")), routeTo("10.255.0.4/32", hop(3, "10.0.3.1")), mgmt), []string{"eth1"}, nil},
		{"not by a default route", finderState(mgmt, routeTo("10.255.0.3/32", hop(1, "10.0.1.1"))), []string{"eth1"}, nil},
		{"a longer prefix", finderState(routeTo("10.255.0.0/24", hop(1, "10.0.1.1")), routeTo("10.255.0.2/32", hop(2, "10.0.2.1"))), []string{"eth1", "eth2"}, nil},
		{"the first route that is alive", finderState(routeTo("10.255.0.2/31", dead), Route{Dst: pfx("10.255.0.2/31"), Metric: 5, Hops: []NextHop{hop(1, "10.0.1.1")}}, Route{Dst: pfx("10.255.0.2/31"), Metric: 9, Hops: []NextHop{hop(3, "10.0.3.1")}}), []string{"eth1"}, nil},
		{"a rejection hides", finderState(routeTo("10.255.0.0/24", hop(1, "10.0.1.1")), Route{Dst: pfx("10.255.0.2/31"), Reject: true}), nil, nil},
		{"an encapsulation", finderState(routeTo("10.255.0.2/31", hop(1, "10.0.1.1"), encap)), []string{"eth1"}, nil},
		{"what cannot be a port", finderState(routeTo("10.255.0.2/31", hop(1, "10.0.1.1"), hop(5, "10.0.5.1"), hop(6, "10.0.6.1"), hop(7, ""), hop(8, "10.0.8.1"), hop(99, "10.0.9.1"))), []string{"eth1"}, []Refusal{
			{"bond0", "it is a bond: AF_XDP needs the queues of its members; take them out and route over each"},
			{"br0", "it is a bridge device"}, {"host0", "it is an access port"}, {"lo", "it is the loopback interface"},
		}},
	} {
		f := NewFinder(16, map[string]string{"host0": "it is an access port"})
		got := f.Uplinks(c.state, peers, epoch)
		if !slices.Equal(got.Ports, c.want) || !slices.Equal(got.Refused, c.refused) || !got.Next.IsZero() {
			t.Errorf("%s: %+v, want %v, refused %v", c.name, got, c.want, c.refused)
		}
	}
}

func TestFinderFindsPortsOfASpine(t *testing.T) {
	s := finderState(routeTo("0.0.0.0/0", hop(9, "192.168.0.1")), routeTo("10.0.1.0/31", hop(1, "")), routeTo("10.255.0.2/32", hop(2, "10.0.2.1")), routeTo("10.255.0.3/32", hop(1, "10.0.1.1"), hop(6, "10.0.6.1")))
	got := NewFinder(256, nil).SpinePorts(s, epoch)
	if !slices.Equal(got.Ports, []string{"eth1", "eth2"}) || !slices.Equal(got.Refused, []Refusal{{"br0", "it is a bridge device"}}) {
		t.Errorf("%+v", got)
	}
}

// A route that flaps closes no port; one that stays away does, after a rest. Ports keep
// their order.
func TestFinderLetsPortsRest(t *testing.T) {
	f, peers := NewFinder(16, nil), []netip.Addr{addr("10.255.0.2")}
	step := func(at time.Duration, next time.Duration, want []string, hops ...NextHop) {
		t.Helper()
		got := f.Uplinks(finderState(routeTo("10.255.0.2/32", hops...)), peers, epoch.Add(at))
		if !slices.Equal(got.Ports, want) {
			t.Errorf("after %v: ports %v, want %v", at, got.Ports, want)
		}
		if next == 0 != got.Next.IsZero() || next != 0 && !got.Next.Equal(epoch.Add(next)) {
			t.Errorf("after %v: next look at %v, want %v", at, got.Next.Sub(epoch), next)
		}
	}
	both := []string{"eth2", "eth3"}
	step(0, 0, both, hop(2, "10.0.2.1"), hop(3, "10.0.3.1"))
	step(time.Second, time.Second+portRest, both, hop(2, "10.0.2.1"))
	step(time.Minute, time.Second+portRest, append(both, "eth1"), hop(2, "10.0.2.1"), hop(1, "10.0.1.1"))
	step(2*time.Minute, 0, append(both, "eth1"), hop(2, "10.0.2.1"), hop(1, "10.0.1.1"), hop(3, "10.0.3.1"))
	step(3*time.Minute, 3*time.Minute+portRest, append(both, "eth1"))
	step(3*time.Minute+portRest-1, 3*time.Minute+portRest, append(both, "eth1"))
	step(3*time.Minute+portRest, 0, nil)
	step(9*time.Minute, 0, []string{"eth1"}, hop(1, "10.0.1.1"))
}

// There are as many uplinks as an LBTag has values: one that rests makes room.
func TestFinderIsBounded(t *testing.T) {
	f, s := NewFinder(2, nil), finderState()
	peers := []netip.Addr{addr("10.255.0.2")}
	look := func(at time.Duration, ifindexes ...int) Found {
		r := Route{Dst: pfx("10.255.0.2/32")}
		for _, i := range ifindexes {
			r.Hops = append(r.Hops, hop(i, fmt.Sprintf("10.0.%d.1", i)))
		}
		s.Routes = []Route{r}
		return f.Uplinks(s, peers, epoch.Add(at))
	}
	if got := look(0, 3, 1, 2); !slices.Equal(got.Ports, []string{"eth1", "eth2"}) || len(got.Refused) != 1 || got.Refused[0] != (Refusal{"eth3", "there are 2 others, and no more are possible"}) {
		t.Errorf("%+v", got)
	}
	if got := look(1, 3, 2); !slices.Equal(got.Ports, []string{"eth2", "eth3"}) || len(got.Refused) != 0 {
		t.Errorf("%+v", got)
	}
}

// A mirror tells of ports that routes lead over, and of interfaces that cannot be any.
func TestMirrorFindsPorts(t *testing.T) {
	s := leafState()
	s.Links = append(s.Links, link(14, "br0"))
	s.Links[4].Kind = "bridge"
	k, ports := newFake(s), make(chan []string, 10)
	out := logged(t, k, Options{Finder: NewFinder(16, nil), Found: func(p []string) { ports <- p }})
	next := func(want ...string) {
		t.Helper()
		select {
		case got := <-ports:
			if !slices.Equal(got, want) {
				t.Errorf("ports %q, want %q", got, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("nobody told of ports %q", want)
		}
	}
	next("up0", "up1")
	k.set(Routes, func(f *fakeKernel) {
		f.state.Routes = slices.Clone(f.state.Routes)
		f.state.Routes[1].Hops = []NextHop{hop(12, "10.1.2.0"), hop(14, "10.1.3.0")}
	})
	next("up0", "up1", "acc0")
	out.take(t, `cannot be a port" interface=br0 why="it is a bridge device"`)
}
