package bridge

import (
	"encoding/binary"
	"maps"

	"golang.org/x/sys/unix"
)

func (f *Filters) equal(o *Filters) bool {
	return maps.Equal(f.Qdiscs, o.Qdiscs) && maps.Equal(f.Netdev, o.Netdev) &&
		f.BridgeTables == o.BridgeTables && f.IPChains == o.IPChains && f.CallIPTables == o.CallIPTables
}

// plainQdiscs are the queues that only wait: an interface has one of them without anybody
// having asked for it.
var plainQdiscs = map[string]bool{
	"noqueue": true, "noop": true, "mq": true, "pfifo_fast": true, "fq_codel": true, "fq": true, "pfifo": true, "bfifo": true,
	"sfq": true, "mqprio": true,
}

// tcmsgSize is the size of struct tcmsg, and tcaKind is TCA_KIND.
const (
	tcmsgSize = 20
	tcaKind   = 1
)

// parseQdisc reads the payload of RTM_NEWQDISC.
func parseQdisc(b []byte) (ifindex int, kind string, err error) {
	if len(b) < tcmsgSize {
		return 0, "", short("a queueing discipline", len(b))
	}
	for t, v := range attributes(b[tcmsgSize:]) {
		if t == tcaKind {
			kind = text(v)
		}
	}
	return index(b[4:8]), kind, nil
}

// chain is a chain of nftables that the kernel's own hooks call.
type chain struct {
	family  uint8 // NFPROTO_*
	hook    uint32
	devices []string // that it is on: of the netdev family, or of inet's ingress hook
	idle    bool     // it has no rules and lets everything pass
}

// Attributes of nftables' chains (linux/netfilter/nf_tables.h).
const (
	nftaChainHook   = 4
	nftaChainPolicy = 5
	nftaChainUse    = 6
	nftaHookNum     = 1
	nftaHookDev     = 3
	nftaHookDevs    = 4
	nfAccept        = 1
	nfgenmsgSize    = 4
)

// parseChain reads the payload of NFT_MSG_NEWCHAIN. False: no hook calls the chain.
func parseChain(b []byte) (c chain, ok bool) {
	if len(b) < nfgenmsgSize {
		return c, false
	}
	c.family = b[0]
	policy, rules := uint32(nfAccept), uint32(0)
	for kind, v := range attributes(b[nfgenmsgSize:]) {
		switch kind {
		case nftaChainHook:
			ok = true
			c.parseHook(v)
		case nftaChainPolicy:
			policy = be32(v)
		case nftaChainUse:
			rules = be32(v)
		}
	}
	c.idle = policy == nfAccept && rules == 0
	return c, ok
}

func (c *chain) parseHook(b []byte) {
	for kind, v := range attributes(b) {
		switch kind {
		case nftaHookNum:
			c.hook = be32(v)
		case nftaHookDev:
			c.devices = append(c.devices, text(v))
		case nftaHookDevs:
			for _, name := range attributes(v) {
				c.devices = append(c.devices, text(name))
			}
		}
	}
}

func be32(v []byte) uint32 {
	if len(v) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// add takes a chain into account.
func (f *Filters) add(c chain) {
	if c.idle {
		return
	}
	for _, d := range c.devices {
		f.Netdev[d] = true
	}
	switch c.family {
	case unix.NFPROTO_BRIDGE:
		f.BridgeTables = true
	case unix.NFPROTO_ARP:
		f.IPChains = true
	case unix.NFPROTO_IPV4, unix.NFPROTO_IPV6, unix.NFPROTO_INET:
		// What the machine itself sends and gets is not bridged.
		if c.hook != unix.NF_INET_LOCAL_IN && c.hook != unix.NF_INET_LOCAL_OUT && len(c.devices) == 0 {
			f.IPChains = true
		}
	}
}
