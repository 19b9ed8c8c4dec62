package dataplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func uplinks(names ...string) (ports []PortConfig) {
	for _, n := range names {
		ports = append(ports, PortConfig{Name: n, Kind: Uplink})
	}
	return ports
}

// Ports that stay keep PortID and LBTag; one that returns has its own again; others have
// those of ports that are gone, after a rest.
func TestPortsKeepTheirNumbers(t *testing.T) {
	s := newSeats(3)
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		at    time.Duration
		ports []string
		ids   []int
		tags  []uint8 // in the order of ports
		fails string
	}{
		{0, []string{"a", "b"}, []int{0, 1}, []uint8{0, 1}, ""},
		{1, []string{"b", "c"}, []int{1, 2}, []uint8{1, 2}, ""},
		{2, []string{"c", "a", "b"}, []int{2, 0, 1}, []uint8{2, 0, 1}, ""},
		{3, []string{"b", "c"}, []int{1, 2}, []uint8{1, 2}, ""},
		{time.Second, []string{"b", "c", "d"}, nil, nil, "no room for port d: all places are taken (max_ports); the number of a port that is gone is free in 9s"},
		{portRest + 3, []string{"d", "b", "c"}, []int{0, 1, 2}, []uint8{3, 1, 2}, ""}, // a tag of its own, as there are some
		{portRest + 4, []string{"d", "b", "c", "a"}, nil, nil, "no room for port a: all places are taken (max_ports)"},
	} {
		trial := s.clone()
		l, err := trial.arrange(Leaf, uplinks(step.ports...), start.Add(step.at))
		if step.fails != "" {
			if err == nil || err.Error() != step.fails || !errors.As(err, new(*NoRoomError)) {
				t.Errorf("%v at %v: error %v, want %q", step.ports, step.at, err, step.fails)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s = trial
		for i, name := range step.ports {
			if id := l.find(name, Uplink); id != step.ids[i] || l.ports[id].tag != step.tags[i] || l.order[i] != step.tags[i] || l.uplinkName(step.tags[i]) != name {
				t.Errorf("%v at %v: %s has ID %d, tags %v, want %d and %v", step.ports, step.at, name, id, l.order, step.ids[i], step.tags)
			}
		}
	}
}

func TestPortsThatCannotBe(t *testing.T) {
	many := make([]string, MaxPaths+1)
	for i := range many {
		many[i] = fmt.Sprint("up", i)
	}
	for _, tc := range []struct {
		role  Role
		ports []PortConfig
		want  string
	}{
		{Leaf, uplinks(many...), "17 uplinks: at most 16"},
		{Leaf, uplinks("a", "b", "a"), "port a is there twice"},
		{Leaf, uplinks(""), "port 0 has no name"},
		{Leaf, []PortConfig{{Name: "p", Kind: SpinePort}}, "port p is of kind spine"},
		{Spine, uplinks("u"), "port u is of kind uplink"},
		{Leaf, make([]PortConfig, MaxPorts+1), "257 ports: at most 256"},
	} {
		s := newSeats(MaxPorts)
		if _, err := s.arrange(tc.role, tc.ports, time.Now()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// Whatever comes and goes: no two have one number, nobody's number changes while it is
// there, and no number goes to another one before it has rested.
func TestPortsComeAndGo(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	type owner struct {
		name string
		left time.Time
	}
	s, now, refused := newSeats(24), time.Unix(1000, 0), 0
	ids, tags := make(map[int]owner), make(map[uint8]owner)
	for range 2000 {
		now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		var ports []PortConfig
		for i := range 40 {
			if rng.IntN(5) < 2 {
				ports = append(ports, PortConfig{Name: fmt.Sprint("p", i), Kind: Access + PortKind(i&1)})
			}
		}
		trial := s.clone()
		l, err := trial.arrange(Leaf, ports, now)
		if err != nil {
			refused++
			continue
		}
		s = trial
		seen := make(map[int]bool)
		for _, p := range ports {
			id := l.find(p.Name, p.Kind)
			if id < 0 || seen[id] {
				t.Fatalf("%s has ID %d", p.Name, id)
			}
			seen[id] = true
			if o := ids[id]; o.name != "" && o.name != p.Name && now.Sub(o.left) < portRest {
				t.Fatalf("ID %d went from %s to %s after %v", id, o.name, p.Name, now.Sub(o.left))
			}
			for other, o := range ids {
				if o.name == p.Name && o.left.IsZero() && other != id {
					t.Fatalf("%s had ID %d and has %d", p.Name, other, id)
				}
			}
			ids[id] = owner{name: p.Name}
			if p.Kind != Uplink {
				continue
			}
			tag := l.ports[id].tag
			if o := tags[tag]; o.name != "" && o.name != p.Name && (o.left.IsZero() || now.Sub(o.left) < portRest) {
				t.Fatalf("tag %d went from %s to %s", tag, o.name, p.Name)
			}
			tags[tag] = owner{name: p.Name}
		}
		for id, o := range ids {
			if o.left.IsZero() && !seen[id] {
				ids[id] = owner{o.name, now}
			}
		}
		for tag, o := range tags {
			if o.left.IsZero() && l.find(o.name, Uplink) < 0 {
				tags[tag] = owner{o.name, now}
			}
		}
	}
	if refused == 0 || refused > 1900 {
		t.Errorf("%d of 2000 were refused: the test tries nothing", refused)
	}
}
