package vocab

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/overlay"
)

// MaxClasses is how many traffic classes a leaf can have, besides what no class
// matches.
const MaxClasses = 15

// The protocols that have ports.
const (
	tcp  Protocol = 6
	udp  Protocol = 17
	sctp Protocol = 132
)

// Class is a kind of tenants' traffic that is balanced by a scheme of its own.
type Class struct {
	// Name is for messages. Default: none.
	Name string `yaml:"name,omitempty"`
	// Match says which frames belong to the class. Required.
	Match     Match `yaml:"match"`
	Balancing `yaml:",inline"`
}

// Match is what a frame must have to belong to a class; what is left out may be
// anything, but not everything.
type Match struct {
	// VNI is the frame's virtual network, one of vnis. Default: any.
	VNI uint32 `yaml:"vni,omitempty"`
	// Protocol is the IP protocol: tcp, udp, icmp, icmpv6, sctp or a number from
	// 1 to 255. Default: any, IP or not.
	Protocol Protocol `yaml:"protocol,omitempty"`
	// Port is the source or the destination port of TCP, UDP or SCTP, or a range of ports,
	// as in 61000-65535, in which one of the two is. Default: any.
	Port units.Ports `yaml:"port,omitempty"`
	// DSCP is the differentiated services codepoint of the frame's IP header: 0
	// to 63, or a name: be, ef, va, le, cs0 to cs7, af11 to af43.
	// Default: any, IP or not.
	DSCP DSCP `yaml:"dscp,omitempty"`
}

// CheckClasses resolves traffic classes under the key `classes` of a file, and returns
// what is wrong with them. uplinks is how many a leaf has.
func CheckClasses(d *yamlfile.Document, classes []Class, uplinks int, hasVNI func(vni uint32) bool) (errs yamlfile.Errors) {
	n := len(classes)
	errs.ErrorIf(n > MaxClasses, "classes", "%d traffic classes; use at most %d, besides what is left", n, MaxClasses)
	seen, names := make(map[Match]string), make(map[string]string)
	for i := range classes {
		c, at := &classes[i], "classes["+strconv.Itoa(i)+"]"
		match := at + ".match"
		if first, dup := names[c.Name]; dup && c.Name != "" {
			errs.Errorf(at+".name", "class %q is already defined on line %d; give it another name, or none", c.Name, d.Line(first))
		}
		names[c.Name] = at + ".name"
		m := c.Match
		if m == (Match{}) {
			errs = append(errs, &yamlfile.Error{
				Path: at, Problem: "a class that every frame belongs to",
				Fix: "add match, as in match: {protocol: tcp}; what no class matches follows the leaf's scheme",
			})
		} else if first, dup := seen[m]; dup {
			errs.Errorf(match, "the class on line %d already has all these frames; the first class that matches decides: remove this one", d.Line(first))
		} else {
			seen[m] = match
		}
		errs.ErrorIf(d.Has(match+".vni") && !hasVNI(m.VNI), match+".vni", "VNI %d is not among vnis; add it to vnis, as in vnis: [{vni: %d}]", m.VNI, m.VNI)
		errs.ErrorIf(m.Port.Number() > 0 && !slices.Contains([]Protocol{0, tcp, udp, sctp}, m.Protocol), match+".port",
			"a port of protocol %v, which has none; remove port, or use protocol tcp, udp or sctp", m.Protocol)
		if !errs.ErrorIf(c.Scheme == "", at, "a class without a scheme; add scheme, as in scheme: conga") {
			errs.Add(c.Check(at, uplinks))
		}
	}
	return errs
}

// Protocol is an IP protocol number, by name where it has one; 0: any.
type Protocol uint8

// DSCP is a differentiated services codepoint plus one, so that 0 can stand
// for any.
type DSCP uint8

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
