package balance

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// carried returns what a policy leaves.
func carried(p Carrier, now mono.Time) []byte {
	var w snapshot.Writer
	w.Begin("flows", p.CarryVersion())
	p.Save(now, &w)
	w.End()
	all, err := snapshot.Sections(w.Bytes())
	if err != nil {
		panic(err)
	}
	return all[0].Body
}

func same(n uint16) (uint16, bool) { return n, true }

// Policies that carry flows go on with them: the one that has loaded another one's flows
// sends their next packets as that one would have, and leaves the same.
func TestCarry(t *testing.T) {
	var names []string
	for _, name := range Names() {
		p, ok := mustNew(t, name, 1).(Carrier)
		if !ok {
			continue
		}
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			v, now := allPaths(), mono.Time(time.Hour)
			exact := func(pkts []Packet) []Packet { v.Exact = exactOf(pkts); return pkts }
			for range 3 {
				p.Choose(now, v, exact(vector(4, 0, 64)))
				now += 1000
			}
			left := carried(p, now)
			q := mustNew(t, name, 1).(Carrier)
			r := snapshot.NewReader(left)
			if q.Load(r, same); r.Done() != nil {
				t.Fatal(r.Done())
			}
			if again := carried(q, now); len(left) != len(again) || len(left) < 64 && name != "tcp-path" && name != "tfe" {
				t.Errorf("%d bytes were left, and %d after they were loaded", len(left), len(again))
			}
			a, b := exact(vector(4, 0, 64)), vector(4, 0, 64)
			p.Choose(now, v, a)
			q.Choose(now, v, exact(b))
			if known(name, "reed") {
				return // each packet is drawn
			}
			if !slices.EqualFunc(a, b, func(x, y Packet) bool { return x.Path == y.Path && x.Marks == y.Marks }) {
				t.Errorf("the flows' next packets differ:\n%+v\n%+v", a, b)
			}
			// Leaves that are no more take their flows along.
			none := mustNew(t, name, 1).(Carrier)
			none.Load(snapshot.NewReader(left), func(uint16) (uint16, bool) { return 0, false })
			if n := len(carried(none, now)); n > len(carried(mustNew(t, name, 1).(Carrier), now)) && !known(name, "conga", "conga-flow", "letflow", "local", "hula", "tcp-path", "tfe") {
				t.Errorf("%d bytes are left of flows to a leaf that is no more", n)
			}
		})
	}
	t.Logf("flows go along under %v", names)
	for _, want := range []string{"conga", "letflow", "plb", "presto", "reed", "flowcut", "tcp-path"} {
		if !slices.Contains(names, want) {
			t.Errorf("flows of %s start anew", want)
		}
	}
}

// known reports whether a scheme's flows are known by other things than their leaf.
func known(name string, names ...string) bool { return slices.Contains(names, name) }

// Anything may come; nothing panics, and what is chosen afterwards exists.
func FuzzCarry(f *testing.F) {
	var names []string
	for _, name := range Names() {
		if p, ok := mustNew(f, name, 1).(Carrier); ok {
			v, now := allPaths(), mono.Time(time.Hour)
			pkts := vector(4, 0, 8)
			v.Exact = exactOf(pkts)
			p.Choose(now, v, pkts)
			f.Add(uint8(len(names)), carried(p, now))
			names = append(names, name)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		name := names[int(which)%len(names)]
		p := mustNew(t, name, 1).(Carrier)
		p.Load(snapshot.NewReader(bytes.Clone(b)), same)
		v := allPaths()
		pkts := vector(4, 0, 64)
		v.Exact = exactOf(pkts)
		p.Choose(mono.Time(time.Hour), v, pkts)
		for i := range pkts {
			if int(pkts[i].Path) >= int(v.Paths[4].N) {
				t.Fatalf("%s: path %d of %d", name, pkts[i].Path, v.Paths[4].N)
			}
		}
	})
}
