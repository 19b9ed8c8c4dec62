package doctor

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
)

func ready(n *Node, add adder) {
	for _, r := range n.Status.Reasons {
		mend := n.loomctl("status")
		if r.Name == dataplane.ReasonNoVTEP {
			mend = n.command("ip addr add %v/%d dev lo", n.Parameters.VTEP, n.Parameters.VTEP.BitLen())
		}
		add(r.Port, mend, "not ready: %v", r)
	}
}

func configFile(n *Node, add adder) {
	c := &n.Config
	switch {
	case c.Error != "":
		add(c.File, n.loomctl("config diff"), "a reload would refuse %s, and so would a restart: %s", c.File, c.Error)
	case len(c.Restart) > 0:
		add(c.File, n.restart(), "%s differs from what is in force in %s, which takes a restart", c.File, strings.Join(c.Restart, ", "))
	case len(c.Live) > 0:
		add(c.File, n.reload(), "%s differs from what is in force in %s", c.File, strings.Join(c.Live, ", "))
	}
}

func accounts(n *Node, add adder) {
	for _, w := range n.Stats[1].Workers {
		if !w.Balances {
			add(fmt.Sprintf("worker %d", w.Worker), n.loomctl("support"), "the account of worker %d does not balance: %v", w.Worker, w.Account)
		}
	}
}

// capabilities are those that a daemon needs.
var capabilities = []struct {
	bit       int
	name, why string
}{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "to attach XDP programs"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", "to open AF_XDP sockets"},
	{unix.CAP_BPF, "CAP_BPF", "to load XDP programs"},
}

func rights(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	have := n.Machine.Process.Capabilities
	for _, c := range capabilities {
		if have>>c.bit&1 == 0 && (c.bit != unix.CAP_BPF || have>>unix.CAP_SYS_ADMIN&1 == 0) {
			add(c.name, "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_PERFMON CAP_IPC_LOCK in the unit; "+n.restart(),
				"%s lacks %s %s: ports that come later cannot be opened", n.Status.Role, c.name, c.why)
		}
	}
}

func memlock(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	p := &n.Machine.Process
	if p.Capabilities>>unix.CAP_IPC_LOCK&1 == 0 && p.Memlock < n.Parameters.Memory {
		add("RLIMIT_MEMLOCK", "LimitMEMLOCK=infinity in the unit; "+n.restart(),
			"the limit of locked memory is %d bytes, and packet buffers take %d", p.Memlock, n.Parameters.Memory)
	}
}

func cpuQuota(n *Node, add adder) {
	if n.Machine == nil || n.Machine.Process.CPUQuota == "" {
		return
	}
	mend := "write max to cpu.max of the control group"
	if n.Machine.Unit != "" {
		mend = fmt.Sprintf("systemctl set-property %s CPUQuota=", n.Machine.Unit)
	}
	add("cpu.max", mend, "%s may use the processors for %s µs (quota, period): workers stand still for the rest", n.Status.Role, n.Machine.Process.CPUQuota)
}

func files(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, f := range n.Machine.Files {
		mode := f.Mode.Perm()
		switch {
		case f.What == "config" && mode&0o002 != 0:
			add(f.Path, fmt.Sprintf("chmod o-w %s", f.Path), "everybody may change the configuration %s (mode %04o)", f.Path, mode)
		case f.What == "key" && mode&0o007 != 0:
			add(f.Path, fmt.Sprintf("chmod o= %s", f.Path), "everybody may use the keys in %s (mode %04o)", f.Path, mode)
		case f.What == "admin" && mode&0o006 != 0:
			add(f.Path, fmt.Sprintf("chmod o= %s", f.Path), "everybody may ask the node by %s (mode %04o)", f.Path, mode)
		}
	}
}

func version(all []*Node, add nodeAdd) {
	compare(all, func(n *Node) map[string]string { return map[string]string{"version": n.Status.Version} }, func(n, most *Node, _, value, common string) {
		add(n, "version", n.Status.Role+" upgrade", "%s runs version %s, and %s runs %s", n.Name, value, most.Name, common)
	})
}

