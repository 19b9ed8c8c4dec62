package traffic

import (
	"cmp"
	"errors"
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// NewBulk returns flows of pairs, so many of each, with size, start, end and rate of like.
// Each pair's flows start the time stagger after those of the pair before.
func NewBulk(s Stream, pairs []Pair, each int, stagger engine.Time, like Flow) (*Replay, error) {
	if len(pairs) == 0 {
		return nil, errors.New("the list of pairs is empty")
	}
	flows := make([]Flow, 0, len(pairs)*each)
	for range each {
		for i, p := range pairs {
			f := s.flow(uint64(len(flows)), like.Start+engine.Time(i)*stagger, p, like.Bytes)
			f.Until, f.Rate, f.Packet = like.Until, like.Rate, like.Packet
			flows = append(flows, f)
		}
	}
	slices.SortStableFunc(flows, func(a, b Flow) int { return cmp.Compare(a.Start, b.Start) })
	for i := range flows {
		flows[i].ID = network.FlowID(i)
	}
	return NewReplay(flows), nil
}

// Incast is the source of the flows to a client that asks servers for stripes of a
// file, all at once, and again when it has all of them (CONGA §5.3). A request begins
// when servers send: the way of the question to them is not simulated.
type Incast struct {
	Stream
	Client   network.HostID
	Servers  []network.HostID // who has a stripe: the fan-in
	Bytes    uint64           // of the file, at least one for each server; CONGA: 10 MB
	Requests uint64           // how often
	Start    engine.Time      // of the present request
	Until    engine.Time      // one that has not begun by then does not
	Interval engine.Time      // from the start of a request to the next, which waits for its end
	Keep     bool             // servers keep their connections

	request uint64
	server  int // that is next
	open    int // flows that have not ended
	made    uint64
	busy    engine.Time // time that finished requests took
}

// Conns bounds the connections' numbers.
func (i *Incast) Conns() int {
	if i.Keep {
		return len(i.Servers)
	}
	return 0
}

// Next returns the next server's stripe of the present request.
func (i *Incast) Next() (Flow, bool) {
	n := len(i.Servers)
	if i.server == n || i.request == i.Requests {
		return Flow{}, false
	}
	s := i.server
	f := i.flow(i.made, i.Start, Pair{i.Servers[s], i.Client}, i.Bytes/uint64(n))
	if uint64(s) < i.Bytes%uint64(n) {
		f.Bytes++ // the stripes add up to the file
	}
	if i.Keep {
		f.Conn, f.Key = s, i.key(keyOfConn, uint64(s))
	}
	i.server++
	i.open++
	i.made++
	return f, true
}

// Done says that a stripe has arrived.
func (i *Incast) Done(now engine.Time, _ Flow) bool {
	i.open--
	if i.open > 0 || i.server < len(i.Servers) {
		return false
	}
	i.busy += now - i.Start
	i.request++
	i.server = 0
	i.Start = max(now, i.Start+i.Interval)
	return i.request < i.Requests && now < i.Until
}

// Finished returns how many requests are done.
func (i *Incast) Finished() uint64 { return i.request }

// Throughput is the client's effective throughput, bit/s: the payload of the
// finished requests over the time that they took (CONGA Figure 13).
func (i *Incast) Throughput() float64 {
	if i.busy == 0 {
		return 0
	}
	return float64(i.request) * float64(i.Bytes) * 8 / i.busy.Seconds()
}
