package control

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/ethtool"
)

// Interfaces lists the names of the network interfaces.
func Interfaces() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Attrs().Name
	}
	return names, nil
}

// Gather finds out what [Check] needs, in the network namespace of the calling
// thread. It changes nothing.
func Gather(c *dataplane.Config) (*Facts, error) {
	f := &Facts{Ports: make(map[string]PortFacts)}
	if err := f.privilege(); err != nil {
		return nil, err
	}
	names := make([]string, len(c.Ports))
	for i := range c.Ports {
		names[i] = c.Ports[i].Name
	}
	k, err := OpenNetlink(names...)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	k.Underlay(c.VTEP)
	for _, kind := range []Kind{Links, Routes, Addresses} {
		if err := k.List(kind, &f.State); err != nil {
			return nil, err
		}
	}
	return f, f.ports(c, k.h, k.ethtool)
}

// GatherPorts finds out what [CheckPorts] needs, in the network namespace of the calling
// thread. It changes nothing.
func GatherPorts(c *dataplane.Config) (*Facts, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	e, err := ethtool.Open()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	f := &Facts{Ports: make(map[string]PortFacts)}
	return f, f.ports(c, h, e)
}

// ports finds out about interfaces and addresses.
func (f *Facts) ports(c *dataplane.Config, h *netlink.Handle, e *ethtool.Socket) error {
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list this machine's addresses: %w", err)
	}
	byIndex := make(map[int][]netip.Prefix)
	for _, a := range addrs {
		ip, _ := addrOf(a.IP)
		bits, _ := a.Mask.Size()
		byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex], netip.PrefixFrom(ip, bits))
	}
	links, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	byName := make(map[string]netlink.Link, len(links))
	for _, l := range links {
		byName[l.Attrs().Name] = l
	}
	for _, p := range c.Ports {
		l := byName[p.Name]
		if l == nil {
			continue
		}
		a := l.Attrs()
		x := PortFacts{MTU: a.MTU, Up: running(a), Addrs: byIndex[a.Index], AcceptsRA: acceptsRA(p.Name), Bridged: bridged(a, links)}
		x.Speed, _ = e.Speed(p.Name) // a driver that does not tell leaves it at 0
		x.Bond, x.Members = bondOf(l, links)
		x.RXQueues, x.TXQueues = e.Queues(p.Name, a.NumRxQueues, a.NumTxQueues)
		if p.Kind == dataplane.Access {
			if x.TagsHidden, x.TagsFix, err = hiddenTags(e, l, c.XDPMode); err != nil {
				return err
			}
		}
		if a.Xdp != nil && a.Xdp.Attached && !(p.Kind == dataplane.Access && bpf.LeftBehind(a.Index, a.Xdp.ProgId)) {
			x.XDP = a.Xdp.ProgId
		}
		f.Ports[p.Name] = x
	}
	return nil
}

// acceptsRA reports whether the kernel takes router advertisements from an interface. A
// kernel without IPv6 takes none.
func acceptsRA(name string) bool {
	value := func(key string) string {
		b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, key))
		if err != nil {
			return "0"
		}
		return strings.TrimSpace(string(b))
	}
	return value("accept_ra") != "0" && value("disable_ipv6") == "0"
}

// bridged reports whether a link, or a VLAN interface on it, is a port of a bridge.
func bridged(a *netlink.LinkAttrs, links []netlink.Link) bool {
	bridges := make(map[int]bool)
	for _, l := range links {
		if l.Type() == "bridge" || l.Type() == "openvswitch" {
			bridges[l.Attrs().Index] = true
		}
	}
	return bridges[a.MasterIndex] || slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Type() == "vlan" && l.Attrs().ParentIndex == a.Index && bridges[l.Attrs().MasterIndex]
	})
}

// bondOf reports whether l is a bond or a team, and the names of its members among the
// links.
func bondOf(l netlink.Link, links []netlink.Link) (bond bool, members []string) {
	if kind := l.Type(); kind != "bond" && kind != "team" {
		return false, nil
	}
	for _, m := range links {
		if m.Attrs().MasterIndex == l.Attrs().Index {
			members = append(members, m.Attrs().Name)
		}
	}
	return true, members
}

// privilege reads the effective capabilities and the memory limit.
func (f *Facts) privilege() error {
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return fmt.Errorf("read the process's capabilities: %w", err)
	}
	has := func(c int) bool { return sets[c/32].Effective>>(c%32)&1 != 0 }
	f.NetAdmin, f.NetRaw, f.IPCLock = has(unix.CAP_NET_ADMIN), has(unix.CAP_NET_RAW), has(unix.CAP_IPC_LOCK)
	f.BPF = has(unix.CAP_BPF) || has(unix.CAP_SYS_ADMIN)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("read the limit of locked memory: %w", err)
	}
	f.Memlock = limit.Cur
	return nil
}
