package bridge

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// nftChain is the payload of a chain of a family on a hook, as nf_tables has it, with a
// rule.
func nftChain(family uint8, hook uint32, devices ...string) []byte {
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		return append(b, make([]byte, (4-len(b)%4)%4)...)
	}
	number := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	at := attr(nftaHookNum, number(hook))
	for _, d := range devices {
		at = append(at, attr(nftaHookDev, append([]byte(d), 0))...)
	}
	b := append([]byte{family, 0, 0, 0}, attr(nftaChainHook|unix.NLA_F_NESTED, at)...)
	return append(b, attr(nftaChainUse, number(1))...)
}

// A port with a chain of nftables on it is left to the kernel, whichever family's table the
// chain is in: inet has a hook for single interfaces, too (Linux 5.10).
func TestChainsOnPorts(t *testing.T) {
	const inetIngress = 5 // NF_INET_INGRESS
	for _, tc := range []struct {
		what   string
		chain  []byte
		netdev []string
		ip     bool
	}{
		{"netdev", nftChain(unix.NFPROTO_NETDEV, 0, "eth3"), []string{"eth3"}, false},
		{"inet ingress", nftChain(unix.NFPROTO_INET, inetIngress, "eth3", "eth4"), []string{"eth3", "eth4"}, false},
		{"inet forward", nftChain(unix.NFPROTO_INET, unix.NF_INET_FORWARD), nil, true},
		{"inet input", nftChain(unix.NFPROTO_INET, unix.NF_INET_LOCAL_IN), nil, false},
	} {
		c, ok := parseChain(tc.chain)
		f := Filters{Netdev: make(map[string]bool)}
		f.add(c)
		if got := slices.Sorted(maps.Keys(f.Netdev)); !ok || !slices.Equal(got, tc.netdev) || f.IPChains != tc.ip {
			t.Errorf("%s: %t, on interfaces %q, of forwarded packets %t", tc.what, ok, got, f.IPChains)
		}
	}
}
