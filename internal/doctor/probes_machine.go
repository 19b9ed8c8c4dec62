package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The oldest release that Loom is tried on.
const oldestMajor, oldestMinor = 5, 15

func kernelVersion(n *Node, add adder) {
	var major, minor int
	if _, err := fmt.Sscanf(n.Machine.Kernel, "%d.%d", &major, &minor); err == nil && (major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		add("kernel", fmt.Sprintf("a kernel of %d.%d or newer; from 6.8 on VLAN tags beside frames are seen", oldestMajor, oldestMinor), "the kernel is %s", n.Machine.Kernel)
	}
}

func btf(n *Node, add adder) {
	if !n.Machine.BTF {
		add("/sys/kernel/btf/vmlinux", "a kernel with CONFIG_DEBUG_INFO_BTF=y", "the kernel has no BTF: no fast path, and VLAN tags that a card takes off are not seen")
	}
}

func clockSync(n *Node, add adder) {
	if !n.Machine.Clock.Synchronised {
		add("clock", "systemctl enable --now chrony", "the clock is not synchronised: Loom's timestamps do not need it, and logs and records of several machines do")
	}
}

// spins reports whether workers never sleep.
func (n *Node) spins() bool { return n.Parameters.Polling == "busy" }

func governor(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, c := range n.Parameters.Cores {
		if g := n.Machine.CPUs[c].Governor; g == "powersave" || g == "ondemand" || g == "conservative" {
			add(fmt.Sprintf("cpu %d", c), fmt.Sprintf("cpupower -c %d frequency-set -g performance", c), "CPU %d of a worker has the governor %s", c, g)
		}
	}
}

func unpinned(n *Node, add adder) {
	if n.spins() && len(n.Parameters.Cores) == 0 {
		add("cores", fmt.Sprintf("cores: in %s; then %s", n.Parameters.File, n.restart()), "%d workers spin, and are not pinned to CPUs", n.Parameters.Workers)
	}
}

func isolation(n *Node, add adder) {
	if n.Machine == nil || !n.spins() {
		return
	}
	var shared []string
	for _, c := range n.Parameters.Cores {
		if !n.Machine.CPUs[c].Isolated {
			shared = append(shared, strconv.Itoa(c))
		}
	}
	if list := strings.Join(shared, ","); list != "" {
		add("cpu "+list, fmt.Sprintf("isolcpus=%s nohz_full=%s on the kernel's command line", list, list), "CPUs %s of workers that spin are not isolated", list)
	}
}

func sharedCPU(all []*Node, add nodeAdd) {
	type cpu struct {
		boot string
		core int
	}
	taken := make(map[cpu]*Node)
	for _, n := range all {
		if n.Machine == nil || n.Parameters.Polling == "interrupt" {
			continue // workers that sleep share well
		}
		for _, c := range n.Parameters.Cores {
			k := cpu{n.Machine.Boot, c}
			if other := taken[k]; other != nil {
				add(n, fmt.Sprintf("cpu %d", c), fmt.Sprintf("other cores: in %s; then %s", n.Parameters.File, n.restart()), "a worker of %s and one of %s have CPU %d", other.Name, n.Name, c)
			} else {
				taken[k] = n
			}
		}
	}
}

func siblings(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for i, c := range n.Parameters.Cores {
		for _, other := range n.Parameters.Cores[:i] {
			if c != other && slices.Contains(n.Machine.CPUs[c].Siblings, other) {
				add(fmt.Sprintf("cpu %d", c), fmt.Sprintf("other cores: in %s; then %s", n.Parameters.File, n.restart()), "workers have CPUs %d and %d, which are hyper-threads of one core", other, c)
			}
		}
	}
}

func numa(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Machine.Links)) {
		l := n.Machine.Links[name]
		for q, c := range n.Parameters.Cores {
			if at := n.Machine.CPUs[c].Node; l.Node >= 0 && at >= 0 && at != l.Node {
				add(name, fmt.Sprintf("cores: of NUMA node %d in %s; then %s", l.Node, n.Parameters.File, n.restart()), "%s is at NUMA node %d, and worker %d has CPU %d of node %d", name, l.Node, q, c, at)
				break
			}
		}
	}
}

