// Package admin is the admin API of leafd and spined: JSON over HTTP on a Unix
// socket, for people who look at a running node, and for those few who may change how it
// is configured and how much it logs. It must not decide anything, nor ask for more of a
// worker's time than an answer needs.
package admin

import (
	"net/netip"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// The names in the answers' tags are the API: within /v1 they may be joined by
// others, and keep their meaning. Times are nanoseconds, rates bits per second.

// Status is the answer of /v1/status: whether the node is ready, as /readyz says.
type Status struct {
	Name    string             `json:"name"`
	Role    string             `json:"role"`
	Version string             `json:"version"`
	Ready   bool               `json:"ready"`
	Reasons []dataplane.Reason `json:"reasons"` // why not; empty when ready
}

// Ports is the answer of /v1/ports.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Port is one port, all workers together.
type Port struct {
	Port        string  `json:"port"` // interface
	Kind        string  `json:"kind"` // access, uplink or spine
	Open        bool    `json:"open"` // its sockets are bound
	Up          bool    `json:"up"`   // administratively up and with carrier
	MAC         string  `json:"mac"`
	MTU         int     `json:"mtu"`
	MTUNeeded   int     `json:"mtu_needed"` // towards the fabric; 0: unknown, or an access port
	XDPMode     string  `json:"xdp_mode"`
	CopyMode    string  `json:"copy_mode"`
	Error       string  `json:"error"`     // why it is not open
	Rate        uint64  `json:"rate"`      // that the meter goes by; 0: unknown
	RateFrom    string  `json:"rate_from"` // shaper, link_rate or kernel; "": unknown
	Utilisation float64 `json:"utilisation"`
	Metric      uint8   `json:"metric"` // utilisation, quantised
	QueueBytes  uint64  `json:"queue_bytes"`
	RxFrames    uint64  `json:"rx_frames"`
	RxBytes     uint64  `json:"rx_bytes"`
	TxFrames    uint64  `json:"tx_frames"`
	TxBytes     uint64  `json:"tx_bytes"`
	Dropped     uint64  `json:"dropped"`   // of those that came in here
	Marked      uint64  `json:"marked"`    // ECN CE set on the way out
	CERaised    uint64  `json:"ce_raised"` // of the fabric's header
}

// Peers is the answer of /v1/peers.
type Peers struct {
	Peers []Peer `json:"peers"`
}

// Peer is a remote VTEP.
type Peer struct {
	VTEP           netip.Addr `json:"vtep"`
	Capable        bool       `json:"capable"`
	State          string     `json:"state"` // unproved, capable, left or silent
	NextHops       []NextHop  `json:"next_hops"`
	SentFrames     uint64     `json:"sent_frames"`
	SentBytes      uint64     `json:"sent_bytes"`
	ReceivedFrames uint64     `json:"received_frames"`
	ReceivedBytes  uint64     `json:"received_bytes"`
}

// NextHop is one way to a peer.
type NextHop struct {
	Port     string     `json:"port"`
	Gateway  netip.Addr `json:"gateway"`
	MAC      string     `json:"mac"`
	Resolved bool       `json:"resolved"` // MAC is known
	Weight   uint16     `json:"weight"`   // its share among the peer's next hops
}

// Conga is the answer of /v1/conga: CONGA's two tables and the links' meters.
type Conga struct {
	Peers []dataplane.PeerState `json:"peers"`
}

// Paths is the answer of /v1/paths: which paths deliver.
type Paths struct {
	Peers []dataplane.PeerPaths `json:"peers"`
}

// Flowlets is the answer of /v1/flowlets.
type Flowlets struct {
	Tables []dataplane.FlowletTable `json:"tables"`
}

// Stats is the answer of /v1/stats.
type Stats struct {
	Name      string            `json:"name"`
	Role      string            `json:"role"`
	Version   string            `json:"version"`
	Workers   []Worker          `json:"workers"`
	Drops     map[string]uint64 `json:"drops"`     // by reason; none that is 0
	Schemes   []Counters        `json:"schemes"`   // what each decided; "own": what only that scheme counts
	Receivers []Counters        `json:"receivers"` // by the scheme that has the receiver
	Shadows   []Shadow          `json:"shadows"`
	Exchange  Counters          `json:"exchange"`
	Leaf      Counters          `json:"leaf"`
}

// Shadow is what the shadow of a class would have done.
type Shadow struct {
	Class     int       `json:"class"`
	Scheme    string    `json:"scheme"` // of the class
	Shadow    string    `json:"shadow"`
	Agreement float64   `json:"agreement"` // part of the frames that it would have sent as they went
	Imbalance Imbalance `json:"imbalance"`
	Counters  Counters  `json:"counters"`
}

// Imbalance says by how much an uplink's bytes differ from another one's at most, as a part
// of their mean.
type Imbalance struct {
	Sent  float64 `json:"sent"`  // by the class's scheme
	Would float64 `json:"would"` // by the shadow
}

// ConfigDiff is what a reload of a daemon's file (SIGHUP), or of another text in its
// place, would do now, or has done.
type ConfigDiff struct {
	File    string `json:"file"`    // the daemon's
	Applied bool   `json:"applied"` // it has been done
	// Live are the keys that the daemon takes over, if Restart is empty: a reload is all or
	// nothing.
	Live     []string `json:"live"`
	Restart  []string `json:"restart"`  // keys that need a restart
	Findings []string `json:"findings"` // warnings about what changed
	Error    string   `json:"error"`    // why the file would be refused; "": it would not
}

// Worker is where a worker's frames came from and where they went.
type Worker struct {
	Worker int `json:"worker"`
	dataplane.Account
	Balances   bool   `json:"balances"` // received + made = sent + dropped + consumed + held
	FDBEntries uint64 `json:"fdb_entries"`
	Fast       bool   `json:"fast"` // not a worker: what XDP has forwarded by itself
	Load
}

// Load is what a worker has had to do up to a time. Two of them make rates.
type Load struct {
	At     mono.Time     `json:"at_ns"` // by a clock of the daemon's own; 0: not a worker
	Busy   time.Duration `json:"busy_ns"`
	Rounds uint64        `json:"rounds"`
	Bursts uint64        `json:"filled_bursts"` // with a frame or more
	Sleeps uint64        `json:"sleeps"`
}

// Failure is the answer when there is no other; the HTTP status says whose
// mistake it was.
type Failure struct {
	Error string `json:"error"`
}

// otherRole is the failure of a question that only a node of the other role can answer.
type otherRole struct {
	Failure
	OtherRole bool `json:"other_role"`
}

// at returns the i-th element, or zero: tables and counters may be of different
// ages.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}

func ports(configs []dataplane.PortConfig, st *dataplane.Stats, t *dataplane.Tables) Ports {
	all := make([]Port, 0, len(configs))
	counted := st.Sum().Ports
	for i := range configs {
		c, info := &configs[i], at(st.Ports, i)
		if c.Name == "" {
			continue // nobody's place
		}
		p := Port{
			Port: c.Name, Kind: c.Kind.String(), Open: info.Open, XDPMode: info.XDPMode, CopyMode: info.CopyMode,
			Error: info.Error,
		}
		var speed uint64
		if t != nil {
			state := at(t.Ports, i)
			p.Up, p.MAC, p.MTU = state.Up, state.MAC.String(), state.MTU
			p.MTUNeeded, speed = state.NeedMTU, state.Speed
		}
		p.Rate, p.RateFrom = c.Egress.Speed(speed)
		sum := at(counted, i)
		p.Utilisation, p.Metric, p.QueueBytes = sum.Utilisation, sum.Metric, sum.QueueBytes
		p.RxFrames, p.RxBytes, p.TxFrames, p.TxBytes = sum.Received.Frames, sum.Received.Bytes, sum.Sent.Frames, sum.Sent.Bytes
		p.Dropped, p.Marked, p.CERaised = sum.Dropped(), sum.Marked.Frames, sum.CERaised
		all = append(all, p)
	}
	return Ports{all}
}

func peers(configs []dataplane.PortConfig, st *dataplane.Stats, t *dataplane.Tables, states []dataplane.PeerState) Peers {
	all := []Peer{}
	if t == nil {
		return Peers{all}
	}
	sum := st.Sum()
	known := make(map[netip.Addr]*dataplane.PeerState)
	for i := range states {
		known[states[i].VTEP] = &states[i]
	}
	for i, peer := range t.Peers {
		if !peer.VTEP.IsValid() {
			continue // its place is free
		}
		p := Peer{VTEP: peer.VTEP, State: overlay.Unproved.String(), NextHops: nextHops(configs, t, peer.Hops, peer.Weights)}
		if s := known[peer.VTEP]; s != nil {
			p.Capable, p.State = s.Capable, s.State
		}
		sent, received := at(sum.PeerSent, i), at(sum.PeerReceived, i)
		p.SentFrames, p.SentBytes, p.ReceivedFrames, p.ReceivedBytes = sent.Frames, sent.Bytes, received.Frames, received.Bytes
		all = append(all, p)
	}
	return Peers{all}
}

// nextHops are the ways of a peer, or of a route.
func nextHops(configs []dataplane.PortConfig, t *dataplane.Tables, hops []dataplane.HopID, weights []uint16) []NextHop {
	all := []NextHop{}
	for i, h := range hops {
		hop := at(t.Hops, int(h))
		all = append(all, NextHop{at(configs, int(hop.Port)).Name, hop.Gateway, hop.MAC.String(), hop.Resolved, max(at(weights, i), 1)})
	}
	return all
}

func stats(st *dataplane.Stats) Stats {
	sum := st.Sum()
	s := Stats{
		Workers: []Worker{}, Drops: st.Drops(), Schemes: []Counters{}, Receivers: []Counters{}, Shadows: []Shadow{},
		Exchange: NewCounters("", &sum.Exchange), Leaf: leafCounters(&sum.Leaf),
	}
	for i := range st.Workers {
		w := &st.Workers[i]
		a := w.Account()
		s.Workers = append(s.Workers, Worker{i, a, a.Balances(), w.FDBEntries, st.Fast && i == len(st.Workers)-1, Load{w.At, w.Busy, w.Bursts, w.Filled, w.Sleeps}})
	}
	for i := range sum.Schemes {
		x := &sum.Schemes[i]
		c := NewCounters(x.Scheme, x)
		if x.Own != nil {
			c.set("own", NewCounters(x.Scheme, x.Own))
		}
		s.Schemes = append(s.Schemes, c)
	}
	for i := range sum.Shadows {
		x := &sum.Shadows[i]
		y := Shadow{Class: x.Class(), Scheme: x.Scheme, Shadow: x.Shadow, Agreement: float64(x.Agreed) / float64(max(x.Frames, 1)), Counters: NewCounters("", &x.ShadowCounts)}
		y.Imbalance.Sent, y.Imbalance.Would = x.Imbalance()
		s.Shadows = append(s.Shadows, y)
	}
	for _, r := range sum.Receivers {
		s.Receivers = append(s.Receivers, NewCounters(r.Scheme, r.Stats))
	}
	return s
}
