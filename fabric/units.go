package fabric

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Rate is a bit rate in bits per second. In YAML it is a number with one of the
// suffixes bit, kbit, Mbit, Gbit (powers of 1000); 0 means unlimited.
type Rate uint64

// Bytes is an amount of data in bytes. In YAML it is a number, alone or with
// one of the suffixes B, KB, MB, GB (powers of 1000) or KiB, MiB, GiB (1024).
type Bytes uint64

// Duration is a time span; in YAML as Go writes it: 5s, 200us, 1m30s.
type Duration time.Duration

type unit struct {
	suffix string
	factor float64
}

// Longest suffixes first: "Mbit" ends in "bit".
var (
	rateUnits = []unit{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	byteUnits = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}
)

func parseUnit(s string, units []unit) (float64, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || v < 0 || math.IsNaN(v) || v*u.factor > 1<<53 {
			return 0, false
		}
		return math.Round(v * u.factor), true
	}
	return 0, false
}

// ParseRate reads a rate such as "300Mbit".
func ParseRate(s string) (Rate, error) {
	if s == "0" {
		return 0, nil
	}
	v, ok := parseUnit(s, rateUnits)
	if !ok {
		return 0, fmt.Errorf("%q is not a rate: write for instance 300Mbit or 1.5Gbit", s)
	}
	return Rate(v), nil
}

// ParseBytes reads an amount such as "256KB".
func ParseBytes(s string) (Bytes, error) {
	if n, err := strconv.ParseUint(s, 10, 53); err == nil {
		return Bytes(n), nil
	}
	v, ok := parseUnit(s, byteUnits)
	if !ok {
		return 0, fmt.Errorf("%q is not an amount of data: write for instance 1500, 256KB or 4MiB", s)
	}
	return Bytes(v), nil
}

// String writes r with the largest unit that divides it.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if f := uint64(u.factor); uint64(r) >= f && uint64(r)%f == 0 {
			return strconv.FormatUint(uint64(r)/f, 10) + u.suffix
		}
	}
	return "0"
}

// String writes b in bytes.
func (b Bytes) String() string { return strconv.FormatUint(uint64(b), 10) }

// String writes d as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// D returns d as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// scalar returns the text of a YAML scalar.
func scalar(n ast.Node) string {
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return n.String()
}

func at(n ast.Node, err error) error {
	if err == nil {
		return nil
	}
	return &yaml.SyntaxError{Message: err.Error(), Token: n.GetToken()}
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (r *Rate) UnmarshalYAML(n ast.Node) (err error) {
	*r, err = ParseRate(scalar(n))
	return at(n, err)
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (b *Bytes) UnmarshalYAML(n ast.Node) (err error) {
	*b, err = ParseBytes(scalar(n))
	return at(n, err)
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := time.ParseDuration(scalar(n))
	if err != nil || v < 0 {
		return at(n, fmt.Errorf("%q is not a duration: write for instance 5s, 200us or 0s", scalar(n)))
	}
	*d = Duration(v)
	return nil
}
