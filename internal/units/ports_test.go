package units

import "testing"

func TestPorts(t *testing.T) {
	for text, want := range map[string]Ports{
		"80": {80, 80}, "61000-65535": {61000, 65535}, "1 - 2": {1, 2}, "7-7": {7, 7},
		"": {}, "0": {}, "0-5": {}, "5-4": {}, "65536": {}, "1-": {}, "-1": {}, "1-2-3": {}, "http": {},
	} {
		var p Ports
		if err := p.UnmarshalText([]byte(text)); (err == nil) != (want.First != 0) || p != want {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	p := Ports{61000, 61003}
	for port, want := range map[uint16]bool{0: false, 60999: false, 61000: true, 61003: true, 61004: false} {
		if p.Contains(port) != want {
			t.Errorf("%v has port %d: %v", p, port, !want)
		}
	}
	if (Ports{}).Contains(0) || (Ports{}).Number() != 0 || p.Number() != 4 || p.String() != "61000-61003" || (Ports{80, 80}).String() != "80" {
		t.Errorf("%v has %d ports", p, p.Number())
	}
}

func FuzzPorts(f *testing.F) {
	f.Add("80")
	f.Add("61000-65535")
	f.Fuzz(func(t *testing.T, s string) {
		var p, again Ports
		if p.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(p.String())); err != nil || again != p {
			t.Errorf("%q is %+v, which is %q, which is %+v: %v", s, p, p.String(), again, err)
		}
	})
}
