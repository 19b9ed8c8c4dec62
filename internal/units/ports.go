package units

import (
	"fmt"
	"strconv"
	"strings"
)

// Ports is a range of TCP or UDP ports, both ends included. The zero value is empty.
type Ports struct{ First, Last uint16 }

// Contains reports whether a port is in the range.
func (p Ports) Contains(port uint16) bool { return port >= p.First && port <= p.Last && p.First != 0 }

// Number returns how many ports the range has.
func (p Ports) Number() int {
	if p.First == 0 {
		return 0
	}
	return int(p.Last) - int(p.First) + 1
}

// UnmarshalText reads a port, as in 80, or a range, as in 61000-65535.
func (p *Ports) UnmarshalText(b []byte) error {
	first, last, isRange := strings.Cut(string(b), "-")
	if !isRange {
		last = first
	}
	x, err := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	y, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if err != nil || err2 != nil || x == 0 || x > y {
		return fmt.Errorf("%q is neither a port nor a range of ports; use 1 to 65535, as in 80, or 61000-65535", b)
	}
	*p = Ports{uint16(x), uint16(y)}
	return nil
}

// MarshalText writes the port or the range.
func (p Ports) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the text that UnmarshalText reads.
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}
