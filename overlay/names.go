package overlay

import (
	"strconv"
	"strings"
)

// protocols are the IP protocols with a name (IANA, Protocol Numbers).
var protocols = []struct {
	name   string
	number uint8
}{{"tcp", 6}, {"udp", 17}, {"icmp", 1}, {"icmpv6", 58}, {"sctp", 132}}

// MaxDSCP is the largest differentiated services codepoint: 6 bits (RFC 2474
// §3).
const MaxDSCP = 63

// ParseProtocol reads an IP protocol by name (tcp, udp, icmp, icmpv6, sctp) or
// by number, 1 to 255.
func ParseProtocol(s string) (number uint8, ok bool) {
	for _, p := range protocols {
		if strings.EqualFold(s, p.name) {
			return p.number, true
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil && n > 0
}

// ProtocolName returns the text that [ParseProtocol] reads, a name if there is one.
func ProtocolName(number uint8) string {
	for _, p := range protocols {
		if p.number == number {
			return p.name
		}
	}
	return strconv.Itoa(int(number))
}

// codepoints are the differentiated services codepoints with a name: be and cs0 to cs7
// (RFC 2474), af11 to af43 (RFC 2597), ef (RFC 3246), va (RFC 5865), le (RFC 8622).
var codepoints = map[string]uint8{
	"be": 0, "le": 1, "va": 44, "ef": 46,
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
	"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
}

// ParseDSCP reads a differentiated services codepoint by number, 0 to [MaxDSCP], or by
// name: be, le, va, ef, cs0 to cs7, af11 to af43.
func ParseDSCP(s string) (codepoint uint8, ok bool) {
	if n, named := codepoints[strings.ToLower(s)]; named {
		return n, true
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil && n <= MaxDSCP
}
