// Package admin is the admin API of leafd and spined: JSON over HTTP on a Unix
// socket, for people who look at a running node. It only reads. It must not
// decide anything, nor ask for more of a worker's time than an answer needs.
package admin

import (
	"net/netip"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
)

// The names in the answers' tags are the API: within /v1 they may be joined by
// others, and keep their meaning. Times are nanoseconds, rates bits per second.

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
	XDPMode     string  `json:"xdp_mode"`
	CopyMode    string  `json:"copy_mode"`
	Error       string  `json:"error"` // why it is not open
	Rate        uint64  `json:"rate"`  // 0: unknown
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
}

// Conga is the answer of /v1/conga: CONGA's two tables and the links' meters.
type Conga struct {
	Peers []dataplane.PeerState `json:"peers"`
}

// Flowlets is the answer of /v1/flowlets.
type Flowlets struct {
	Tables []dataplane.FlowletTable `json:"tables"`
}

// Stats is the answer of /v1/stats.
type Stats struct {
	Name     string            `json:"name"`
	Role     string            `json:"role"`
	Version  string            `json:"version"`
	Workers  []Worker          `json:"workers"`
	Drops    map[string]uint64 `json:"drops"` // by reason; none that is 0
	Schemes  []Scheme          `json:"schemes"`
	Exchange Exchange          `json:"exchange"`
}

// Worker is where a worker's frames came from and where they went.
type Worker struct {
	Worker     int    `json:"worker"`
	Received   uint64 `json:"received"`
	Made       uint64 `json:"made"`
	Sent       uint64 `json:"sent"`
	Dropped    uint64 `json:"dropped"`
	Consumed   uint64 `json:"consumed"`
	Held       uint64 `json:"held"`
	Balances   bool   `json:"balances"` // received + made = sent + dropped + consumed + held
	FDBEntries uint64 `json:"fdb_entries"`
}

// Scheme is what a load-balancing scheme decided.
type Scheme struct {
	Scheme          string `json:"scheme"`
	Decisions       uint64 `json:"decisions"`
	FlowletsStarted uint64 `json:"flowlets_started"`
	FlowletsMoved   uint64 `json:"flowlets_moved"`
	FlowletsKept    uint64 `json:"flowlets_kept"`
	FlowletsExpired uint64 `json:"flowlets_expired"`
}

// Exchange is what leaves told each other, in packets.
type Exchange struct {
	Plain            uint64 `json:"plain"`
	Stamped          uint64 `json:"stamped"`
	FeedbackSent     uint64 `json:"feedback_sent"`
	FeedbackStale    uint64 `json:"feedback_stale"` // metrics, not packets: too old when their turn came
	Arrived          uint64 `json:"arrived"`
	CongestedArrived uint64 `json:"congested_arrived"`
	FeedbackReceived uint64 `json:"feedback_received"`
	FeedbackBadTag   uint64 `json:"feedback_bad_tag"`
	FeedbackBadValue uint64 `json:"feedback_bad_value"`
}

// Failure is the answer when there is no other; the HTTP status says whose
// mistake it was.
type Failure struct {
	Error string `json:"error"`
}

func kindName(k dataplane.PortKind) string {
	switch k {
	case dataplane.Access:
		return "access"
	case dataplane.Uplink:
		return "uplink"
	default:
		return "spine"
	}
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
	for i := range configs {
		c, info := &configs[i], at(st.Ports, i)
		p := Port{
			Port: c.Name, Kind: kindName(c.Kind), Open: info.Open, XDPMode: info.XDPMode, CopyMode: info.CopyMode,
			Error: info.Error, Rate: c.Egress.Rate,
		}
		if p.Rate == 0 {
			p.Rate = c.Egress.LinkRate
		}
		if t != nil {
			state := at(t.Ports, i)
			p.Up, p.MAC, p.MTU = state.Up, state.MAC.String(), state.MTU
		}
		for w := range st.Workers {
			s := at(st.Workers[w].Ports, i)
			p.Utilisation, p.Metric = s.Utilisation, s.Metric // of the link, the same from each
			p.QueueBytes += s.QueueBytes
			p.RxFrames += s.Received.Frames
			p.RxBytes += s.Received.Bytes
			p.TxFrames += s.Sent.Frames
			p.TxBytes += s.Sent.Bytes
			p.Marked += s.Marked.Frames
			p.CERaised += s.CERaised
			for _, n := range s.Drops {
				p.Dropped += n
			}
		}
		all = append(all, p)
	}
	return Ports{all}
}

func peers(configs []dataplane.PortConfig, st *dataplane.Stats, t *dataplane.Tables, states []dataplane.PeerState) Peers {
	all := []Peer{}
	if t == nil {
		return Peers{all}
	}
	capable := make(map[netip.Addr]bool)
	for _, s := range states {
		capable[s.VTEP] = s.Capable
	}
	for i, peer := range t.Peers {
		if !peer.VTEP.IsValid() {
			continue // its place is free
		}
		p := Peer{VTEP: peer.VTEP, Capable: capable[peer.VTEP], NextHops: []NextHop{}}
		for _, h := range peer.Hops {
			hop := at(t.Hops, int(h))
			p.NextHops = append(p.NextHops, NextHop{at(configs, int(hop.Port)).Name, hop.Gateway, hop.MAC.String(), hop.Resolved})
		}
		for w := range st.Workers {
			sent, received := at(st.Workers[w].PeerSent, i), at(st.Workers[w].PeerReceived, i)
			p.SentFrames += sent.Frames
			p.SentBytes += sent.Bytes
			p.ReceivedFrames += received.Frames
			p.ReceivedBytes += received.Bytes
		}
		all = append(all, p)
	}
	return Peers{all}
}

func stats(st *dataplane.Stats) Stats {
	s := Stats{Workers: []Worker{}, Drops: make(map[string]uint64), Schemes: []Scheme{}}
	for i := range st.Workers {
		w := &st.Workers[i]
		a := w.Account()
		s.Workers = append(s.Workers, Worker{i, a.Received, a.Made, a.Sent, a.Dropped, a.Consumed, a.Held, a.Balances(), w.FDBEntries})
		for p := range w.Ports {
			for r, n := range w.Ports[p].Drops {
				if n > 0 {
					s.Drops[drop.Reason(r).String()] += n
				}
			}
		}
		for _, c := range w.Schemes {
			s.Schemes = addScheme(s.Schemes, c)
		}
		x, sum := &w.Exchange, &s.Exchange
		sum.Plain += x.Plain
		sum.Stamped += x.Stamped
		sum.FeedbackSent += x.FeedbackSent
		sum.FeedbackStale += x.FeedbackStale
		sum.Arrived += x.Arrived
		sum.CongestedArrived += x.CongestedArrived
		sum.FeedbackReceived += x.FeedbackReceived
		sum.FeedbackBadTag += x.FeedbackBadTag
		sum.FeedbackBadValue += x.FeedbackBadValue
	}
	return s
}

// addScheme adds one worker's counters to the scheme's.
func addScheme(all []Scheme, c dataplane.SchemeStats) []Scheme {
	i := 0
	for i < len(all) && all[i].Scheme != c.Scheme {
		i++
	}
	if i == len(all) {
		all = append(all, Scheme{Scheme: c.Scheme})
	}
	s := &all[i]
	s.Decisions += c.Decisions
	s.FlowletsStarted += c.Flowlets.Started
	s.FlowletsMoved += c.Flowlets.Moved
	s.FlowletsKept += c.Flowlets.Kept
	s.FlowletsExpired += c.Flowlets.Expired
	return all
}
