// Package record has the format of flight records: what a node kept of its last minutes,
// in a file that loomctl writes and loomsim replays. It must not know how frames are
// forwarded. docs/recorder.md describes the format.
package record

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version is that of the format. A reader refuses others.
const Version = 1

const (
	format   = "loom flight record"
	maxLine  = 1 << 20
	maxLines = 8 << 20
	maxBytes = 4 << 30 // of the text
)

// Header is the first line of a record. Times are nanoseconds since 1970.
type Header struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Node    string   `json:"node"`
	Role    string   `json:"role"` // leafd or spined
	Build   string   `json:"build"`
	Why     string   `json:"why"` // it was written
	Start   int64    `json:"start_ns"`
	End     int64    `json:"end_ns"`
	VTEP    string   `json:"vtep"`   // of a leaf
	Scheme  string   `json:"scheme"` // of what no traffic class takes
	Ports   []Port   `json:"ports"`
	Peers   []string `json:"peers"`        // VTEPs
	Missed  uint64   `json:"missed_flows"` // for which there was no room
}

// Port is a port of the node.
type Port struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Kind   string `json:"kind"` // access, uplink or spine
	Rate   uint64 `json:"rate"` // bits per second; 0: unknown
}

// Sample is what ports had counted at a time.
type Sample struct {
	At    int64             `json:"at_ns"`
	Ports []PortSample      `json:"ports"`
	Drops map[string]uint64 `json:"drops"` // by reason; none that is 0
}

// PortSample is a port's part of a sample.
type PortSample struct {
	Number   int    `json:"number"`
	RxFrames uint64 `json:"rx_frames"`
	RxBytes  uint64 `json:"rx_bytes"`
	TxFrames uint64 `json:"tx_frames"`
	TxBytes  uint64 `json:"tx_bytes"`
	Dropped  uint64 `json:"dropped"`
	Queue    uint64 `json:"queue_bytes"`
	Metric   uint8  `json:"metric"`
}

// Flow is what a host behind the leaf sent into the fabric without a pause of a second.
type Flow struct {
	Start  int64  `json:"start_ns"`
	End    int64  `json:"end_ns"`
	Src    string `json:"src"` // VTEP
	Dst    string `json:"dst"` // VTEP
	Class  int    `json:"class"`
	Hash   uint32 `json:"hash"`
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"` // of tenants' frames
}

// Decision is one of many: a packet's path, and what its scheme saw.
type Decision struct {
	At       int64          `json:"at_ns"`
	Hash     uint32         `json:"hash"`
	Class    int            `json:"class"`
	Dst      string         `json:"dst"`
	Scheme   string         `json:"scheme"`
	Uplink   int            `json:"uplink"`   // that it took
	Starting bool           `json:"starting"` // the packet is the first that was seen of its flow
	Uplinks  []UplinkSample `json:"uplinks"`  // that it could take
}

// UplinkSample is what is known of an uplink towards a destination.
type UplinkSample struct {
	Uplink int    `json:"uplink"`
	Local  uint8  `json:"local"`
	Remote uint8  `json:"remote"`
	Queue  uint32 `json:"queue_bytes"`
}

// Event is a line of the daemon's log.
type Event struct {
	At    int64  `json:"at_ns"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Drop is the beginning of a frame that was dropped.
type Drop struct {
	At     int64  `json:"at_ns"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
	Length int    `json:"length"`
	Data   []byte `json:"data"` // base64
}

// Dump is a record.
type Dump struct {
	Header
	Samples   []Sample
	Flows     []Flow
	Decisions []Decision
	Events    []Event
	Drops     []Drop
}

// line is a line of a record behind the first one: one of its fields is set.
type line struct {
	Sample   *Sample   `json:"sample,omitempty"`
	Flow     *Flow     `json:"flow,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Drop     *Drop     `json:"drop,omitempty"`
	End      bool      `json:"end,omitempty"` // nothing was cut off
}

// Write writes a record.
func (d *Dump) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	e := json.NewEncoder(z)
	d.Format, d.Version = format, Version
	err := e.Encode(&d.Header)
	write := func(l line) {
		if err == nil {
			err = e.Encode(l)
		}
	}
	for i := range d.Samples {
		write(line{Sample: &d.Samples[i]})
	}
	for i := range d.Flows {
		write(line{Flow: &d.Flows[i]})
	}
	for i := range d.Decisions {
		write(line{Decision: &d.Decisions[i]})
	}
	for i := range d.Events {
		write(line{Event: &d.Events[i]})
	}
	for i := range d.Drops {
		write(line{Drop: &d.Drops[i]})
	}
	write(line{End: true})
	return errors.Join(err, z.Close())
}

// Read reads a record. It reports one that was cut off, and one of another version.
func Read(r io.Reader) (*Dump, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("not a flight record: %w", err)
	}
	s := bufio.NewScanner(io.LimitReader(z, maxBytes))
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	d, ended := &Dump{}, false
	for n := 1; s.Scan(); n++ {
		if n == 1 {
			if err := json.Unmarshal(s.Bytes(), &d.Header); err != nil || d.Format != format {
				return nil, errors.New("not a flight record: it does not begin with the header of one")
			}
			if d.Version != Version {
				return nil, fmt.Errorf("the flight record is of version %d, and this program reads version %d", d.Version, Version)
			}
			continue
		}
		if n > maxLines {
			return nil, fmt.Errorf("the flight record has more than %d lines", maxLines)
		}
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d of the flight record: %w", n, err)
		}
		switch {
		case l.Sample != nil:
			d.Samples = append(d.Samples, *l.Sample)
		case l.Flow != nil:
			d.Flows = append(d.Flows, *l.Flow)
		case l.Decision != nil:
			d.Decisions = append(d.Decisions, *l.Decision)
		case l.Event != nil:
			d.Events = append(d.Events, *l.Event)
		case l.Drop != nil:
			d.Drops = append(d.Drops, *l.Drop)
		case l.End:
			ended = true
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read the flight record: %w", err)
	}
	if !ended {
		return nil, errors.New("the flight record was cut off")
	}
	return d, nil
}
