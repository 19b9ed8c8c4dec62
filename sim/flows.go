package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// selection draws a sender out of From, and a receiver out of those of To that
// it may send to: any other host, or any behind another leaf, of its VNI.
type selection struct {
	from, to []network.HostID
	rack     []int
	vni      []uint32 // by host; nil: there is one
	any      bool
}

func (s *selection) allowed(a, b network.HostID) bool {
	return s.mates(a, b) && (s.any || s.rack[a] != s.rack[b])
}

// mates reports whether two hosts can talk at all.
func (s *selection) mates(a, b network.HostID) bool {
	return a != b && (s.vni == nil || s.vni[a] == s.vni[b])
}

// Pick draws a pair (traffic.Pairs).
func (s *selection) Pick(r *rand.Rand) traffic.Pair {
	src := s.from[r.IntN(len(s.from))]
	for {
		if dst := s.to[r.IntN(len(s.to))]; s.allowed(src, dst) {
			return traffic.Pair{Src: src, Dst: dst}
		}
	}
}

// Each lists all pairs (traffic.Pairs).
func (s *selection) Each(yield func(p traffic.Pair, share float64)) {
	for _, src := range s.from {
		n := s.choices(src)
		for _, dst := range s.to {
			if s.allowed(src, dst) {
				yield(traffic.Pair{Src: src, Dst: dst}, 1/float64(len(s.from))/float64(n))
			}
		}
	}
}

func (s *selection) choices(src network.HostID) (n int) {
	for _, dst := range s.to {
		if s.allowed(src, dst) {
			n++
		}
	}
	return n
}

// pairs is a list of From[i] with the i-th of those in To that it can talk to,
// wrapping around, as fabric.yaml pairs hosts of its tcp and udp workloads.
func (s *selection) pairs() traffic.List {
	var out traffic.List
	var partners []network.HostID
	for i, src := range s.from {
		partners = partners[:0]
		for _, dst := range s.to {
			if s.mates(src, dst) {
				partners = append(partners, dst)
			}
		}
		if n := len(partners); n > 0 {
			out = append(out, traffic.Pair{Src: src, Dst: partners[i%n]})
		}
	}
	return out
}

// Validate reports a host that has nobody to talk to (traffic.Pairs).
func (s *selection) Validate() error {
	if len(s.from) == 0 || len(s.to) == 0 {
		return fmt.Errorf("no hosts are selected: from has %d, to has %d", len(s.from), len(s.to))
	}
	for _, h := range s.from {
		if s.choices(h) > 0 {
			continue
		}
		if s.any {
			return fmt.Errorf("host h%d has nobody to send to", h)
		}
		return fmt.Errorf("host h%d has nobody to send to behind another leaf: name some in to, or write pairs: any", h)
	}
	return nil
}

// selectHosts resolves hosts by name ("h3"), leaves ("L0") and "all".
func selectHosts(selectors, names []string, rack []int) ([]network.HostID, error) {
	picked := make([]bool, len(rack))
	for _, sel := range selectors {
		found := false
		for h := range rack {
			if sel == "all" || sel == names[h] || sel == fmt.Sprintf("L%d", rack[h]) {
				picked[h], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q is neither a host of this fabric (%s to %s), nor a leaf with hosts (as in L0), nor \"all\"", sel, names[0], names[len(names)-1])
		}
	}
	var out []network.HostID
	for h, p := range picked {
		if p {
			out = append(out, network.HostID(h))
		}
	}
	return out, nil
}

// flowMaker turns workloads into sources of flows.
type flowMaker struct {
	spec   *Spec
	fabric *traffic.Fabric
	names  []string     // of hosts
	vni    []uint32     // of hosts; nil: there is one
	file   *fabric.File // whose workloads these are; nil: they are the experiment's
}

// source returns the flows of the i-th workload; an error names it.
func (m *flowMaker) source(i int) (traffic.Source, error) {
	w := &m.spec.Workloads[i]
	s, err := m.make(i, w)
	if err != nil {
		return nil, fmt.Errorf("workloads[%d] (%s): %w", i, w.Name, err)
	}
	return s, nil
}

func (m *flowMaker) make(i int, w *vocab.Workload) (traffic.Source, error) {
	sel := &selection{rack: m.fabric.Rack, vni: m.vni, any: w.Pairs == "any"}
	var err error
	if sel.from, err = selectHosts(w.From, m.names, sel.rack); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if sel.to, err = selectHosts(w.To, m.names, sel.rack); err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	stream := traffic.Stream{Seed: m.spec.Seed, Number: uint64(i)}
	from := engine.Of(w.Start)
	until := from + engine.Of(w.Duration)
	bulk := traffic.BulkConfig{Stream: stream, Each: w.Flows, Bytes: uint64(w.Bytes), From: from, Tag: i}
	if w.Bytes == 0 {
		bulk.Bytes, bulk.Until = traffic.Endless, until
	}
	switch w.Type {
	case vocab.Poisson:
		return m.poisson(i, w, sel, stream)
	case vocab.Bulk:
		bulk.Pairs = sel.pairs()
		return traffic.NewBulk(bulk)
	case vocab.UDP:
		bulk.Pairs, bulk.Rate, bulk.Packet = sel.pairs(), uint64(w.Rate), uint32(w.Size)
		return traffic.NewBulk(bulk)
	case vocab.Stride:
		if bulk.Pairs, err = traffic.Stride(len(sel.rack), w.Stride); err != nil {
			return nil, err
		}
		return traffic.NewBulk(bulk)
	case vocab.Permutation:
		if bulk.Pairs, err = traffic.Permutation(len(sel.rack), stream); err != nil {
			return nil, err
		}
		return traffic.NewBulk(bulk)
	case vocab.AllToAll:
		return traffic.NewShuffle(traffic.ShuffleConfig{Stream: stream, Hosts: sel.from, Bytes: uint64(w.Bytes), From: from, Tag: i})
	case vocab.Incast:
		return m.incast(i, w, sel, stream)
	}
	return m.trace(i, w, stream)
}

