package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/namespace"
)

// Machine is what is known of the machine below a node, as its daemon sees it.
type Machine struct {
	Boot      string // differs between machines
	Namespace string // name of the daemon's network namespace; "": it has none
	Unit      string // of systemd, that the daemon runs in; "": none
	Kernel    string // release
	BTF       bool   // the kernel has its types
	Clock     Clock
	Process   Process
	CPUs      map[int]CPU
	Links     map[string]*Link
	VXLANs    []VXLAN
	Sysctls   map[string]string // those that probes look at; absent ones do not exist
	Files     []File
	Firewall  []Chain // that keep VXLAN from the kernel
}

// Clock is the kernel's clock.
type Clock struct {
	Synchronised bool
	ErrorMicros  int64 // at most
}

// Process is what the daemon may do.
type Process struct {
	Capabilities uint64 // effective
	Memlock      uint64 // soft limit, bytes
	CPUQuota     string // of the control group, in cgroup v2's words; "": none
}

// CPU is one processor.
type CPU struct {
	Governor string // "": none
	Node     int    // NUMA; -1: unknown
	Siblings []int  // that share its core, itself among them
	Isolated bool
}

// Link is a network interface.
type Link struct {
	Index       int
	Driver      string
	Kind        string // of virtual ones
	AdminUp     bool
	Carrier     bool
	Promiscuity int
	Node        int // NUMA; -1: unknown
	RX, TX      int // queues
	// HashesPorts says whether UDP's ports choose the receive queue, by family; absent:
	// the driver does not tell.
	HashesPorts map[ethtool.Flow]bool
	LRO         bool
	Interrupts  map[int][]int // CPUs that get the interrupts, by queue
	Lost        [2]uint64     // frames lost by the card or its driver, one look after the other
}

// VXLAN is a device of the kernel's.
type VXLAN struct {
	Name string
	Port int
	VNI  int
	Up   bool
}

// Chain is one of nftables.
type Chain struct {
	Name   string // family, table and name
	Family string // ip, ip6 or inet: which packets come to it
	Hook   string // input or forward
}

// File is a file with rights.
type File struct {
	Path, What string
	Mode       fs.FileMode
}

// sysctls are those that probes look at.
var sysctls = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
	"net.ipv4.conf.all.rp_filter", "net.ipv4.fib_multipath_hash_policy", "net.ipv6.fib_multipath_hash_policy",
	"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables",
	"net.ipv4.conf.all.ignore_routes_with_linkdown",
}

// lookAtMachine finds out about the node's machine if it is this one.
func (n *Node) lookAtMachine() {
	pid := n.Parameters.PID
	if n.Socket == "" {
		n.Why = "it is another machine"
		return
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || !strings.HasPrefix(n.Status.Role, strings.TrimSpace(string(comm))) {
		n.Why = fmt.Sprintf("process %d is not %s here: is it in a container with process numbers of its own?", pid, n.Status.Role)
		return
	}
	m := &Machine{CPUs: cpus(), Files: n.files(), Kernel: kernelRelease(), Clock: clock(), Sysctls: map[string]string{}, Links: map[string]*Link{}}
	m.Boot = strings.TrimSpace(read("/proc/sys/kernel/random/boot_id"))
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	m.BTF = err == nil
	m.process(pid)
	if m.Namespace, _, err = namespace.NameOf(pid); err == nil {
		err = n.Inside(func(own bool) error {
			if own {
				m.Namespace = ""
			}
			return m.inside(n, own)
		})
	}
	if err != nil {
		n.Why = err.Error()
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) {
			n.Why += ": run it as root"
		}
		return
	}
	n.Machine = m
}

// Inside runs fn in the network namespace of the node's daemon. own says that it is the
// caller's, too.
func (n *Node) Inside(fn func(own bool) error) error {
	_, own, err := namespace.NameOf(n.Parameters.PID)
	switch {
	case err != nil:
		return err
	case own:
		return fn(true)
	}
	return namespace.DoOf(n.Parameters.PID, func() error { return fn(false) })
}

// inside finds out what the daemon's network namespace says. own says that it is the
// caller's, too.
func (m *Machine) inside(n *Node, own bool) error {
	for _, key := range sysctls {
		if b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/")); err == nil {
			m.Sysctls[key] = strings.TrimSpace(string(b))
		}
	}
	e, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	ports := make(map[string]bool)
	for i := range n.Rings[0].Ports {
		ports[n.Rings[0].Ports[i].Port] = true
	}
	for _, l := range links {
		if v, ok := l.(*netlink.Vxlan); ok {
			m.VXLANs = append(m.VXLANs, VXLAN{v.Name, v.Port, v.VxlanId, v.Flags&unix.IFF_UP != 0})
		}
		if ports[l.Attrs().Name] {
			m.Links[l.Attrs().Name] = lookAtLink(l, e, own)
		}
	}
	m.Firewall = firewall(n.Parameters.VXLANPort)
	return nil
}

