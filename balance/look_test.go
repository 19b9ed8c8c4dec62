package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// A driver's links: what a policy reads is out of date until it has looked.
type driverLinks struct {
	view  *View
	local [MaxPaths]uint8
	queue [MaxPaths]uint32
	looks int
	at    mono.Time
}

func (l *driverLinks) Look(now mono.Time) {
	l.looks, l.at = l.looks+1, now
	*l.view.Local, *l.view.Queue = l.local, l.queue
}

// linkedView is a view of one leaf behind uplinks 0 and 1 and of one without a
// path, whose links a policy has to look at.
func linkedView() (*View, *driverLinks) {
	v := newView(firstPaths(2), firstPaths(0))
	l := &driverLinks{view: v}
	v.Links = l
	return v, l
}

// vector returns packets of flows first to first+n-1 to a leaf.
func vector(leaf uint16, first, n int) []Packet {
	pkts := make([]Packet, n)
	for i := range pkts {
		pkts[i] = Packet{Hash: uint32(first+i) * 0x9E3779B1, Leaf: leaf, Len: 1000}
	}
	return pkts
}

// TestPoliciesLookOnlyToDecide: a look costs each uplink's meter, so policies
// that decide by nothing that links show never look, and the others once a
// vector, when its first decision is due.
func TestPoliciesLookOnlyToDecide(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			p := mustNew(t, name, 1)
			v, links := linkedView()
			now := mono.Time(time.Hour)
			look := func(pkts []Packet) int {
				before := links.looks
				p.Choose(now, v, pkts)
				if links.looks > before && links.at != now {
					t.Errorf("looked at %d, the time is %d", links.at, now)
				}
				return links.looks - before
			}
			got := looks{fresh: look(vector(0, 0, 64)), followed: look(vector(0, 0, 64))}
			got.mixed = look(append(vector(0, 0, 60), vector(0, 1000, 4)...))
			now = now.Add(time.Minute) // all flowlets have ended
			got.late = look(vector(0, 0, 64))
			got.nowhere = look(vector(1, 2000, 64))
			if want := promisesOf(t, name).looks; got != want {
				t.Errorf("looks in each vector %+v, want %+v", got, want)
			}
		})
	}
}

// TestPoliciesDecideByWhatTheySee: what links were like before the look does not
// count, neither for a choice nor for its explanation.
func TestPoliciesDecideByWhatTheySee(t *testing.T) {
	for _, name := range []string{"local", "conga", "conga-flow", "drill"} {
		t.Run(name, func(t *testing.T) {
			p, err := New(name, Options{Seed: 1, Keys: keysOf(name, func(keys Params) {
				if k, ok := keys.(*DRILLKeys); ok {
					*k = DRILLKeys{DRILL{Samples: MaxPaths}}
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			v, links := linkedView()
			now := mono.Time(time.Hour)
			for round := range 8 {
				now = now.Add(time.Minute)
				good := uint8(round % 2) // and the view still says the other one
				links.local, links.queue = [MaxPaths]uint8{}, [MaxPaths]uint32{}
				links.local[1-good], links.queue[1-good] = 5, 1<<20
				if e, ok := p.(Explainer); ok {
					x := e.Explain(now, v, &vector(0, 7, 1)[0])
					if x.Fresh != 1<<good || x.Combined[good] != 0 || x.Combined[1-good] != 5 {
						t.Errorf("round %d: explained by %v, fresh %b, want uplink %d", round, x.Combined[:2], x.Fresh, good)
					}
					*v.Local = [MaxPaths]uint8{} // Choose must look itself
				}
				pkts := vector(0, 0, 64)
				p.Choose(now, v, pkts)
				for i := range pkts {
					if pkts[i].Path != good {
						t.Fatalf("round %d, packet %d takes path %d, which is the worse one", round, i, pkts[i].Path)
					}
				}
			}
		})
	}
}

// TestLeavesOfOneVectorAreDecidedApart: what was found out about one leaf's paths does not
// count for the next packet, which goes to another leaf.
func TestLeavesOfOneVectorAreDecidedApart(t *testing.T) {
	p := mustNew(t, "conga", 1)
	v := newView(firstPaths(2), firstPaths(2))
	v.Remote = congestion.NewToLeaf(2, params())
	v.Remote.Update(0, 0, 7, 0)
	v.Remote.Update(1, 1, 7, 0)
	pkts := vector(0, 0, 64)
	for i := range pkts {
		pkts[i].Leaf = uint16(i / 2 % 2)
	}
	p.Choose(0, v, pkts)
	for i := range pkts {
		if want := 1 - uint8(pkts[i].Leaf); pkts[i].Path != want {
			t.Fatalf("packet %d, to leaf %d, takes path %d, want %d", i, pkts[i].Leaf, pkts[i].Path, want)
		}
	}
}