func irqs(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Machine.Links)) {
		for _, q := range slices.Sorted(maps.Keys(n.Machine.Links[name].Interrupts)) {
			for _, c := range n.Machine.Links[name].Interrupts[q] {
				if w := slices.Index(n.Parameters.Cores, c); w >= 0 && w != q && q < len(n.Parameters.Cores) {
					add(name, fmt.Sprintf("echo %d > /proc/irq/N/smp_affinity_list for queue %d's N of /proc/interrupts; systemctl disable --now irqbalance", n.Parameters.Cores[q], q),
						"interrupts of queue %d of %s go to CPU %d, which is worker %d's", q, name, c, w)
				}
			}
		}
	}
}

func vxlanDevice(n *Node, add adder) {
	if n.Machine == nil || n.Parameters.KernelOverlay || len(n.Parameters.FailOpen) > 0 {
		return // there the kernel is meant to take over
	}
	for _, d := range n.Machine.VXLANs {
		for _, v := range n.Parameters.VNIs {
			if d.Up && d.Port == int(n.Parameters.VXLANPort) && d.VNI == int(v.VNI) {
				add(d.Name, n.command("ip link del %s", d.Name), "the kernel has VXLAN device %s for VNI %d on UDP port %d: it takes the tenants' frames whenever leafd's XDP program is not there", d.Name, d.VNI, d.Port)
			}
		}
	}
}

// sysctl returns the command that sets a value.
func (n *Node) sysctl(key, value string) string { return n.command("sysctl -w %s=%s", key, value) }

// ipv6 reports whether the fabric's addresses are of IPv6, as far as the node's ports tell.
func (n *Node) ipv6() bool { return n.Parameters.VTEP.Is6() }

func forwarding(n *Node, add adder) {
	if n.Machine == nil || n.leaf() {
		return
	}
	// A spine does not say which family its leaves have: one that forwards either is meant to.
	const v4, v6 = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"
	if n.Machine.Sysctls[v4] == "0" && n.Machine.Sysctls[v6] != "1" {
		add(v4, n.sysctl(v4, "1"), "the kernel does not forward: nothing goes through this spine while spined is not running")
	}
}

func rpFilter(n *Node, add adder) {
	const key = "net.ipv4.conf.all.rp_filter"
	if n.Machine != nil && n.Machine.Sysctls[key] == "1" && !n.ipv6() && len(n.uplinks()) > 1 {
		add(key, n.sysctl(key, "0"), "the kernel's reverse path filter is strict: of what comes to this machine it drops what came by another link than the one that leads back, BFD and BGP among it")
	}
}

func hashPolicy(n *Node, add adder) {
	const key = "net.ipv4.fib_multipath_hash_policy"
	if n.Machine != nil && n.Machine.Sysctls[key] == "0" && !n.leaf() {
		add(key, n.sysctl(key, "1"), "the kernel spreads packets by addresses alone: while spined is not running, all that one leaf sends another takes one link")
	}
}

func firewallRules(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, c := range n.Machine.Firewall {
		// A spine does not say which family its leaves have.
		if other := n.leaf() && c.Family == either(n.ipv6(), "ip", "ip6"); !other && c.Hook == either(n.leaf(), "input", "forward") {
			add(c.Name, n.command("nft insert rule %s udp dport %d accept", c.Name, n.Parameters.VXLANPort), "chain %s of nftables drops VXLAN: nothing gets through when the kernel takes over", c.Name)
		}
	}
}

func bridgeNetfilter(n *Node, add adder) {
	if n.Machine == nil || !n.Parameters.KernelOverlay && len(n.Parameters.FailOpen) == 0 {
		return
	}
	for _, key := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
		if n.Machine.Sysctls[key] == "1" {
			add(key, n.sysctl(key, "0"), "frames that the kernel's bridge forwards go through the firewall of the machine")
		}
	}
}