func (m *flowMaker) poisson(i int, w *vocab.Workload, sel *selection, stream traffic.Stream) (traffic.Source, error) {
	sizes, err := readSizes(w)
	if err != nil {
		return nil, err
	}
	if m.file != nil {
		return newAsks(m.file, m.file.Expand(), i, w.Load, sizes, stream)
	}
	rate, err := m.flowRate(w, sel, sizes)
	if err != nil {
		return nil, err
	}
	from := engine.Of(w.Start)
	return traffic.NewPoisson(traffic.PoissonConfig{
		Stream: stream, Pairs: sel, Sizes: sizes, Rate: rate, From: from, Until: from + engine.Of(w.Duration),
		Conns: w.Connections, Hosts: len(sel.rack), Tag: i,
	})
}

// flowRate returns how many flows per second make a workload's load.
func (m *flowMaker) flowRate(w *vocab.Workload, sel *selection, sizes *workload.CDF) (float64, error) {
	load := traffic.Load{Percent: w.Load}
	if w.Of == "hosts" {
		load.Of = traffic.OfHostLinks
	}
	if err := sel.Validate(); err != nil {
		return 0, err
	}
	rate, err := load.FlowRate(m.fabric, sel, sizes)
	if err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	return rate, nil
}

// readSizes returns the distribution of a workload's sizes.
func readSizes(w *vocab.Workload) (*workload.CDF, error) {
	var c *workload.CDF
	if strings.HasSuffix(w.Sizes, ".csv") {
		f, err := os.Open(w.Sizes)
		if err != nil {
			return nil, fmt.Errorf("sizes: %w", err)
		}
		defer f.Close()
		if c, err = workload.ReadCDF(f); err != nil {
			return nil, fmt.Errorf("sizes: %s: %w", w.Sizes, err)
		}
	} else {
		var err error
		if c, err = workload.Builtin(w.Sizes); err != nil {
			return nil, fmt.Errorf("sizes: %w", err)
		}
	}
	if w.Scale == 1 {
		return c, nil
	}
	return c.Scale(w.Scale)
}

func (m *flowMaker) incast(i int, w *vocab.Workload, sel *selection, stream traffic.Stream) (traffic.Source, error) {
	if len(sel.from) != 1 {
		return nil, fmt.Errorf("from: %d hosts are selected: incast has one client", len(sel.from))
	}
	servers := slices.DeleteFunc(slices.Clone(sel.to), func(h network.HostID) bool { return !sel.allowed(sel.from[0], h) })
	if w.FanIn > len(servers) {
		return nil, fmt.Errorf("fan_in: %d servers are wanted, and to has %d that the client may ask", w.FanIn, len(servers))
	}
	r := workload.NewRand(stream.Seed, ^stream.Number)
	r.Shuffle(len(servers), func(a, b int) { servers[a], servers[b] = servers[b], servers[a] })
	from := engine.Of(w.Start)
	in, err := traffic.NewIncast(traffic.IncastConfig{
		Stream: stream, Client: sel.from[0], Servers: servers[:w.FanIn], Bytes: uint64(w.Bytes), Requests: uint64(w.Repeat),
		From: from, Interval: engine.Of(w.Interval), Conns: w.Connections > 0, Tag: i,
	})
	if err != nil {
		return nil, err
	}
	if m.file == nil { // so many, however long they take
		return &queries{in, engine.Never}, nil
	}
	return &queries{in, from + engine.Of(w.Duration)}, nil
}

// queries is an incast workload that begins no query when its time is up.
type queries struct {
	*traffic.Incast
	until engine.Time
}

// Done says that a stripe has arrived (traffic.Closed).
func (q *queries) Done(now engine.Time, f traffic.Flow) bool {
	return q.Incast.Done(now, f) && now < q.until
}

func (m *flowMaker) trace(i int, w *vocab.Workload, stream traffic.Stream) (traffic.Source, error) {
	f, err := os.Open(w.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	flows, err := traffic.ReadTrace(f, len(m.fabric.Rack), stream)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.File, err)
	}
	for k := range flows {
		flows[k].Tag = i // whatever it was where it was recorded
	}
	return traffic.NewReplay(flows), nil
}
