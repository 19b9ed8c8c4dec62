package traffic

import (
	"fmt"
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// BulkConfig describes long flows that all start at once.
type BulkConfig struct {
	Stream
	Pairs List
	Each  int         // flows of each pair
	Bytes uint64      // of each flow; Endless needs Until
	From  engine.Time // when flows start
	Until engine.Time // when senders stop; 0: when all is sent
	Tag   int
	// Rate and Packet make them UDP flows: bits of payload per second, and
	// bytes of payload of each packet. Bytes may be Endless then, too.
	Rate   uint64
	Packet uint32
}

// NewBulk returns the flows of a BulkConfig.
func NewBulk(c BulkConfig) (*Replay, error) {
	if err := checkPairs(c.Pairs); err != nil {
		return nil, fmt.Errorf("workload %d: %w", c.Tag, err)
	}
	switch {
	case c.Each < 1 || c.Bytes == 0:
		return nil, fmt.Errorf("workload %d: %d flows of %d bytes for each pair: there must be at least one flow of one byte", c.Tag, c.Each, c.Bytes)
	case c.Bytes == Endless && c.Until == 0:
		return nil, fmt.Errorf("workload %d never ends: give the flows a size or a time to stop", c.Tag)
	case c.From < 0 || c.Until < 0 || c.Until > 0 && c.Until <= c.From:
		return nil, fmt.Errorf("workload %d: flows start at %v, and would stop at %v", c.Tag, c.From, c.Until)
	case (c.Rate == 0) != (c.Packet == 0):
		return nil, fmt.Errorf("workload %d: UDP flows of %d bit/s in packets of %d bytes: give both", c.Tag, c.Rate, c.Packet)
	}
	until := c.Until
	if until == 0 {
		until = engine.Never
	}
	flows := make([]Flow, 0, len(c.Pairs)*c.Each)
	for range c.Each {
		for _, p := range c.Pairs {
			number := uint64(len(flows))
			flows = append(flows, Flow{
				ID: network.FlowID(number), Start: c.From, Src: p.Src, Dst: p.Dst, Bytes: c.Bytes, Until: until, Conn: NoConn,
				Tag: c.Tag, Rate: c.Rate, Packet: c.Packet, Key: c.key(keyOfFlow, number),
			})
		}
	}
	return NewReplay(flows), nil
}

// IncastConfig describes a client that asks servers for stripes of a file, all at
// once, and again when it has all of them (CONGA §5.3).
type IncastConfig struct {
	Stream
	Client   network.HostID
	Servers  []network.HostID // who has a stripe: the fan-in
	Bytes    uint64           // of the file; CONGA: 10 MB
	Requests uint64           // how often
	From     engine.Time      // of the first request
	Interval engine.Time      // from the start of a request to the next, which waits for its end
	Conns    bool             // servers keep their connections
	Tag      int
}

// Incast is the source of such a client's flows. A request begins when servers
// send: the way of the question to them is not simulated.
type Incast struct {
	c       IncastConfig
	request uint64
	start   engine.Time // of the request
	server  int         // that is next
	open    int         // flows that have not ended
	made    uint64
	busy    engine.Time // time that finished requests took
}

// NewIncast returns the workload.
func NewIncast(c IncastConfig) (*Incast, error) {
	switch n := uint64(len(c.Servers)); {
	case n == 0 || c.Bytes < n:
		return nil, fmt.Errorf("workload %d: %d bytes cannot be striped across %d servers", c.Tag, c.Bytes, n)
	case c.Requests == 0:
		return nil, fmt.Errorf("workload %d makes no request: ask for at least one", c.Tag)
	case slices.Contains(c.Servers, c.Client):
		return nil, fmt.Errorf("workload %d: host %d is client and server", c.Tag, c.Client)
	case c.From < 0 || c.Interval < 0:
		return nil, fmt.Errorf("workload %d: starts at %v with intervals of %v: times are not negative", c.Tag, c.From, c.Interval)
	}
	return &Incast{c: c, start: c.From}, nil
}

// Conns bounds the connections' numbers.
func (i *Incast) Conns() int {
	if i.c.Conns {
		return len(i.c.Servers)
	}
	return 0
}

// Next returns the next server's stripe of the present request.
func (i *Incast) Next() (Flow, bool) {
	n := len(i.c.Servers)
	if i.server == n || i.request == i.c.Requests {
		return Flow{}, false
	}
	s := i.server
	f := Flow{
		ID: network.FlowID(i.made), Start: i.start, Src: i.c.Servers[s], Dst: i.c.Client,
		Bytes: i.c.Bytes / uint64(n), Until: engine.Never, Conn: NoConn, Tag: i.c.Tag, Key: i.c.key(keyOfFlow, i.made),
	}
	if uint64(s) < i.c.Bytes%uint64(n) {
		f.Bytes++ // the stripes add up to the file
	}
	if i.c.Conns {
		f.Conn, f.Key = s, i.c.key(keyOfConn, uint64(s))
	}
	i.server++
	i.open++
	i.made++
	return f, true
}

// Done says that a stripe has arrived.
func (i *Incast) Done(now engine.Time, _ Flow) bool {
	i.open--
	if i.open > 0 || i.server < len(i.c.Servers) {
		return false
	}
	i.busy += now - i.start
	i.request++
	i.server = 0
	i.start = max(now, i.start+i.c.Interval)
	return i.request < i.c.Requests
}

// Finished returns how many requests are done.
func (i *Incast) Finished() uint64 { return i.request }

// Throughput is the client's effective throughput, bit/s: the payload of the
// finished requests over the time that they took (CONGA Figure 13).
func (i *Incast) Throughput() float64 {
	if i.busy == 0 {
		return 0
	}
	return float64(i.request) * float64(i.c.Bytes) * 8 / i.busy.Seconds()
}

// ShuffleConfig describes an exchange of all with all: each host fetches the same
// amount from each other one, in a random order of its own.
type ShuffleConfig struct {
	Stream
	Hosts []network.HostID
	Bytes uint64 // of each ordered pair
	From  engine.Time
	Tag   int
}

// NewShuffle returns the flows of the exchange, which all start at once.
func NewShuffle(c ShuffleConfig) (*Replay, error) {
	n := len(c.Hosts)
	if n < 2 || c.Bytes == 0 || c.From < 0 {
		return nil, fmt.Errorf("workload %d: %d hosts cannot exchange %d bytes each from %v on", c.Tag, n, c.Bytes, c.From)
	}
	r := c.rand(forPairs)
	from := make([][]network.HostID, n) // whom each host fetches from, in order
	for i, h := range c.Hosts {
		if slices.Contains(c.Hosts[:i], h) {
			return nil, fmt.Errorf("workload %d: host %d is named twice", c.Tag, h)
		}
		for _, k := range r.Perm(n) {
			if k != i {
				from[i] = append(from[i], c.Hosts[k])
			}
		}
	}
	var flows []Flow
	for round := range n - 1 {
		for i, h := range c.Hosts {
			number := uint64(len(flows))
			flows = append(flows, Flow{
				ID: network.FlowID(number), Start: c.From, Src: from[i][round], Dst: h,
				Bytes: c.Bytes, Until: engine.Never, Conn: NoConn, Tag: c.Tag, Key: c.key(keyOfFlow, number),
			})
		}
	}
	return NewReplay(flows), nil
}