func parameters(all []*Node, add nodeAdd) {
	differs := func(n, most *Node, key, value, common string) {
		mend := fmt.Sprintf("%s in %s; then %s", either(value == "", "add "+key, "change "+key), n.Parameters.File, n.restart())
		add(n, key, mend, "%s is %s on %s, and %s on %s", key, value, n.Name, common, most.Name)
	}
	compare(all, func(n *Node) map[string]string { return n.Parameters.Fabric }, differs)
	compare(leaves(all), func(n *Node) map[string]string {
		m := make(map[string]string)
		for key, value := range n.Parameters.Leaf {
			if !strings.HasPrefix(key, "scheme") {
				m[key] = value
			}
		}
		return m
	}, differs)
}

func scheme(all []*Node, add nodeAdd) {
	compare(leaves(all), func(n *Node) map[string]string {
		m := make(map[string]string)
		for key, value := range n.Parameters.Leaf {
			if strings.HasPrefix(key, "scheme") {
				m[key] = value
			}
		}
		return m
	}, func(n, most *Node, key, value, common string) {
		add(n, key, fmt.Sprintf("change %s in %s; then %s", key, n.Parameters.File, n.reload()), "%s is %s on %s, and %s on %s", key, value, n.Name, common, most.Name)
	})
}

// compare calls differs for each node whose value of a key is not the one that most nodes
// have which have the key; of values that are as frequent, the first node's is taken for it.
func compare(all []*Node, values func(*Node) map[string]string, differs func(n, most *Node, key, value, common string)) {
	var keys []string
	for _, n := range all {
		for key := range values(n) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		count, first := make(map[string]int), make(map[string]*Node)
		common := ""
		for _, n := range all {
			if v, ok := values(n)[key]; ok {
				if count[v]++; first[v] == nil {
					first[v] = n
				}
			}
		}
		for _, n := range all {
			if v, ok := values(n)[key]; ok && count[v] > count[common] {
				common = v
			}
		}
		for _, n := range all {
			if v, ok := values(n)[key]; ok && v != common {
				differs(n, first[common], key, v, common)
			}
		}
	}
}

// leaves returns those nodes that are leaves.
func leaves(all []*Node) (out []*Node) {
	for _, n := range all {
		if n.leaf() {
			out = append(out, n)
		}
	}
	return out
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

func duplicateVTEP(all []*Node, add nodeAdd) {
	for i, n := range leaves(all) {
		for _, other := range leaves(all)[:i] {
			if v := n.Parameters.VTEP; v.IsValid() && v == other.Parameters.VTEP {
				add(n, v.String(), fmt.Sprintf("another vtep in %s; then %s", n.Parameters.File, n.restart()), "%s and %s both have VTEP %v", other.Name, n.Name, v)
			}
		}
	}
}

func membership(all []*Node, add nodeAdd) {
	for _, a := range leaves(all) {
		for _, b := range leaves(all) {
			if a == b || !slices.Contains(b.Parameters.Peers, a.Parameters.VTEP) {
				continue
			}
			if !slices.Contains(a.Parameters.Peers, b.Parameters.VTEP) {
				add(a, b.Parameters.VTEP.String(), fmt.Sprintf("add %v to peers in %s; then %s", b.Parameters.VTEP, a.Parameters.File, a.reload()),
					"%s (%v) has %s as a peer, and %s does not have it: what it sends is dropped", b.Name, b.Parameters.VTEP, a.Name, a.Name)
				continue
			}
			for _, x := range a.Parameters.VNIs {
				for _, y := range b.Parameters.VNIs {
					if x.VNI == y.VNI && !slices.Contains(x.Flood, b.Parameters.VTEP) && !a.Parameters.KernelOverlay {
						add(a, fmt.Sprintf("vni %d", x.VNI), fmt.Sprintf("add %v to the flood list of vni %d in %s; then %s", b.Parameters.VTEP, x.VNI, a.Parameters.File, a.reload()),
							"%s and %s both have VNI %d, and %s does not flood to %s: ARP does not get there", a.Name, b.Name, x.VNI, a.Name, b.Name)
					}
				}
			}
		}
	}
}
