package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// Counters is what a type counted, by the names in the type's table (package stat):
// numbers; for a family, those that are not 0 by the label's values; and [Times].
// Counters of a scheme have its name as "scheme".
type Counters map[string]json.RawMessage

// Times says how durations are spread. Percentiles are too high by a quarter at
// most.
type Times struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

func times(h *reorder.Histogram) Times {
	t := Times{h.N, 0, h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999), h.Max}
	if h.N > 0 {
		t.Mean = time.Duration(uint64(h.Sum) / h.N)
	}
	return t
}

// NewCounters returns what pointers to structs with the tags of package stat counted.
// Of families of one name it makes one. scheme may be empty.
func NewCounters(scheme string, counted ...any) Counters {
	c := make(Counters)
	if scheme != "" {
		c.set("scheme", scheme)
	}
	families := make(map[string]map[string]uint64)
	for _, v := range counted {
		t := stat.TableOf(v, "")
		for i := range t.Fields {
			f := &t.Fields[i]
			switch {
			case f.Kind == stat.Times:
				c.set(f.Key(), times(f.Pointer(v).(*reorder.Histogram)))
			case f.Kind == stat.Depth: // for the metrics, which have them over time
			case f.Label == "":
				c.set(f.Name, f.Count(v))
			default:
				if families[f.Name] == nil {
					families[f.Name] = make(map[string]uint64)
				}
				if n := f.Count(v); n > 0 {
					families[f.Name][f.Value] = n
				}
			}
		}
	}
	for name, family := range families {
		c.set(name, family)
	}
	return c
}

// leafCounters returns what a leaf counted, with the messages about nothing that it
// knows, and what more is counted there.
func leafCounters(s *leaf.Stats, more ...any) Counters {
	c := NewCounters("", append(more, s)...)
	unknown := make(map[string]uint64)
	for op, n := range s.Unknown() {
		if _, name := s.Received.Index(op); name != "" && n > 0 {
			unknown[name] = n
		}
	}
	c.set("messages_unknown", unknown)
	return c
}

// set encodes a number, a text, or a map of them.
func (c Counters) set(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("admin: %T: %v", v, err))
	}
	c[name] = b
}

// Scheme returns the scheme whose counters these are; "": no scheme's.
func (c Counters) Scheme() (name string) {
	_ = json.Unmarshal(c["scheme"], &name)
	return name
}

// Number returns a number; 0 if there is none of that name.
func (c Counters) Number(name string) (n uint64) {
	_ = json.Unmarshal(c[name], &n)
	return n
}

// Family returns a family's numbers by the label's values; nil if there is no family
// of that name.
func (c Counters) Family(name string) (family map[string]uint64) {
	if json.Unmarshal(c[name], &family) != nil {
		return nil
	}
	return family
}

// Times returns times; without a count if there are none of that name.
func (c Counters) Times(name string) (t Times) {
	_ = json.Unmarshal(c[name], &t)
	return t
}

// Own returns the counters that only this scheme has; nil if it has none.
func (c Counters) Own() (own Counters) {
	_ = json.Unmarshal(c["own"], &own)
	return own
}