// lookAtLink finds out about a port's interface. sysfs is that of the caller's namespace.
func lookAtLink(l netlink.Link, e *ethtool.Socket, sysfs bool) *Link {
	a := l.Attrs()
	x := &Link{
		Index: a.Index, Kind: l.Type(), AdminUp: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, Promiscuity: a.Promisc,
		Node: -1, HashesPorts: map[ethtool.Flow]bool{}, Interrupts: map[int][]int{},
	}
	x.Driver, _ = e.Driver(a.Name) // virtual ones may have none
	x.RX, x.TX = e.Queues(a.Name, a.NumRxQueues, a.NumTxQueues)
	for _, f := range []ethtool.Flow{ethtool.UDPv4, ethtool.UDPv6} {
		if ports, err := e.HashesPorts(a.Name, f); err == nil {
			x.HashesPorts[f] = ports
		}
	}
	x.LRO, _ = e.Get(a.Name, ethtool.LRO)
	x.Lost[0] = lost(a.Statistics)
	if sysfs {
		device := "/sys/class/net/" + a.Name + "/device"
		if v, err := strconv.Atoi(strings.TrimSpace(read(device + "/numa_node"))); err == nil {
			x.Node = v
		}
		x.Interrupts = interrupts(device, a.Name)
	}
	return x
}

// lost is what the card or its driver did not hand over.
func lost(s *netlink.LinkStatistics) uint64 {
	if s == nil {
		return 0
	}
	return s.RxMissedErrors + s.RxFifoErrors + s.RxOverErrors + s.RxCrcErrors + s.TxErrors
}

// countAgain looks at counters for the second time.
func (m *Machine) countAgain(n *Node) {
	count := func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if x := m.Links[l.Attrs().Name]; x != nil && x.Index == l.Attrs().Index {
				x.Lost[1] = lost(l.Attrs().Statistics)
			}
		}
		return err
	}
	err := n.Inside(func(bool) error { return count() })
	if err != nil { // it has ended meanwhile
		for _, x := range m.Links {
			x.Lost[1] = x.Lost[0]
		}
	}
}

// process finds out what the daemon may do.
func (m *Machine) process(pid int) {
	for line := range strings.Lines(read(fmt.Sprintf("/proc/%d/status", pid))) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			m.Process.Capabilities, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	for line := range strings.Lines(read(fmt.Sprintf("/proc/%d/limits", pid))) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			soft := strings.Fields(rest)[0]
			if m.Process.Memlock = 1<<64 - 1; soft != "unlimited" {
				m.Process.Memlock, _ = strconv.ParseUint(soft, 10, 64)
			}
		}
	}
	_, group, _ := strings.Cut(strings.TrimSpace(read(fmt.Sprintf("/proc/%d/cgroup", pid))), "::")
	if base := filepath.Base(group); strings.HasSuffix(base, ".service") && (strings.Contains(base, "leafd") || strings.Contains(base, "spined")) {
		m.Unit = strings.TrimSuffix(base, ".service")
	}
	for ; group != "" && group != "/" && group != "."; group = filepath.Dir(group) {
		if quota := strings.TrimSpace(read("/sys/fs/cgroup" + group + "/cpu.max")); quota != "" && !strings.HasPrefix(quota, "max") {
			m.Process.CPUQuota = quota
		}
	}
}

// files lists the files whose rights matter.
func (n *Node) files() (all []File) {
	add := func(what, path string) {
		if st, err := os.Stat(path); err == nil {
			all = append(all, File{path, what, st.Mode()})
		}
	}
	p := &n.Parameters
	add("config", p.File)
	add("key", p.KeyFile)
	if socket, ok := strings.CutPrefix(p.Admin, "unix:"); ok {
		add("admin", socket)
	}
	return all
}

func read(path string) string {
	b, _ := os.ReadFile(path) // what cannot be read is not known
	return string(b)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func clock() Clock {
	var x unix.Timex
	state, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &x)
	return Clock{err == nil && state != unix.TIME_ERROR && x.Status&unix.STA_UNSYNC == 0, x.Maxerror}
}

// cpus finds out about the processors.
func cpus() map[int]CPU {
	all := make(map[int]CPU)
	isolated := cpuList(read("/sys/devices/system/cpu/isolated"))
	nodes := make(map[int]int)
	dirs, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	for _, dir := range dirs {
		node, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		for _, c := range cpuList(read(dir + "/cpulist")) {
			nodes[c] = node
		}
	}
	for _, c := range cpuList(read("/sys/devices/system/cpu/online")) {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d", c)
		x := CPU{Governor: strings.TrimSpace(read(dir + "/cpufreq/scaling_governor")), Node: -1, Siblings: cpuList(read(dir + "/topology/thread_siblings_list")), Isolated: slices.Contains(isolated, c)}
		if node, ok := nodes[c]; ok {
			x.Node = node
		}
		all[c] = x
	}
	return all
}

// cpuList reads a list as in "0-3,8".
func cpuList(text string) (list []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if ranged {
			if to, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		for c := from; c <= to; c++ {
			list = append(list, c)
		}
	}
	return list
}

// interrupts returns the CPUs that get the interrupts of an interface's queues. The queue is
// the number at the end of an interrupt's name, as in eth0-TxRx-3 or mlx5_comp3@pci.
func interrupts(device, name string) map[int][]int {
	all := make(map[int][]int)
	entries, err := os.ReadDir(device + "/msi_irqs")
	if err != nil {
		return all
	}
	ours := make(map[string]bool)
	for _, e := range entries {
		ours[e.Name()] = true
	}
	s := bufio.NewScanner(strings.NewReader(read("/proc/interrupts")))
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || !ours[strings.TrimSuffix(fields[0], ":")] {
			continue
		}
		label, _, _ := strings.Cut(fields[len(fields)-1], "@")
		digits := label[len(strings.TrimRight(label, "0123456789")):]
		queue, err := strconv.Atoi(digits)
		if err != nil || label == name {
			continue // of the device as a whole
		}
		irq := strings.TrimSuffix(fields[0], ":")
		all[queue] = append(all[queue], cpuList(read("/proc/irq/"+irq+"/effective_affinity_list"))...)
	}
	return all
}
