package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lister lists what a [State] has. It is used by one goroutine at a time.
type lister struct {
	route     *socket
	netfilter *socket // nil: the kernel has none
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
	route, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	// A kernel without netfilter has no such sockets.
	netfilter, err := openSocket(unix.NETLINK_NETFILTER)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.Join(err, route.close())
	}
	l := &lister{route: route, netfilter: netfilter}
	l.readFiles(&Filters{})
	return l, nil
}

func (l *lister) close() error {
	err := l.route.close()
	if l.netfilter != nil {
		err = errors.Join(err, l.netfilter.close())
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
		{nextHops, "next-hop objects", l.nextHops},
		{filters, "filters", l.filters},
	} {
		if k&x.kind == 0 {
			continue
		}
		var err error
		for range maxTries {
			if err = x.list(out); !errors.Is(err, errInterrupted) {
				break
			}
		}
		if err != nil && !errors.Is(err, errInterrupted) {
			return nil, fmt.Errorf("list the kernel's %s: %w", x.name, err)
		}
	}
	return out, nil
}

// attribute appends an attribute of four bytes.
func attribute(b []byte, kind uint16, value uint32) []byte {
	b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+4)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.NativeEndian.AppendUint32(b, value)
}

const (
	filterVLANs  = 1 << 2 // RTEXT_FILTER_BRVLAN_COMPRESSED
	filterNoStat = 1 << 3 // RTEXT_FILTER_SKIP_STATS
)

func (l *lister) links(out *listing) error {
	out.links = nil
	req := attribute(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_EXT_MASK, filterNoStat)
	return l.route.dump(unix.RTM_GETLINK, req, func(kind uint16, b []byte) {
		if x, err := parseLink(b); err == nil && kind == unix.RTM_NEWLINK {
			out.links = append(out.links, x)
		}
	}, nil)
}

func (l *lister) ports(out *listing) error {
	out.ports = nil
	req := attribute(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_EXT_MASK, filterVLANs)
	req[0] = unix.AF_BRIDGE
	err := l.route.dump(unix.RTM_GETLINK, req, func(kind uint16, b []byte) {
		if x, err := parsePort(b); err == nil && kind == unix.RTM_NEWLINK {
			out.ports = append(out.ports, x)
		}
	}, nil)
	if err != nil {
		return err
	}
	out.blocked = make(map[int][]VLANState)
	req = make([]byte, vlanMsgSize)
	req[0] = unix.AF_BRIDGE
	err = l.route.dump(unix.RTM_GETVLAN, req, func(kind uint16, b []byte) {
		if i, v, err := parseVLANStates(b); err == nil && kind == unix.RTM_NEWVLAN && len(v) > 0 {
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
	err := l.route.dump(unix.RTM_GETTUNNEL, req, func(kind uint16, b []byte) {
		if i, v, err := parseVNIs(b); err == nil && kind == unix.RTM_NEWTUNNEL {
			out.vnis[i] = append(out.vnis[i], v...)
		}
	}, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // before Linux 5.18, or without VXLAN
		return nil
	}
	return err
}

func (l *lister) nextHops(out *listing) error {
	out.nextHops = make(map[uint32]NextHop)
	req := make([]byte, nhmsgSize, nhmsgSize+unix.SizeofRtAttr)
	req = binary.NativeEndian.AppendUint16(req, unix.SizeofRtAttr)
	req = binary.NativeEndian.AppendUint16(req, nhaFDB)
	err := l.route.dump(unix.RTM_GETNEXTHOP, req, func(kind uint16, b []byte) {
		if id, h, fdb, err := parseNextHop(b); err == nil && fdb && kind == unix.RTM_NEWNEXTHOP {
			out.nextHops[id] = h
		}
	}, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // before Linux 5.8
		return nil
	}
	return err
}

// filters finds out what decides about frames beside bridges.
func (l *lister) filters(out *listing) error {
	f := Filters{Qdiscs: make(map[int]string), Netdev: make(map[string]bool)}
	err := l.route.dump(unix.RTM_GETQDISC, make([]byte, tcmsgSize), func(kind uint16, b []byte) {
		if i, name, err := parseQdisc(b); err == nil && kind == unix.RTM_NEWQDISC && !plainQdiscs[name] {
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
	err := l.netfilter.dump(getChain, make([]byte, nfgenmsgSize), func(kind uint16, b []byte) {
		if c, ok := parseChain(b); ok && kind == newChain {
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
	err := l.route.dump(unix.RTM_GETNEIGH, req, func(kind uint16, b []byte) {
		if e, ok := parseEntry(b); ok && kind == unix.RTM_NEWNEIGH {
			list = append(list, e)
		}
	}, func() error {
		full := list
		list = make([]Entry, 0, len(full))
		return part(full)
	})
	if errors.Is(err, errInterrupted) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("list the kernel's forwarding entries: %w", err)
	}
	return nil
}
