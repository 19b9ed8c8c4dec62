package sim

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// asks are the requests of a fabric.yaml: those that the lab's clients make with
// the same seed, one by one, so that both carry the same flows at the same times.
type asks struct {
	clients []*client
	stream  traffic.Stream
	until   engine.Time
	push    bool // clients send
	made    uint64
}

// client draws as the lab's agents do: gap, server and size, in turn, from one
// generator of its own.
type client struct {
	host     int
	peers    []int
	rand     *rand.Rand
	arrivals *workload.Poisson
	sizes    *workload.CDF
	at       engine.Time // of its next request
}

// newAsks returns the requests of f's workload i, which clients make while its
// time lasts.
func newAsks(f *fabric.File, t *fabric.Topology, i int, load float64, sizes *workload.CDF, stream traffic.Stream) (*asks, error) {
	w := &f.Workloads[i]
	from, err := f.Select(w.From)
	if err != nil {
		return nil, err
	}
	to, err := f.Select(w.To)
	if err != nil {
		return nil, err
	}
	capacity := float64(t.Capacity(from, w.Of))
	from, to = w.Askers(from, to)
	start := engine.Of(w.Start)
	a := &asks{stream: stream, until: start + engine.Of(w.Duration), push: w.Push}
	rate := workload.FlowRate(load, capacity, sizes.Mean()) / float64(len(from))
	for _, host := range from {
		r := workload.NewRand(stream.Seed, uint64(host))
		c := &client{host: host, peers: t.Candidates(host, to, w.Pairs), rand: r, arrivals: workload.NewPoisson(rate, r), sizes: sizes}
		c.at = start + engine.Of(c.arrivals.Next())
		a.clients = append(a.clients, c)
	}
	return a, nil
}

// Conns returns 0: who has which connection is the run's to say (traffic.Source).
func (a *asks) Conns() int { return 0 }

// Next returns the next answer, which is what loads the fabric: servers send
// (traffic.Source).
func (a *asks) Next() (traffic.Flow, bool) {
	var c *client
	for _, x := range a.clients {
		if c == nil || x.at < c.at {
			c = x
		}
	}
	if c == nil || c.at >= a.until {
		return traffic.Flow{}, false
	}
	server := c.peers[c.rand.IntN(len(c.peers))]
	f := traffic.Flow{
		ID: network.FlowID(a.made), Start: c.at, Src: network.HostID(server), Dst: network.HostID(c.host),
		Bytes: c.sizes.Sample(c.rand), Until: engine.Never, Conn: traffic.NoConn, Tag: int(a.stream.Number),
		Key: workload.NewRand(a.stream.Seed, ^(a.stream.Number<<32 | a.made)).Uint64(),
	}
	if a.push {
		f.Src, f.Dst = f.Dst, f.Src
	}
	c.at += engine.Of(c.arrivals.Next())
	a.made++
	return f, true
}
