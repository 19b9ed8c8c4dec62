package web

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

// watched is a fabric that a model looks at.
type watched struct {
	*fakeFabric
	t     *testing.T
	model *model
	now   time.Time
}

func watch(t *testing.T, f *fakeFabric) *watched {
	return &watched{f, t, newModel(f.names()), time.Unix(1e9, 0)}
}

// round lets a second pass. It returns the frame, and what was said.
func (w *watched) round() (f *Frame, l *Layout, events []string) {
	w.t.Helper()
	w.pass(time.Second)
	w.now = w.now.Add(time.Second)
	answers := make(map[string]answer)
	for _, n := range w.nodes() {
		if w.mute[n.Name] {
			answers[n.Name] = answer{err: errMute}
			continue
		}
		answers[n.Name] = answer{snapshot: w.snapshot(n.Name)}
	}
	for _, m := range w.model.step(w.now, answers) {
		switch m := m.(type) {
		case *Frame:
			f = m
		case *Layout:
			l = m
		case *Event:
			events = append(events, m.Level+" "+m.Node+": "+m.Text)
		}
	}
	return f, l, events
}

// TestMapOfAFabric: links are found by what both ends say, and their loads are those of
// the ports.
func TestMapOfAFabric(t *testing.T) {
	fabric := newFake(2, 2, 2)
	fabric.loads["L0 up3"], fabric.loads["S1 dn1"] = 0.75, 0.25
	w := watch(t, fabric)
	_, l, events := w.round()
	var names []string
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, " "); got != "L0 L1 S0 S1" || len(l.Links) != 8 || len(events) != 4 {
		t.Fatalf("nodes %s, %d links, events %q", got, len(l.Links), events)
	}
	i := slices.IndexFunc(l.Links, func(k LinkInfo) bool { return k.A == 0 && k.APort == "up3" })
	if k := l.Links[i]; k.B != 3 || k.BPort != "dn1" || k.ARate != fakeRate || k.Name != "L0 up3 – S1 dn1" {
		t.Errorf("link %+v", k)
	}
	f, l2, events := w.round()
	if l2 != nil || events != nil {
		t.Errorf("a second layout %v, events %q", l2, events)
	}
	if f.Up[i] != 75e6 || f.Down[i] != 25e6 || f.Links[i] != LinkUp {
		t.Errorf("up %d, down %d, state %d", f.Up[i], f.Down[i], f.Links[i])
	}
	if len(l.Paths) != 8 || l.Paths[3].To != "L1" || l.Paths[3].Link != i || f.Metric[3] != 5 || f.RTT[3] != 380 || f.Paths[3] != PathAlive {
		t.Errorf("paths %+v, metric %v, round trip %v", l.Paths, f.Metric, f.RTT)
	}
	if f.Flowlets[0] != (Flowlets{100, 40, 50}) || f.Reorder[1] != (Reorder{Queues: 2, Waiting: 9, Held: 30, Late: 5, Hold: 250}) {
		t.Errorf("flowlets %+v, reordering %+v", f.Flowlets, f.Reorder)
	}
	if f.HostIn[0] == 0 || f.HostIn[2] != 0 {
		t.Errorf("from hosts %v", f.HostIn)
	}
}

// TestWhatHappens: each fault is told once, and its end.
func TestWhatHappens(t *testing.T) {
	w := watch(t, newFake(2, 2, 2))
	w.round()
	w.round()
	for _, step := range []struct {
		do   func()
		want []string
		see  func(f *Frame) bool
	}{
		{func() { w.down["L0 up1"], w.down["S0 dn1"] = true, true }, []string{"bad L0: link L0 up1 – S0 dn1 is down"},
			func(f *Frame) bool { return f.Links[1] == LinkDown && f.Paths[1] == PathUnusable }},
		{func() { clear(w.down) }, []string{"good L0: link L0 up1 – S0 dn1 is up again"}, func(f *Frame) bool { return f.Links[1] == LinkUp }},
		{func() { w.dead["L0 up1 L1"] = true }, []string{"bad L0: path to L1 by up1 is silent"},
			func(f *Frame) bool { return f.Links[1] == LinkDead && f.Paths[1] == PathSilent && f.Loss[1] == 1e6 }},
		{func() { clear(w.dead) }, []string{"good L0: path to L1 by up1 delivers again, it was silent"}, func(f *Frame) bool { return f.Links[1] == LinkUp }},
		{func() { w.mute["S1"] = true }, []string{"bad S1: no answer any more: " + errMute.Error()},
			func(f *Frame) bool {
				return f.Nodes[3] == NodeSilent && f.Why[3] == errMute.Error() && f.Links[2] == LinkUp
			}},
		{func() { clear(w.mute) }, []string{"good S1: answers again"}, func(f *Frame) bool { return f.Nodes[3] == NodeReady }},
		{func() { w.drops += 5000 }, []string{"warn L0: drops queue_full, 5000 frames/s", "warn L1: drops queue_full, 5000 frames/s", "warn S0: drops queue_full, 5000 frames/s", "warn S1: drops queue_full, 5000 frames/s"},
			func(f *Frame) bool { return f.Drops[0]["queue_full"] == 5000 }},
		{func() { w.drops += 6000 }, nil, func(f *Frame) bool { return f.Drops[0]["queue_full"] == 6000 }},
	} {
		step.do()
		f, _, events := w.round()
		if !slices.Equal(events, step.want) || !step.see(f) {
			t.Errorf("said %q, want %q; frame %+v", events, step.want, f)
		}
		if _, _, again := w.round(); again != nil {
			t.Errorf("after %q: %q", step.want, again)
		}
	}
}

