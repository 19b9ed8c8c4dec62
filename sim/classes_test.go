package sim

import (
	"context"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
)

// Each workload's packets are balanced by its class's scheme, there and back, and nobody
// else's.
func TestClasses(t *testing.T) {
	packets := func(classes ...Class) (numbered, hashed uint64) {
		s := small()
		s.Scheme, s.Duration = "reed", us(2000)
		s.Workloads = []vocab.Workload{
			{Name: "sprayed", Sizes: "web-search", Load: 30, Scale: 0.1},
			{Name: "hashed", Sizes: "web-search", Load: 30, Scale: 0.1},
		}
		s.Classes = classes
		r, _ := parts(t, s)
		for _, l := range r.topo.Leaves {
			for _, x := range l.Brain().SchemeStats() {
				switch x.Scheme {
				case "reed":
					numbered += x.Own.(*balance.ReedStats).Frames
				case "ecmp":
					hashed += x.Decisions
				}
			}
		}
		return numbered, hashed
	}
	all, none := packets()
	some, rest := packets(Class{Workload: "hashed", Scheme: "ecmp"})
	if none != 0 || all == 0 {
		t.Fatalf("without classes %d packets were numbered and %d hashed", all, none)
	}
	if some < all/4 || rest < all/4 {
		t.Errorf("%d packets were numbered and %d hashed, of some %d", some, rest, all)
	}
	both, x := packets(Class{Workload: "hashed", Scheme: "ecmp"}, Class{Workload: "sprayed", Scheme: "ecmp"})
	if both != 0 || x < all/2 {
		t.Errorf("with two classes %d packets were numbered and %d hashed", both, x)
	}
}

func TestWrongClasses(t *testing.T) {
	for _, k := range []Class{{Workload: "nobody", Scheme: "ecmp"}, {Workload: "", Scheme: "none"}, {Workload: "", Scheme: "drill"}} {
		s := small()
		s.Classes = []Class{k}
		if _, err := Run(context.Background(), s); err == nil {
			t.Errorf("class %+v was accepted", k)
		}
	}
}
