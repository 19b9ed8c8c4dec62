package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/congestion"
)

// Protocol is an IP protocol number, by name where it has one; 0: any.
type Protocol uint8

// DSCP is a differentiated services codepoint plus one, so that 0 can stand
// for any.
type DSCP uint8

// Profile is a set of CONGA's parameters.
type Profile uint8

// Detector is a [congestion.Detector] by name.
type Detector congestion.Detector

// PathMetric is a [congestion.PathMetric] by name.
type PathMetric congestion.PathMetric

var (
	profiles    = []string{"datacenter", "lab"} // by Profile
	detectors   = []string{congestion.Timestamp.String(), congestion.AgeBit.String()}
	pathMetrics = []string{congestion.MaxMetric.String(), congestion.SumMetric.String()}
	protocols   = map[string]Protocol{"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132}
	// RFC 2474 (be, cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
	codepoints = map[string]uint8{
		"be": 0, "le": 1, "ef": 46, "va": 44,
		"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
		"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
		"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	}
)

const maxDSCP = 63

// UnmarshalText reads a protocol's name or number.
func (p *Protocol) UnmarshalText(b []byte) error {
	s := strings.ToLower(string(b))
	if n, ok := protocols[s]; ok {
		*p = n
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n == 0 {
		return fmt.Errorf("IP protocol %q does not exist; use tcp, udp, icmp, icmpv6, sctp or a number from 1 to 255", b)
	}
	*p = Protocol(n)
	return nil
}

// MarshalText writes the protocol's name, or its number.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the text that UnmarshalText reads.
func (p Protocol) String() string {
	for name, n := range protocols {
		if n == p {
			return name
		}
	}
	return strconv.Itoa(int(p))
}

// UnmarshalText reads a codepoint's name or number.
func (d *DSCP) UnmarshalText(b []byte) error {
	s := strings.ToLower(string(b))
	if n, ok := codepoints[s]; ok {
		*d = DSCP(n + 1)
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n > maxDSCP {
		return fmt.Errorf("DSCP %q does not exist; use 0 to %d, or a name as in ef, cs6 or af41", b, maxDSCP)
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
