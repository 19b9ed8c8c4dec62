package fabric

import (
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/units"
)

// Rate is a bit rate in bits per second, in YAML a [units.Rate]; 0 means
// unlimited.
type Rate units.Rate

// Bytes is an amount of data in bytes, in YAML a [units.Size].
type Bytes units.Size

// Duration is a time span, in YAML a [units.Duration].
type Duration units.Duration

// most is the largest rate and amount: up to there the model's arithmetic, in
// floating point here and there, is exact.
const most = 1 << 53

// ParseRate reads a rate such as "300Mbit".
func ParseRate(s string) (Rate, error) {
	v, err := units.ParseRate(s)
	if err == nil && v > most {
		err = fmt.Errorf("rate %q is too large; write at most %v", s, units.Rate(most))
	}
	if err != nil {
		return 0, err
	}
	return Rate(v), nil
}

// ParseBytes reads an amount such as "256KB".
func ParseBytes(s string) (Bytes, error) {
	v, err := units.ParseSize(s)
	if err == nil && v > most {
		err = fmt.Errorf("size %q is too large; write at most %v", s, units.Size(most))
	}
	if err != nil {
		return 0, err
	}
	return Bytes(v), nil
}

// String writes r with the largest unit that divides it.
func (r Rate) String() string { return units.Rate(r).String() }

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
	v, err := units.ParseDuration(scalar(n))
	*d = Duration(v)
	return at(n, err)
}
