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

// ParseDSCP reads a differentiated services codepoint by number, 0 to
// [MaxDSCP], or by name: be and cs0 to cs7 (RFC 2474), af11 to af43 (RFC 2597),
// ef (RFC 3246), va (RFC 5865), le (RFC 8622).
func ParseDSCP(s string) (codepoint uint8, ok bool) {
	s = strings.ToLower(s)
	switch s {
	case "be":
		return 0, true
	case "le":
		return 1, true
	case "va":
		return 44, true
	case "ef":
		return 46, true
	}
	if n, found := strings.CutPrefix(s, "cs"); found {
		class, ok := digit(n, 7)
		return class << 3, ok
	}
	if n, found := strings.CutPrefix(s, "af"); found && len(n) == 2 {
		class, ok1 := digit(n[:1], 4)
		drop, ok2 := digit(n[1:], 3)
		return class<<3 | drop<<1, ok1 && ok2 && class > 0 && drop > 0
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil && n <= MaxDSCP
}

// digit reads one digit up to a limit.
func digit(s string, limit uint8) (uint8, bool) {
	if len(s) != 1 || s[0] < '0' || s[0] > '0'+limit {
		return 0, false
	}
	return s[0] - '0', true
}
