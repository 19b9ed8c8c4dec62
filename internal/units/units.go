// Package units has rates, sizes and durations as people write them in files:
// "2.5Gbit", "256KiB", "50us". The types' UnmarshalText refuses with an error
// of the form "problem; remedy".
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a bit rate in bits per second, written with a unit as in "10Gbit" or
// "2.5Gbit/s"; "0" needs none.
type Rate uint64

// Size is a number of bytes, written as in "256KiB", "150KB" or "1500".
type Size uint64

// most is the largest rate and size. Arithmetic in floating point is exact up to it.
const most = 1 << 53

// unit is a suffix and what it multiplies by; tables are ordered from large to
// small, so that printing finds the largest that divides. A suffix stands
// before those that it ends in.
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
)

// parse reads a decimal number with one of the units behind it, in upper or
// lower case.
func parse(s string, units []unit) (uint64, error) {
	for _, u := range units {
		num, ok := cutSuffixFold(s, u.suffix)
		if !ok {
			continue
		}
		num = strings.TrimSpace(num)
		if n, err := strconv.ParseUint(num, 10, 64); err == nil { // exact
			if n > most/u.factor {
				return 0, fmt.Errorf("%q is too large", s)
			}
			return n * u.factor, nil
		}
		f, err := strconv.ParseFloat(num, 64)
		if err != nil || f < 0 || math.IsNaN(f) {
			break
		}
		if f *= float64(u.factor); f > most {
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

// format writes n with the largest unit that divides it.
func format(n uint64, units []unit) string {
	for _, u := range units {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatUint(n/u.factor, 10) + u.suffix
		}
	}
	return "0" + units[len(units)-1].suffix
}

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(b []byte) error {
	s := strings.TrimSuffix(string(b), "/s")
	if s == "0" {
		*r = 0
		return nil
	}
	n, err := parse(s, rateUnits)
	if err != nil {
		return fmt.Errorf("rate %w; write bits per second as in 10Gbit or 500Mbit", err)
	}
	*r = Rate(n)
	return nil
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String writes the rate with the largest unit that divides it, as UnmarshalText
// reads it.
func (r Rate) String() string { return format(uint64(r), rateUnits) }

// UnmarshalText reads a size; a bare number is bytes.
func (s *Size) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || n > most {
		if n, err = parse(string(b), sizeUnits); err != nil {
			return fmt.Errorf("size %w; write bytes as in 256KiB, 150KB or 1500", err)
		}
	}
	*s = Size(n)
	return nil
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String writes the size with the largest unit that divides it, as UnmarshalText
// reads it.
func (s Size) String() string { return format(uint64(s), sizeUnits) }

// ParseDuration reads a time span in Go's syntax, as in "50us", "1.5s" or "5m". It
// may not be negative.
func ParseDuration(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("duration %q is not a time span; write it as in 50us, 1.5s or 5m", s)
	}
	return v, nil
}
