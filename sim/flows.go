package sim

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// sources returns the flows of all workloads. fabric is what loads are shares of.
func (r *run) sources(fabric *traffic.Fabric) ([]traffic.Source, error) {
	var sources []traffic.Source
	for i := range r.spec.Workloads {
		s, err := r.source(i, fabric)
		if err != nil {
			return nil, fmt.Errorf("workloads[%d] (%s): %w", i, r.spec.Workloads[i].Name, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// source returns the flows of the i-th workload.
func (r *run) source(i int, fabric *traffic.Fabric) (traffic.Source, error) {
	w := &r.spec.Workloads[i]
	sel := &traffic.Selection{Rack: fabric.Rack, VNI: r.vni, Any: w.Pairs == "any"}
	var err error
	if sel.From, err = r.topo.Select(w.From); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if sel.To, err = r.topo.Select(w.To); err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	stream := traffic.Stream{Seed: r.spec.Seed, Number: uint64(i)}
	from := engine.Of(w.Start)
	until := from + engine.Of(w.Duration)
	var pairs []traffic.Pair
	switch w.Type {
	case vocab.Random:
		return r.closed(w, traffic.Loop{Stream: stream, Random: sel, Start: from, Until: until})
	case vocab.Poisson:
		return r.poisson(i, fabric, traffic.PoissonConfig{Stream: stream, Pairs: sel, From: from, Until: until, Conns: w.Connections})
	case vocab.Incast:
		return r.incast(i, sel, &traffic.Incast{Stream: stream, Start: from, Until: until})
	case vocab.Trace:
		return r.trace(w, stream)
	case vocab.Bulk, vocab.UDP:
		pairs = sel.Pairs()
	case vocab.Stride:
		pairs, err = traffic.Stride(len(fabric.Rack), w.Stride)
		pairs = slices.DeleteFunc(pairs, func(p traffic.Pair) bool { return !slices.Contains(sel.From, p.Src) })
	case vocab.Permutation:
		pairs, err = traffic.Permutation(len(fabric.Rack), stream)
	case vocab.AllToAll:
		pairs, err = traffic.Shuffle(sel.From, stream)
	}
	if err != nil {
		return nil, err
	}
	if w.Sizes != "" {
		return r.closed(w, traffic.Loop{Stream: stream, Pairs: pairs, Start: from, Until: until})
	}
	flow := traffic.Flow{Start: from, Bytes: uint64(w.Bytes), Until: engine.Never, Rate: uint64(w.Rate), Packet: uint32(w.Size)}
	if w.Bytes == 0 {
		flow.Bytes, flow.Until = traffic.Endless, until
	}
	return traffic.NewBulk(stream, pairs, max(w.Flows, 1), engine.Of(w.Stagger), flow)
}

// closed completes a loop with sizes, and how many flows are under way at a time.
func (r *run) closed(w *vocab.Workload, l traffic.Loop) (traffic.Source, error) {
	sizes, err := readSizes(w)
	if err != nil {
		return nil, err
	}
	l.Sizes, l.Each, l.Stagger = sizes, max(w.Flows, 1), engine.Of(w.Stagger)
	return traffic.NewLoop(l)
}

// poisson completes c with sizes and rate.
func (r *run) poisson(i int, fabric *traffic.Fabric, c traffic.PoissonConfig) (traffic.Source, error) {
	w := &r.spec.Workloads[i]
	sizes, err := readSizes(w)
	if err != nil {
		return nil, err
	}
	if r.adopted {
		return newAsks(r.file, r.file.Expand(), i, w.Load, sizes, c.Stream)
	}
	if err := c.Pairs.Validate(); err != nil {
		return nil, err
	}
	c.Sizes = sizes
	if c.Rate, err = (traffic.Load{Percent: w.Load, OfHosts: w.Of == "hosts"}).FlowRate(fabric, c.Pairs, sizes); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return traffic.NewPoisson(c), nil
}

// readSizes returns the distribution of a workload's sizes.
func readSizes(w *vocab.Workload) (*workload.CDF, error) {
	c, err := workload.Open(w.Sizes, "")
	if err != nil {
		return nil, fmt.Errorf("sizes: %w", err)
	}
	if w.Scale == 1 || w.Scale == 0 {
		return c, nil
	}
	return c.Scale(w.Scale)
}

// incast completes in with its client and servers.
func (r *run) incast(i int, sel *traffic.Selection, in *traffic.Incast) (traffic.Source, error) {
	w := &r.spec.Workloads[i]
	if len(sel.From) != 1 {
		return nil, fmt.Errorf("from: %d hosts are selected: incast has one client", len(sel.From))
	}
	in.Client = sel.From[0]
	servers := slices.DeleteFunc(slices.Clone(sel.To), func(h network.HostID) bool { return !sel.Allowed(in.Client, h) })
	if w.FanIn > len(servers) {
		return nil, fmt.Errorf("fan_in: %d servers are wanted, and to has %d that the client may ask", w.FanIn, len(servers))
	}
	if int(w.Bytes) < w.FanIn {
		return nil, fmt.Errorf("bytes: %d bytes cannot be striped across %d servers", uint64(w.Bytes), w.FanIn)
	}
	rng := workload.NewRand(in.Seed, ^in.Number)
	rng.Shuffle(len(servers), func(a, b int) { servers[a], servers[b] = servers[b], servers[a] })
	in.Servers, in.Bytes, in.Requests = servers[:w.FanIn], uint64(w.Bytes), uint64(w.Repeat)
	in.Interval, in.Keep = engine.Of(w.Interval), w.Connections > 0
	if !r.adopted {
		in.Until = engine.Never // so many, however long they take
	}
	r.incasts[i] = in
	return in, nil
}

func (r *run) trace(w *vocab.Workload, stream traffic.Stream) (traffic.Source, error) {
	f, err := os.Open(w.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(w.File, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", w.File, err)
		}
	}
	flows, err := traffic.ReadTrace(text, len(r.topo.Hosts), stream)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.File, err)
	}
	return traffic.NewReplay(flows), nil
}
