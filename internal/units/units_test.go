package units

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// text is what both types have.
type text interface {
	UnmarshalText([]byte) error
	MarshalText() ([]byte, error)
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		new  func() text
		in   string
		want string // "": refused
	}{
		{newRate, "10Gbit", "10Gbit"},
		{newRate, "2.5gbit/s", "2500Mbit"},
		{newRate, "1000kbit", "1Mbit"},
		{newRate, "64 KBIT", "64kbit"},
		{newRate, "1 bit", "1bit"},
		{newRate, "1e3Gbit", "1Tbit"},
		{newRate, "+5Mbit", "5Mbit"},
		{newRate, ".5Mbit", "500kbit"},
		{newRate, "0", "0bit"},
		{newRate, "0/s", "0bit"},
		{newRate, "0Gbit", "0bit"},
		{newRate, "9007199254740992bit", "9007199254740992bit"},
		{newRate, "9007199254740993bit", ""},
		{newRate, "18446744073709551616bit", ""},
		{newSize, "9007199254740993", ""},
		{newRate, "20000000Tbit", ""},
		{newRate, "9300000.5Tbit", ""},
		{newRate, "1000", ""},
		{newRate, "10GB", ""},
		{newRate, "-1Gbit", ""},
		{newRate, "NaNbit", ""},
		{newRate, "Infbit", ""},
		{newRate, "bit", ""},
		{newRate, " bit", ""},
		{newRate, "1Tbyte", ""},
		{newRate, "", ""},
		{newSize, "256KiB", "256KiB"},
		{newSize, "150kb", "150KB"},
		{newSize, "1.5MiB", "1536KiB"},
		{newSize, "1500", "1500B"},
		{newSize, "1500B", "1500B"},
		{newSize, "0", "0B"},
		{newSize, "1.5", ""},
		{newSize, "-5", ""},
		{newSize, "1Mbit", ""},
		{newSize, "..1KB", ""},
		{newSize, "5 apples", ""},
		{newSize, "KB", ""},
		{newSize, "", ""},
	} {
		v := tc.new()
		err := v.UnmarshalText([]byte(tc.in))
		if tc.want == "" {
			if err == nil {
				t.Errorf("%T %q was taken as %v", v, tc.in, v)
			} else if problem, remedy, ok := strings.Cut(err.Error(), "; "); !ok || !strings.Contains(problem, `"`+tc.in+`"`) || !strings.Contains(remedy, "as in") {
				t.Errorf("%T %q: %v names no value or no remedy", v, tc.in, err)
			}
			continue
		}
		if got, _ := v.MarshalText(); err != nil || string(got) != tc.want {
			t.Errorf("%T %q: %s, %v; want %s", v, tc.in, got, err, tc.want)
		}
	}
}

func newRate() text { return new(Rate) }
func newSize() text { return new(Size) }

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"50us": 50e3, "1m30s": 90e9, "0": 0, "5": -1, "-1s": -1, "": -1} {
		got, err := ParseDuration(in)
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), "; write it as in") {
				t.Errorf("%q: %v, %v", in, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

// Whatever is written is read back as the same.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := r.Uint64() >> (11 + r.UintN(53))
		if r.UintN(2) == 0 { // often with a unit that divides
			u := append(rateUnits, sizeUnits...)[r.IntN(len(rateUnits)+len(sizeUnits))]
			n -= n % u.factor
		}
		if got, err := parseRate(Rate(n).String()); err != nil || got != Rate(n) {
			t.Fatalf("rate %d is written as %v and read as %d, %v", n, Rate(n), got, err)
		}
		if got, err := parseSize(Size(n).String()); err != nil || got != Size(n) {
			t.Fatalf("size %d is written as %v and read as %d, %v", n, Size(n), got, err)
		}
		d := time.Duration(n)
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("duration %d is written as %v and read as %d, %v", int64(d), d, got, err)
		}
	}
}

// What is accepted, however it is spelled, is a value that its own text gives
// again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"2.5Gbit/s", "256KiB", "1500", "1m30s", "1e3Gbit", "-0B", "0x1p4bit", "NaNKB", "Infbit", "9223372036854775807.5B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseRate(s); err == nil {
			if again, err := parseRate(v.String()); err != nil || again != v {
				t.Errorf("rate %q is %d, and then %d, %v", s, v, again, err)
			}
		}
		if v, err := parseSize(s); err == nil {
			if again, err := parseSize(v.String()); err != nil || again != v {
				t.Errorf("size %q is %d, and then %d, %v", s, v, again, err)
			}
		}
		if v, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(v.String()); err != nil || again != v || v < 0 {
				t.Errorf("duration %q is %d, and then %d, %v", s, v, again, err)
			}
		}
	})
}

func parseRate(s string) (r Rate, err error) {
	err = r.UnmarshalText([]byte(s))
	return r, err
}

func parseSize(s string) (n Size, err error) {
	err = n.UnmarshalText([]byte(s))
	return n, err
}
