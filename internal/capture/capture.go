// Package capture has the words of a capture: the frame that a worker has copied, where in
// the node it was and what was decided about it, and the stream in which a daemon sends
// such frames to loomctl. It must not know how frames are forwarded, nor what a file of
// captured frames looks like.
package capture

import (
	"fmt"
	"strings"
	"time"
)

// Point is a place in a node where frames are copied.
type Point uint8

// The points.
const (
	In   Point = 1 << iota // as the port's ring had it
	Out                    // as it goes to the port's ring
	Drop                   // as it was when the node dropped it
)

// AnyPoint is all of them.
const AnyPoint = In | Out | Drop

// String returns the name of a point; those of several are separated by commas.
func (p Point) String() string { return join(uint8(p), pointNames[:]) }

// UnmarshalText reads names of points, separated by commas.
func (p *Point) UnmarshalText(b []byte) error {
	bits, err := parse(string(b), "point", pointNames[:])
	*p = Point(bits)
	return err
}

// Flowlet says what a packet was to its flow's flowlets (CONGA §3.4).
type Flowlet uint8

// What a packet can be.
const (
	New      Flowlet = 1 << iota // the first one of a flow that the table does not know
	Kept                         // it starts a flowlet where the last one was
	Moved                        // it starts a flowlet on another uplink than the last one
	UnderWay                     // it belongs to a flowlet that is under way
)

// String returns the name; "" for a packet of a scheme without flowlets.
func (f Flowlet) String() string { return join(uint8(f), flowletNames[:]) }

// UnmarshalText reads names, separated by commas.
func (f *Flowlet) UnmarshalText(b []byte) error {
	bits, err := parse(string(b), "flowlet", flowletNames[:])
	*f = Flowlet(bits)
	return err
}

// The names, by bit.
var (
	pointNames   = [...]string{"in", "out", "drop"}
	flowletNames = [...]string{"new", "kept", "moved", "underway"}
)

func join(bits uint8, names []string) string {
	var set []string
	for i, name := range names {
		if bits>>i&1 != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, ",")
}

func parse(text, what string, names []string) (bits uint8, err error) {
next:
	for word := range strings.SplitSeq(text, ",") {
		for i, name := range names {
			if word == name {
				bits |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%s %q does not exist: use %s", what, word, strings.Join(names, ", "))
	}
	return bits, nil
}

// None stands for an uplink or a class that a frame does not have.
const None = 0xff

// Frame is a copy of a frame. Strings are empty where there is nothing to say.
type Frame struct {
	Time   time.Time
	Port   uint16 // number of the port: the one that it came by, or at Out the one that it leaves by
	Point  Point
	Worker uint8
	Len    int // of the whole frame, bytes

	// Made says that the node made the frame: a message, or a copy.
	Made bool
	// Here is how long the frame has been in the node; 0: that is not known.
	Here time.Duration
	// Before says that the frame was in the node when the capture began: Here is since then.
	Before bool
	// Held is how long of that it waited for packets of its flow that are late, or because
	// its scheme let it wait.
	Held time.Duration

	Class   uint8 // traffic class, or None
	Uplink  uint8 // number of the uplink at Out, or None
	Flowlet Flowlet
	Scheme  string // that chose its path
	Why     string // the scheme's reason, one clause
	Reason  string // why it was dropped

	Data []byte // its first bytes
}

// Comment says in one line what is known of a frame besides its bytes.
func (f *Frame) Comment() string {
	var b strings.Builder
	switch f.Point {
	case Drop:
		fmt.Fprintf(&b, "dropped: %s", f.Reason)
	default:
		b.WriteString(f.Point.String())
	}
	fmt.Fprintf(&b, "; worker %d", f.Worker)
	if f.Made {
		b.WriteString("; made here")
	}
	switch {
	case f.Before:
		fmt.Fprintf(&b, "; here since before the capture, for more than %v", f.Here)
	case f.Here > 0:
		fmt.Fprintf(&b, "; here for %v", f.Here)
	}
	if f.Held > 0 {
		fmt.Fprintf(&b, "; held for %v", f.Held)
	}
	if f.Uplink != None {
		fmt.Fprintf(&b, "; uplink %d", f.Uplink)
	}
	if f.Class != None {
		fmt.Fprintf(&b, "; class %d", f.Class)
	}
	if f.Scheme != "" {
		fmt.Fprintf(&b, "; %s", f.Scheme)
	}
	if f.Flowlet != 0 {
		fmt.Fprintf(&b, "; flowlet %v", f.Flowlet)
	}
	if f.Why != "" {
		fmt.Fprintf(&b, "; %s", f.Why)
	}
	return b.String()
}

// Start says whose frames follow.
type Start struct {
	Node    string `json:"node"`
	Role    string `json:"role"` // leafd or spined
	Version string `json:"version"`
	// Fast are the ports by which XDP forwards frames that the capture does not see.
	Fast []string `json:"fast"`
}

// Port says which port a number in frames stands for, from there on.
type Port struct {
	Number uint16 `json:"number"`
	Name   string `json:"name"`
	Kind   string `json:"kind"` // access, uplink or spine
}

// Count is what became of a port's frames since the capture began.
type Count struct {
	Port     string `json:"port"`
	Captured uint64 `json:"captured"` // copies made
	Lost     uint64 `json:"lost"`     // frames that were to be copied, and for which there was no room
	Unseen   uint64 `json:"unseen"`   // frames that nobody looked at, as the worker was behind
}

// Stats says how a capture goes.
type Stats struct {
	Ports []Count `json:"ports"`
	Bytes uint64  `json:"bytes"` // of captured frames
}

// Sum adds the ports up.
func (s *Stats) Sum() (c Count) {
	for _, p := range s.Ports {
		c.Captured += p.Captured
		c.Lost += p.Lost
		c.Unseen += p.Unseen
	}
	return c
}

// End is the last thing that a stream says.
type End struct {
	Why string `json:"why"` // one clause
	Stats
}
