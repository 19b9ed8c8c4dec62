package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// Rate is a bit rate in bits per second, written as in "10Gbit" or "2.5Gbit/s".
type Rate uint64

// Size is a number of bytes, written as in "256KiB", "150KB" or "1500".
type Size uint64

// Duration is a time span in Go's syntax: "50us", "1.5s", "5m".
type Duration time.Duration

// MAC is an Ethernet address, written as in "02:00:00:00:00:01".
type MAC [6]byte

// Prefix is an IP prefix; a bare address stands for the prefix of that one
// address.
type Prefix struct{ netip.Prefix }

// Addr is an optional address. The YAML library takes a netip.Addr for empty,
// whatever it holds, because it sees no exported field; IsZero tells it.
type Addr struct{ netip.Addr }

// IsZero reports whether there is no address.
func (a Addr) IsZero() bool { return !a.IsValid() }

// Polling is a [dataplane.Polling] by name.
type Polling dataplane.Polling

// XDPMode is a [dataplane.XDPMode] by name.
type XDPMode dataplane.XDPMode

// CopyMode is a [dataplane.CopyMode] by name.
type CopyMode dataplane.CopyMode

// unit is a suffix and what it multiplies by; tables are ordered from large to
// small, so that printing finds the largest that divides.
type unit struct {
	suffix string
	factor uint64
}

var (
	rateUnits = []unit{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	sizeUnits = []unit{
		{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6},
		{"KiB", 1 << 10}, {"KB", 1e3}, {"B", 1},
	}
	pollings  = []string{"adaptive", "busy", "interrupt"} // by dataplane.Polling
	xdpModes  = []string{"auto", "native", "generic"}     // by dataplane.XDPMode
	copyModes = []string{"auto", "zerocopy", "copy"}      // by dataplane.CopyMode
	logLevels = []string{"debug", "info", "warn", "error"}
)

// parseUnits reads a decimal number with one of the units behind it.
func parseUnits(s string, units []unit) (uint64, error) {
	for _, u := range units {
		num, ok := cutSuffixFold(s, u.suffix)
		if !ok {
			continue
		}
		if num = strings.TrimSpace(num); strings.IndexFunc(num, func(r rune) bool {
			return r != '.' && (r < '0' || r > '9')
		}) >= 0 {
			break // a sign, an exponent, or a unit that is not ours
		}
		if n, err := strconv.ParseUint(num, 10, 64); err == nil {
			if n > math.MaxUint64/u.factor {
				return 0, fmt.Errorf("%q is too large", s)
			}
			return n * u.factor, nil
		}
		f, err := strconv.ParseFloat(num, 64)
		if err != nil {
			break
		}
		if f *= float64(u.factor); f >= math.MaxInt64 {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return uint64(math.Round(f)), nil
	}
	return 0, fmt.Errorf("%q is not a number with a unit", s)
}

func cutSuffixFold(s, suffix string) (string, bool) {
	i := len(s) - len(suffix)
	if i < 1 || !strings.EqualFold(s[i:], suffix) {
		return "", false
	}
	return s[:i], true
}

// formatUnits writes n with the largest unit that divides it.
func formatUnits(n uint64, units []unit) string {
	for _, u := range units {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatUint(n/u.factor, 10) + u.suffix
		}
	}
	return "0" + units[len(units)-1].suffix
}

// UnmarshalText reads a rate; the unit is required.
func (r *Rate) UnmarshalText(b []byte) error {
	s := strings.TrimSuffix(string(b), "/s")
	n, err := parseUnits(s, rateUnits)
	if err != nil && s != "0" {
		return fmt.Errorf("rate %w; write bits per second as in 10Gbit or 500Mbit", err)
	}
	*r = Rate(n)
	return nil
}

// MarshalText writes the rate with the largest unit that divides it.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the text that UnmarshalText reads.
func (r Rate) String() string { return formatUnits(uint64(r), rateUnits) }

// UnmarshalText reads a size; a bare number is bytes.
func (s *Size) UnmarshalText(b []byte) error {
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*s = Size(n)
		return nil
	}
	n, err := parseUnits(string(b), sizeUnits)
	if err != nil {
		return fmt.Errorf("size %w; write bytes as in 256KiB, 150KB or 1500", err)
	}
	*s = Size(n)
	return nil
}

// MarshalText writes the size with the largest unit that divides it.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is the text that UnmarshalText reads.
func (s Size) String() string { return formatUnits(uint64(s), sizeUnits) }

// UnmarshalText reads a duration, which may not be negative.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("duration %q is not a time span; write it as in 50us, 1.5s or 5m", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration in Go's syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the text that UnmarshalText reads.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText reads an Ethernet address.
func (m *MAC) UnmarshalText(b []byte) error {
	hw, err := net.ParseMAC(string(b))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("MAC address %q is malformed; write it as in 02:00:00:00:00:01", b)
	}
	*m = MAC(hw)
	return nil
}

// MarshalText writes the address with colons.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String is the text that UnmarshalText reads.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// UnmarshalText reads an address or a prefix.
func (p *Prefix) UnmarshalText(b []byte) error {
	s := string(b)
	if a, err := netip.ParseAddr(s); err == nil {
		p.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	q, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%q is neither an address nor a prefix; write it as in 10.0.0.1 or 10.0.0.0/24", s)
	}
	p.Prefix = q
	return nil
}

// MarshalText writes the prefix, a single address without its length.
func (p Prefix) MarshalText() ([]byte, error) {
	if p.IsValid() && p.IsSingleIP() {
		return []byte(p.Addr().String()), nil
	}
	return []byte(p.String()), nil
}

// choose finds a word in a list.
func choose(what string, b []byte, words []string) (int, error) {
	i := slices.Index(words, string(b))
	if i < 0 {
		return 0, fmt.Errorf("%s %q does not exist; use %s", what, b, orList(words))
	}
	return i, nil
}

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// UnmarshalText reads a mode's name.
func (p *Polling) UnmarshalText(b []byte) error {
	i, err := choose("polling mode", b, pollings)
	*p = Polling(i)
	return err
}

// MarshalText writes the mode's name.
func (p Polling) MarshalText() ([]byte, error) { return []byte(pollings[p]), nil }

// UnmarshalText reads a mode's name.
func (x *XDPMode) UnmarshalText(b []byte) error {
	i, err := choose("XDP mode", b, xdpModes)
	*x = XDPMode(i)
	return err
}

// MarshalText writes the mode's name.
func (x XDPMode) MarshalText() ([]byte, error) { return []byte(xdpModes[x]), nil }

// UnmarshalText reads a mode's name.
func (c *CopyMode) UnmarshalText(b []byte) error {
	i, err := choose("copy mode", b, copyModes)
	*c = CopyMode(i)
	return err
}

// MarshalText writes the mode's name.
func (c CopyMode) MarshalText() ([]byte, error) { return []byte(copyModes[c]), nil }
