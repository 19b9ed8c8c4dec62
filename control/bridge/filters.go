package bridge

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
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
	for t, v := range rtnl.Attributes(b[tcmsgSize:]) {
		if t == tcaKind {
			kind = rtnl.Text(v)
		}
	}
	return rtnl.Index(b[4:8]), kind, nil
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
	for kind, v := range rtnl.Attributes(b[nfgenmsgSize:]) {
		switch kind {
		case nftaChainHook:
			ok = true
			c.parseHook(v)
		case nftaChainPolicy:
			policy = rtnl.BE32(v)
		case nftaChainUse:
			rules = rtnl.BE32(v)
		}
	}
	c.idle = policy == nfAccept && rules == 0
	return c, ok
}

func (c *chain) parseHook(b []byte) {
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case nftaHookNum:
			c.hook = rtnl.BE32(v)
		case nftaHookDev:
			c.devices = append(c.devices, rtnl.Text(v))
		case nftaHookDevs:
			for _, name := range rtnl.Attributes(v) {
				c.devices = append(c.devices, rtnl.Text(name))
			}
		}
	}
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
