package dataplane

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
)

// carriedStats are a worker's counters in JSON: what the reader does not know is left out,
// and what the writer did not know is 0. The counters of schemes and receivers, whose
// types only the schemes know, stand apart.
type carriedStats struct {
	WorkerStats
	Schemes   []carriedScheme
	Receivers []carriedReceiver
}

type carriedScheme struct {
	Scheme    string
	Decisions uint64
	Flowlets  congestion.FlowletStats
	Own       json.RawMessage `json:",omitempty"`
}

type carriedReceiver struct {
	Scheme string
	Stats  json.RawMessage
}

// carryStats returns the worker's counters for another process.
func carryStats(s *WorkerStats) (c carriedStats, err error) {
	c.WorkerStats = *s
	for _, x := range s.Schemes {
		y := carriedScheme{Scheme: x.Scheme, Decisions: x.Decisions, Flowlets: x.Flowlets}
		if x.Own != nil {
			if y.Own, err = json.Marshal(x.Own); err != nil {
				return c, fmt.Errorf("counters of %s: %w", x.Scheme, err)
			}
		}
		c.Schemes = append(c.Schemes, y)
	}
	for _, x := range s.Receivers {
		text, err := json.Marshal(x.Stats)
		if err != nil {
			return c, fmt.Errorf("counters of the receiver of %s: %w", x.Scheme, err)
		}
		c.Receivers = append(c.Receivers, carriedReceiver{x.Scheme, text})
	}
	return c, nil
}

// base returns the counters in the reader's numbers, without what is no count but the
// state of the writer: that is over. now are the reader's counters, for the types of its
// schemes'. Counters of schemes that the reader does not have are dropped.
func (c *carriedStats) base(now *WorkerStats, t *translation) WorkerStats {
	b := c.WorkerStats
	b.Schemes, b.Receivers, b.Waiting = nil, nil, nil
	b.Held, b.FDBEntries = 0, 0
	b.Ports, b.VNIs = renumber(c.Ports, t.ports), renumber(c.VNIs, t.vnis)
	b.PeerSent, b.PeerReceived = renumber(c.PeerSent, t.peers), renumber(c.PeerReceived, t.peers)
	b.HopSent = renumber(c.HopSent, t.hops)
	for old := range c.Ports {
		if at(t.ports, old) < 0 {
			b.Gone.add(&c.Ports[old])
		}
	}
	for i := range b.VNIs {
		b.VNIs[i].FDBEntries = 0
	}
	for i := range b.Ports {
		p := &b.Ports[i]
		p.QueueBytes, p.QueueFrames, p.Utilisation, p.Metric = 0, 0, 0, 0
	}
	for _, x := range c.Schemes {
		for _, y := range now.Schemes {
			if y.Scheme != x.Scheme {
				continue
			}
			y.Decisions, y.Flowlets = x.Decisions, x.Flowlets
			y.Own = decodeAs(y.Own, x.Own)
			b.Schemes = append(b.Schemes, y)
		}
	}
	for _, x := range c.Receivers {
		for _, y := range now.Receivers {
			if stats := decodeAs(y.Stats, x.Stats); y.Scheme == x.Scheme && stats != nil {
				b.Receivers = append(b.Receivers, leaf.ReceiverStats{Scheme: x.Scheme, Stats: stats})
			}
		}
	}
	return b
}

// decodeAs decodes text into a new value of the type that like points to; nil: it does
// not fit, or there is none.
func decodeAs(like any, text json.RawMessage) any {
	if like == nil || text == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(like).Elem())
	if json.Unmarshal(text, v.Interface()) != nil {
		return nil
	}
	return v.Interface()
}

// renumber returns list in the order of other numbers.
func renumber[T any](list []T, to []int) (out []T) {
	for i := range list {
		j := at(to, i)
		if j < 0 {
			continue
		}
		if j >= len(out) {
			out = append(out, make([]T, j+1-len(out))...)
		}
		out[j] = list[i]
	}
	return out
}

// addBase adds what the worker's predecessors have counted.
func (s *WorkerStats) addBase(b *WorkerStats) {
	s.Made += b.Made
	s.Consumed += b.Consumed
	s.Bursts += b.Bursts
	s.Filled += b.Filled
	s.Sleeps += b.Sleeps
	s.Busy += b.Busy
	stat.Add(&s.Gone, &b.Gone)
	stat.Add(&s.FDBStats, &b.FDBStats)
	stat.Add(&s.LossStats, &b.LossStats)
	stat.Add(&s.Exchange, &b.Exchange)
	stat.Add(&s.Leaf, &b.Leaf)
	s.Schemes = leaf.AddSchemes(s.Schemes, b.Schemes)
	s.Receivers = leaf.AddReceivers(s.Receivers, b.Receivers)
	addEach(&s.Ports, b.Ports)
	addEach(&s.VNIs, b.VNIs)
	addEach(&s.PeerSent, b.PeerSent)
	addEach(&s.PeerReceived, b.PeerReceived)
	addEach(&s.HopSent, b.HopSent)
}
