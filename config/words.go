package config

import (
	"fmt"
	"strconv"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/overlay"
)

// Protocol is an IP protocol number, by name where it has one; 0: any.
type Protocol uint8

// DSCP is a differentiated services codepoint plus one, so that 0 can stand
// for any.
type DSCP uint8

// Profile is a set of CONGA's parameters.
type Profile uint8

// Gap is a time span, or auto.
type Gap Duration

// AutoGap is the Gap that a leaf derives from round trips.
const AutoGap Gap = -1

// Detector is a [congestion.Detector] by name.
type Detector congestion.Detector

// PathMetric is a [congestion.PathMetric] by name.
type PathMetric congestion.PathMetric

var (
	profiles    = []string{"datacenter", "lab"} // by Profile
	detectors   = []string{congestion.Timestamp.String(), congestion.AgeBit.String()}
	pathMetrics = []string{congestion.MaxMetric.String(), congestion.SumMetric.String()}
)

// UnmarshalText reads a protocol's name or number.
func (p *Protocol) UnmarshalText(b []byte) error {
	n, ok := overlay.ParseProtocol(string(b))
	if !ok {
		return fmt.Errorf("IP protocol %q does not exist; use tcp, udp, icmp, icmpv6, sctp or a number from 1 to 255", b)
	}
	*p = Protocol(n)
	return nil
}

// MarshalText writes the protocol's name, or its number.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the text that UnmarshalText reads.
func (p Protocol) String() string { return overlay.ProtocolName(uint8(p)) }

// UnmarshalText reads a codepoint's name or number.
func (d *DSCP) UnmarshalText(b []byte) error {
	n, ok := overlay.ParseDSCP(string(b))
	if !ok {
		return fmt.Errorf("DSCP %q does not exist; use 0 to %d, or a name as in ef, cs6 or af41", b, overlay.MaxDSCP)
	}
	*d = DSCP(n + 1)
	return nil
}

// MarshalText writes the codepoint's number.
func (d DSCP) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the codepoint's number; "any" without one.
func (d DSCP) String() string {
	if d == 0 {
		return "any"
	}
	return strconv.Itoa(int(d) - 1)
}

// UnmarshalText reads a profile's name.
func (p *Profile) UnmarshalText(b []byte) error {
	i, err := choose("profile", b, profiles)
	*p = Profile(i)
	return err
}

// MarshalText writes the profile's name.
func (p Profile) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the text that UnmarshalText reads.
func (p Profile) String() string { return profiles[p] }

// UnmarshalText reads a time span or auto.
func (g *Gap) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*g = AutoGap
		return nil
	}
	return (*Duration)(g).UnmarshalText(b)
}

// MarshalText writes what UnmarshalText reads.
func (g Gap) MarshalText() ([]byte, error) {
	if g == AutoGap {
		return []byte("auto"), nil
	}
	return Duration(g).MarshalText()
}

// String is the text that UnmarshalText reads.
func (g Gap) String() string {
	if g == AutoGap {
		return "auto"
	}
	return Duration(g).String()
}

// UnmarshalText reads a detector's name.
func (d *Detector) UnmarshalText(b []byte) error {
	i, err := choose("flowlet detector", b, detectors)
	*d = Detector(i)
	return err
}

// MarshalText writes the detector's name.
func (d Detector) MarshalText() ([]byte, error) { return []byte(congestion.Detector(d).String()), nil }

// UnmarshalText reads a path metric's name.
func (m *PathMetric) UnmarshalText(b []byte) error {
	i, err := choose("path metric", b, pathMetrics)
	*m = PathMetric(i)
	return err
}

// MarshalText writes the path metric's name.
func (m PathMetric) MarshalText() ([]byte, error) {
	return []byte(congestion.PathMetric(m).String()), nil
}
