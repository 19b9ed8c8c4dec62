package overlay

import (
	"strings"
	"testing"
)

func TestParseDSCP(t *testing.T) {
	// IANA, Differentiated Services Field Codepoints.
	for s, want := range map[string]uint8{
		"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "CS6": 48, "cs7": 56,
		"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
		"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "AF43": 38,
		"ef": 46, "va": 44, "le": 1, "be": 0, "0": 0, "63": 63, "007": 7,
	} {
		if got, ok := ParseDSCP(s); !ok || got != want {
			t.Errorf("%q is %d (%v), want %d", s, got, ok, want)
		}
	}
	for _, s := range strings.Split("64 256 -1 +1 1.0 cs cs8 cs66 af af1 af01 af10 af14 af51 af111 e ef1 0x2e", " ") {
		if got, ok := ParseDSCP(s); ok {
			t.Errorf("%q was read as %d", s, got)
		}
	}
	if _, ok := ParseDSCP(""); ok {
		t.Error("nothing was read as a codepoint")
	}
}

func TestProtocolNames(t *testing.T) {
	for n := 1; n < 256; n++ {
		if got, ok := ParseProtocol(ProtocolName(uint8(n))); !ok || int(got) != n {
			t.Errorf("%d is written %q and read as %d", n, ProtocolName(uint8(n)), got)
		}
	}
	for s, want := range map[string]uint8{"TCP": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132, "6": 6} {
		if got, ok := ParseProtocol(s); !ok || got != want {
			t.Errorf("%q is %d (%v), want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "0", "256", "-6", "quic", "tcp4"} {
		if got, ok := ParseProtocol(s); ok {
			t.Errorf("%q was read as %d", s, got)
		}
	}
}
