// Package web shows a fabric in a browser. It asks the admin API of each node every
// second, keeps what was seen for a while, and sends it to pages as it comes. It needs
// no privileges. It must not work out what a node knows, nor change anything.
package web

// The page reads messages, one JSON object each: over a stream of server-sent events,
// as the history, or out of a file. Times are milliseconds since 1970, rates bits or
// events a second.

// Hello is the first message.
type Hello struct {
	Type    string `json:"type"` // hello
	Title   string `json:"title"`
	Version string `json:"version"`
	Every   int64  `json:"every_ms"`
	Keep    int64  `json:"keep_ms"`
}

// Layout says what the columns of frames stand for. There is a new one when the fabric
// changes shape, and not when a link fails.
type Layout struct {
	Type  string     `json:"type"` // layout
	ID    int64      `json:"id"`
	Nodes []NodeInfo `json:"nodes"`
	Links []LinkInfo `json:"links"`
	Paths []PathInfo `json:"paths"`
}

// NodeInfo is a leaf or a spine. Leaves come first.
type NodeInfo struct {
	Name    string `json:"name"`
	Leaf    bool   `json:"leaf"`
	VTEP    string `json:"vtep,omitempty"`
	Version string `json:"version,omitempty"`
}

// LinkInfo joins ports of two nodes. If one is a leaf's, it is the first. B is -1 for a
// port whose other end has not been seen.
type LinkInfo struct {
	Name  string `json:"name"`
	A     int    `json:"a"`
	APort string `json:"a_port"`
	B     int    `json:"b"`
	BPort string `json:"b_port"`
	ARate uint64 `json:"a_rate"` // of what A sends; 0: unknown
	BRate uint64 `json:"b_rate"`
}

// PathInfo is the way from a leaf by one of its uplinks to another leaf: a cell of the
// heat map.
type PathInfo struct {
	From   int    `json:"from"` // node
	Uplink uint8  `json:"uplink"`
	Port   string `json:"port"`
	To     string `json:"to"`   // a node's name, or a VTEP that is nobody's here
	VTEP   string `json:"vtep"` // of To
	Link   int    `json:"link"` // that it starts with; -1: unknown
}

// States of nodes.
const (
	NodeSilent = iota // no answer
	NodeUnready
	NodeReady
)

// States of links.
const (
	LinkUnknown = iota // neither end answers
	LinkUp
	LinkDead // it is up, but paths that start with it do not deliver
	LinkDown
)

// States of paths, in the order of pathStates.
const (
	PathUnknown = iota
	PathAlive
	PathSilent
	PathLossy
	PathNarrow
	PathUnusable // no route leads by it
)

// pathStates are the words of /v1/paths.
var pathStates = map[string]int{"unknown": PathUnknown, "alive": PathAlive, "silent": PathSilent, "lossy": PathLossy, "narrow": PathNarrow}

// Frame is what was seen at one moment. Columns are by the places of a layout.
type Frame struct {
	Type   string `json:"type"`   // frame
	Layout int64  `json:"layout"` // its ID
	Time   int64  `json:"t"`

	Nodes []int          `json:"nodes"`         // state
	Why   map[int]string `json:"why,omitempty"` // a node does not answer or is not ready
	// What hosts send into leaves and get from them.
	HostIn  []int64 `json:"host_in"`
	HostOut []int64 `json:"host_out"`

	Links []int   `json:"links"` // state
	Up    []int64 `json:"up"`    // from A to B; -1: unknown
	Down  []int64 `json:"down"`

	Paths  []int   `json:"paths"`  // state
	Metric []int   `json:"metric"` // the larger of the link's own and what the far leaf reports; -1: unknown
	RTT    []int64 `json:"rtt_us"` // 0: not measured
	Loss   []int64 `json:"loss_ppm"`

	Flowlets []Flowlets           `json:"flowlets"` // by node
	Reorder  []Reorder            `json:"reorder"`  // by node
	Drops    []map[string]float64 `json:"drops"`    // by node: frames a second by reason
}

// Flowlets are how many flowlets began in a second.
type Flowlets struct {
	Started float64 `json:"started"`
	Moved   float64 `json:"moved"` // to another uplink
	Kept    float64 `json:"kept"`
}

// Reorder is what a leaf does to put packets in order.
type Reorder struct {
	Queues  uint64  `json:"queues"` // that hold frames
	Waiting uint64  `json:"waiting"`
	Bytes   uint64  `json:"bytes"`
	Held    float64 `json:"held"`    // frames a second that had to wait
	Late    float64 `json:"late"`    // frames a second that left out of order
	Hold    float64 `json:"hold_us"` // mean of the queues that ended since the last frame; 0: none did
	Limit   float64 `json:"limit_us"`
}

// Event is something that happened.
type Event struct {
	Type  string `json:"type"` // event
	Time  int64  `json:"t"`
	Level string `json:"level"` // bad, warn, good or info
	Kind  string `json:"kind"`  // node, link, port, path, peer or drops
	Node  string `json:"node"`
	Text  string `json:"text"`
}
