package bridge

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
)

// lister lists what a [State] has. It is used by one goroutine at a time.
type lister struct {
	route     *rtnl.Socket
	netfilter *rtnl.Socket // nil: the kernel has none
	files     []*os.File
}

// Files that are read again and again. They are opened at the start, since what they
// show depends on the network namespace of who opens them.
var (
	ruleFiles = []string{"ip_tables_names", "ip6_tables_names", "arp_tables_names"}
	callFiles = []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"}
	// Loaded modules of ebtables, whose rules cannot be listed by netlink.
	ebtables = []string{"ebtable_filter", "ebtable_nat", "ebtable_broute"}
)

func openLister() (*lister, error) {
	route, err := rtnl.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	// A kernel without netfilter has no such sockets.
	netfilter, err := rtnl.Open(unix.NETLINK_NETFILTER)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.Join(err, route.Close())
	}
	l := &lister{route: route, netfilter: netfilter}
	l.readFiles(&Filters{})
	return l, nil
}

func (l *lister) close() error {
	err := l.route.Close()
	if l.netfilter != nil {
		err = errors.Join(err, l.netfilter.Close())
	}
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// maxTries is how often a list is read that changes while it is being read.
const maxTries = 3

// list lists some kinds.
func (l *lister) list(k kinds) (*listing, error) {
	out := &listing{kinds: k}
	for _, x := range []struct {
		kind kinds
		name string
		list func(*listing) error
	}{
		{links, "links", l.links},
		{ports, "bridges' ports", l.ports},
		{vnis, "VXLAN devices' VNIs", l.vnis},
		{filters, "filters", l.filters},
	} {
		if k&x.kind == 0 {
			continue
		}
		var err error
		for range maxTries {
			if err = x.list(out); !errors.Is(err, rtnl.ErrInterrupted) {
				break
			}
		}
		if err != nil && !errors.Is(err, rtnl.ErrInterrupted) {
			return nil, fmt.Errorf("list the kernel's %s: %w", x.name, err)
		}
	}
	return out, nil
}

const (
	filterVLANs  = 1 << 2 // RTEXT_FILTER_BRVLAN_COMPRESSED
	filterNoStat = 1 << 3 // RTEXT_FILTER_SKIP_STATS
)

func (l *lister) links(out *listing) error {
	out.links = nil
	req := rtnl.AppendUint32(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_EXT_MASK, filterNoStat)
	return l.route.Dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, req, func(b []byte) {
		if x, err := parseLink(b); err == nil {
			out.links = append(out.links, x)
		}
	}, nil)
}

func (l *lister) ports(out *listing) error {
	out.ports = nil
	req := rtnl.AppendUint32(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_EXT_MASK, filterVLANs)
	req[0] = unix.AF_BRIDGE
	err := l.route.Dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, req, func(b []byte) {
		if x, err := parsePort(b); err == nil {
			out.ports = append(out.ports, x)
		}
	}, nil)
	if err != nil {
		return err
	}
	out.blocked = make(map[int][]VLANState)
	req = make([]byte, vlanMsgSize)
	req[0] = unix.AF_BRIDGE
	err = l.route.Dump(unix.RTM_GETVLAN, unix.RTM_NEWVLAN, req, func(b []byte) {
		if i, v, err := parseVLANStates(b); err == nil && len(v) > 0 {
			out.blocked[i] = append(out.blocked[i], v...)
		}
	}, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // before Linux 5.6, or without VLANs
		return nil
	}
	return err
}

func (l *lister) vnis(out *listing) error {
	out.vnis = make(map[int]VNISet)
	req := make([]byte, tunnelMsgSize)
	req[0] = unix.AF_BRIDGE
	err := l.route.Dump(unix.RTM_GETTUNNEL, unix.RTM_NEWTUNNEL, req, func(b []byte) {
		if i, v, err := parseVNIs(b); err == nil {
			out.vnis[i] = append(out.vnis[i], v...)
		}
	}, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // before Linux 5.18, or without VXLAN
		return nil
	}
	return err
}

// filters finds out what decides about frames beside bridges.
func (l *lister) filters(out *listing) error {
	f := Filters{Qdiscs: make(map[int]string), Netdev: make(map[string]bool)}
	err := l.route.Dump(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, make([]byte, tcmsgSize), func(b []byte) {
		if i, name, err := parseQdisc(b); err == nil && !plainQdiscs[name] {
			f.Qdiscs[i] = name
		}
	}, nil)
	if err != nil {
		return err
	}
	if err := l.chains(&f); err != nil {
		return err
	}
	l.readFiles(&f)
	for _, m := range ebtables {
		if _, err := os.Stat("/sys/module/" + m); err == nil {
			f.BridgeTables = true
		}
	}
	out.filters = f
	return nil
}

// chains lists nftables' chains.
func (l *lister) chains(f *Filters) error {
	if l.netfilter == nil {
		return nil
	}
	const getChain, newChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	err := l.netfilter.Dump(getChain, newChain, make([]byte, nfgenmsgSize), func(b []byte) {
		if c, ok := parseChain(b); ok {
			f.add(c)
		}
	}, nil)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) {
		return nil // a kernel without nftables, or a caller who may not ask
	}
	return err
}

// readFiles finds out about iptables' tables, and whether bridged frames pass them.
func (l *lister) readFiles(f *Filters) {
	for _, name := range ruleFiles {
		f.IPChains = f.IPChains || len(l.read("/proc/thread-self/net/"+name)) > 0
	}
	for _, name := range callFiles {
		b := l.read("/proc/sys/net/bridge/" + name)
		f.CallIPTables = f.CallIPTables || len(b) > 0 && b[0] != '0'
	}
}

// read returns the beginning of a file of /proc, and nothing for one that is not there.
func (l *lister) read(name string) []byte {
	var f *os.File
	for _, open := range l.files {
		if open.Name() == name {
			f = open
		}
	}
	if f == nil {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil
		}
		l.files = append(l.files, f)
	}
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0) // what cannot be read is not there
	return b[:n]
}

// entries dumps the forwarding entries of all interfaces, in parts.
func (l *lister) entries(part func([]Entry) error) error {
	req := make([]byte, ndmsgSize)
	req[0] = unix.AF_BRIDGE
	var list []Entry
	err := l.route.Dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, req, func(b []byte) {
		if e, ok := parseEntry(b); ok {
			list = append(list, e)
		}
	}, func() error {
		full := list
		list = make([]Entry, 0, len(full))
		return part(full)
	})
	if errors.Is(err, rtnl.ErrInterrupted) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("list the kernel's forwarding entries: %w", err)
	}
	return nil
}