// TestBurstsOften: with many rounds a second, too, a second burst is news when it has been
// quiet in between.
func TestBurstsOften(t *testing.T) {
	var w dropWatch
	said, now := 0, time.Unix(1e9, 0)
	for i := range 600 {
		rates := map[string]float64{}
		if i%300 == 0 {
			rates["queue_full"] = 150
		}
		w.look(now.Add(time.Duration(i)*100*time.Millisecond), "L0", rates, func(string, string, string, string, ...any) { said++ })
	}
	if said != 2 || len(w.usual) != 0 || len(w.loud) != 0 {
		t.Errorf("two bursts were told of %d times; %d and %d are remembered", said, len(w.usual), len(w.loud))
	}
}

// TestDownFromTheStart: a link that has never been seen up is a port without another end,
// and what both ends forget of a link that failed is not forgotten here.
func TestDownFromTheStart(t *testing.T) {
	w := watch(t, newFake(2, 1, 1))
	w.down["L0 up0"], w.down["S0 dn0"] = true, true
	_, l, _ := w.round()
	if len(l.Links) != 3 || l.Links[0].B != -1 || l.Links[0].Name != "L0 up0" {
		t.Fatalf("links %+v", l.Links)
	}
	clear(w.down)
	if _, l, _ = w.round(); l == nil || len(l.Links) != 2 {
		t.Errorf("when it is up: %+v", l)
	}
}

// TestAddressesThatPortsShare: two ports with one MAC address are told apart by what the
// other end sees.
func TestAddressesThatPortsShare(t *testing.T) {
	at := func(name string, leaf bool, ports map[string]string, hops map[string]string) *admin.Snapshot {
		s := &admin.Snapshot{Status: admin.Status{Name: name}}
		if leaf {
			s.VTEP = vtep(0)
		}
		for port, mac := range ports {
			s.Ports = append(s.Ports, admin.Port{Port: port, Kind: "uplink", MAC: mac})
		}
		for port, mac := range hops {
			s.NextHops = append(s.NextHops, dataplane.NextHop{Port: port, MAC: mac})
		}
		return s
	}
	nodes := map[string]*admin.Snapshot{
		"L": at("L", true, map[string]string{"a": "02:00:00:00:00:01", "b": "02:00:00:00:00:02"}, map[string]string{"a": "02:00:00:00:00:09", "b": "02:00:00:00:00:09"}),
		"S": at("S", false, map[string]string{"x": "02:00:00:00:00:09", "y": "02:00:00:00:00:09"}, map[string]string{"x": "02:00:00:00:00:01", "y": "02:00:00:00:00:02"}),
	}
	var topo topology
	topo.learn(nodes)
	want := []pair{{end{"L", "a"}, end{"S", "x"}}, {end{"L", "b"}, end{"S", "y"}}}
	if got := topo.links(nodes); !slices.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
}

// TestCountersThatBeginAnew: a node that was started again has no negative rates.
func TestCountersThatBeginAnew(t *testing.T) {
	w := watch(t, newFake(2, 1, 1))
	w.round()
	w.round()
	clear(w.sent)
	f, _, _ := w.round()
	for i := range f.Up {
		if f.Up[i] < 0 || f.Up[i] > 1.01*fakeRate {
			t.Errorf("link %d: %d bit/s", i, f.Up[i])
		}
	}
}

// TestOrderOfNames: numbers count as numbers.
// snapshots writes a file of some rounds of a fabric.
func snapshots(f *fakeFabric, rounds int) []byte {
	var b bytes.Buffer
	for range rounds {
		f.pass(time.Second)
		for _, name := range f.names() {
			if err := json.NewEncoder(&b).Encode(f.snapshot(name)); err != nil {
				panic(err)
			}
		}
	}
	return b.Bytes()
}

// TestPlay: a file of snapshots is what a page would have seen.
func TestPlay(t *testing.T) {
	f := newFake(2, 2, 2)
	file := snapshots(f, 2)
	f.down["L0 up0"] = true
	file = append(file, snapshots(f, 1)...)
	var kinds []string
	var last *Frame
	err := play(bytes.NewReader(file), func(m any) error {
		switch m := m.(type) {
		case *Layout:
			kinds = append(kinds, "layout")
		case *Frame:
			kinds = append(kinds, "frame")
			last = m
		case *Event:
			kinds = append(kinds, m.Kind)
		}
		return nil
	})
	if got := strings.Join(kinds, " "); err != nil || got != "layout frame node node node node frame frame link" {
		t.Errorf("%v, %s", err, got)
	}
	if last.Links[0] != LinkDown || last.Time != 1e12+3000 {
		t.Errorf("%+v", last)
	}
	lines := bytes.SplitAfter(file, []byte("\n"))
	for name, c := range map[string]struct{ text, want string }{
		"no snapshot": {"{}\n", "line 1: the snapshot has format 0"},
		"no JSON":     {"loom\n", "line 1: understand"},
		"unsorted":    {string(lines[4]) + string(lines[0]), "line 2: a snapshot of \"L0\""},
		"endless":     {strings.Repeat("x", maxLine+1), "16 MiB"},
	} {
		if err := play(strings.NewReader(c.text), func(any) error { return nil }); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzPlay: no file of snapshots brings loomweb down.
func FuzzPlay(f *testing.F) {
	f.Add(snapshots(newFake(2, 1, 1), 2))
	f.Add([]byte(`{"format":1,"name":"a","time_ns":1,"conga":[{"vtep":"","paths":[{}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = play(bytes.NewReader(b), func(m any) error {
			_, err := json.Marshal(m)
			if err != nil {
				t.Errorf("%v cannot be sent: %v", m, err)
			}
			return nil
		})
	})
}
