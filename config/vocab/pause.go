package vocab

import (
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
)

// Pause is a time after which schemes take nothing of a flow to be under way any
// more. A queue that takes longer makes flows overtake themselves.
type Pause struct {
	Key     string // that sets it: "congestion.flowlet_gap"
	Value   time.Duration
	Longest time.Duration // that it can be set to; 0: any
	Flowlet bool          // a flow may move after it
	Schemes []string      // that go by it, in alphabetical order
}

// Pauses returns the pauses that schemes go by, of which all exist. autoGap says
// that leaves derive the flowlet gap: it is long enough then.
func Pauses(schemes []string, conga congestion.Params, autoGap bool, sections map[string]balance.Params) (out []Pause) {
	add := func(p Pause, scheme string) {
		i := slices.IndexFunc(out, func(o Pause) bool { return o.Key == p.Key })
		if i < 0 {
			i, out = len(out), append(out, p)
		}
		out[i].Schemes = append(out[i].Schemes, scheme)
	}
	schemes = slices.Clone(schemes)
	slices.Sort(schemes)
	for _, name := range slices.Compact(schemes) {
		s := balance.Find(name)
		if s.Gap != nil {
			if gap, key := s.Gap(&conga); !autoGap || key != "flowlet_gap" {
				add(Pause{Key: "congestion." + key, Value: gap, Flowlet: true}, name)
			}
		}
		if s.Section == nil {
			continue
		}
		if p, ok := sections[s.Section.Name].(balance.Pauser); ok {
			pause, longest, key := p.Pause()
			add(Pause{Key: s.Section.Name + "." + key, Value: pause, Longest: longest}, name)
		}
	}
	return out
}
