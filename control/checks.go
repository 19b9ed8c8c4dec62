package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Facts are what the start-up checks know of the machine; [Gather] finds them
// out.
type Facts struct {
	NetAdmin, NetRaw, BPF, IPCLock bool                 // effective capabilities
	Memlock                        uint64               // soft limit of locked memory, bytes
	Ports                          map[string]PortFacts // by name; one that is missing does not exist
	State                          State                // links, routes and addresses
}

// PortFacts are what the checks know of one interface.
type PortFacts struct {
	MTU                int
	RXQueues, TXQueues int            // in use
	Speed              uint64         // that the kernel says, bits per second; 0: unknown
	Up                 bool           // administratively up and with carrier
	Bond               bool           // it is a bond or a team
	Members            []string       // of the bond
	XDP                uint32         // ID of the XDP program that it carries; 0: none, or one that keeps the port closed
	Addrs              []netip.Prefix // of the kernel's own stack, link-local ones included
	AcceptsRA          bool           // the kernel takes addresses and routes from router advertisements
	Bridged            bool           // it, or a VLAN interface on it, is a port of a bridge
	// TagsHidden says why XDP may not see all VLAN tags; "": it does.
	TagsHidden, TagsFix string
}

// Finding is something that is wrong with a node as configured, on its machine,
// and what to do.
type Finding struct {
	Fatal        bool   // the node cannot forward as configured
	Place        string // what it is about: an interface, a key of the file, a capability
	Problem, Fix string
}

// Severity is the word for how bad it is: error or warning.
func (f Finding) Severity() string {
	if f.Fatal {
		return "error"
	}
	return "warning"
}

// String gives problem and remedy.
func (f Finding) String() string { return f.Problem + "\n  fix: " + f.Fix }

// Check holds a configuration against the machine, and against itself where a
// file that is valid asks for trouble. o is the leaf's file; nil: c is a spine's. It
// touches nothing.
func Check(c *dataplane.Config, o *config.Leaf, f *Facts) []Finding {
	var out []Finding
	add := func(fatal bool, place, problem, fix string, args ...any) {
		out = append(out, Finding{fatal, place, problem, fmt.Sprintf(fix, args...)})
	}
	checkPrivilege(c, f, add)
	for _, p := range c.Ports {
		checkPort(c, o, &p, f, add)
		if x, ok := f.Ports[p.Name]; ok && p.Kind == dataplane.Access {
			checkTrust(c, &p, &x, add)
		}
	}
	out = append(out, CheckFile(c)...)
	checkOverhead(c, f, add)
	if c.Role == dataplane.Leaf {
		checkRoutes(c, o, f, add)
		if !slices.Contains(f.State.Addresses, c.VTEP) {
			add(false, "vtep", fmt.Sprintf("VTEP %v is not an address of this machine: the kernel cannot answer for it, nor take over when the daemon is gone", c.VTEP),
				"%s", vtepFix(c.VTEP))
		}
	}
	return out
}

// CheckPorts holds interfaces against a configuration, as [Check] does, while the node
// runs: ports come and change. It leaves out what the mirror and the data plane report
// by themselves: absent interfaces, links' speeds, and MTUs that the fabric needs.
func CheckPorts(c *dataplane.Config, o *config.Leaf, f *Facts) []Finding {
	var out []Finding
	add := func(fatal bool, place, problem, fix string, args ...any) {
		out = append(out, Finding{fatal, place, problem, fmt.Sprintf(fix, args...)})
	}
	for _, p := range c.Ports {
		if x, ok := f.Ports[p.Name]; ok && checkInterface(c, o, &p, &x, add) && p.Kind == dataplane.Access {
			checkTrust(c, &p, &x, add)
		}
	}
	return out
}

// CheckChange holds what has changed in a configuration against the machine, while the
// node runs with the one before. added and changed tell of ports by name.
func CheckChange(c *dataplane.Config, o *config.Leaf, f *Facts, added, changed func(port string) bool) []Finding {
	var out []Finding
	add := func(fatal bool, place, problem, fix string, args ...any) {
		out = append(out, Finding{fatal, place, problem, fmt.Sprintf(fix, args...)})
	}
	for _, p := range c.Ports {
		x, ok := f.Ports[p.Name]
		switch {
		case added(p.Name):
			checkPort(c, o, &p, f, add)
		case ok && changed(p.Name):
			checkInterface(c, o, &p, &x, add)
		default:
			continue
		}
		if ok && p.Kind == dataplane.Access {
			checkTrust(c, &p, &x, add)
		}
	}
	checkOverhead(c, f, func(fatal bool, place, problem, fix string, args ...any) {
		if added(place) {
			add(fatal, place, problem, fix, args...)
		}
	})
	return out
}

// CheckFile holds a configuration against itself, without a look at the machine.
func CheckFile(c *dataplane.Config) []Finding { return CheckGaps(c) }

type addFinding func(fatal bool, place, problem, fix string, args ...any)

func checkPrivilege(c *dataplane.Config, f *Facts, add addFinding) {
	for _, p := range []struct {
		have      bool
		name, why string
	}{
		{f.NetAdmin, "CAP_NET_ADMIN", "to attach XDP programs"},
		{f.NetRaw, "CAP_NET_RAW", "to open AF_XDP sockets"},
		{f.BPF, "CAP_BPF", "to load XDP programs"},
	} {
		if !p.have {
			add(true, p.name, fmt.Sprintf("%s is missing, which is needed %s", p.name, p.why),
				"run as root, or with AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_PERFMON CAP_IPC_LOCK as in deploy/systemd")
		}
	}
	// The kernel charges UMEM to RLIMIT_MEMLOCK (net/xdp/xdp_umem.c), whatever
	// it does about BPF maps.
	need := UMEMBytes(c)
	if !f.IPCLock && f.Memlock < need {
		add(true, "RLIMIT_MEMLOCK", fmt.Sprintf("the limit of locked memory is %d bytes, and packet buffers need %d", f.Memlock, need),
			"LimitMEMLOCK=infinity in the systemd unit (ulimit -l unlimited in a shell), or CAP_IPC_LOCK")
	}
}

// names returns the names of the links.
func (s *State) names() []string {
	names := make([]string, len(s.Links))
	for i := range s.Links {
		names[i] = s.Links[i].Name
	}
	return names
}

// UMEMBytes returns what the workers' packet buffers take.
func UMEMBytes(c *dataplane.Config) uint64 {
	return uint64(c.Workers) * uint64(c.UMEMFrames()) * uint64(c.FrameSize())
}

// checkTrust looks for ways from hosts into the leaf's own kernel.
func checkTrust(c *dataplane.Config, p *dataplane.PortConfig, x *PortFacts, add addFinding) {
	if c.KernelOverlay {
		return // what hosts may send to the kernel is the kernel's affair
	}
	const noIPv6 = "sysctl -w net/ipv6/conf/%s/disable_ipv6=1"
	v6 := false
	for _, a := range x.Addrs {
		if a.Addr().Is6() {
			v6 = true
		} else {
			add(false, p.Name, fmt.Sprintf("access port %s has the address %v: hosts there reach this machine's own services whenever leafd's XDP program is not on it", p.Name, a),
				"ip addr del %v dev %s", a, p.Name)
		}
	}
	switch {
	case x.AcceptsRA:
		add(false, p.Name, fmt.Sprintf("access port %s accepts router advertisements: hosts there give this machine addresses and routes whenever leafd's XDP program is not on it", p.Name), noIPv6, p.Name)
	case v6:
		add(false, p.Name, fmt.Sprintf("access port %s has IPv6 addresses: hosts there reach this machine's own services whenever leafd's XDP program is not on it", p.Name), noIPv6, p.Name)
	}
	if p.FailOpen && !x.Bridged {
		add(true, p.Name, fmt.Sprintf("access port %s is `fail: open` and no port of a bridge: without leafd, the kernel would route what hosts send, into the underlay too", p.Name),
			"remove `fail: open`, or ip link set dev %s master BRIDGE", p.Name)
	}
}

// bondFix returns the commands that take members out of a bond.
func bondFix(bond string, members []string) string {
	if len(members) == 0 {
		return fmt.Sprintf("`ip link show master %s` names them", bond)
	}
	commands := make([]string, len(members))
	for i, m := range members {
		commands[i] = fmt.Sprintf("ip link set dev %s nomaster", m)
	}
	return strings.Join(commands, "; ")
}

// speedFix says what to do about a link of unknown speed.
const speedFix = "give the port a link_rate, as in link_rate: 10Gbit"

func checkPort(c *dataplane.Config, o *config.Leaf, p *dataplane.PortConfig, f *Facts, add addFinding) {
	x, ok := f.Ports[p.Name]
	if !ok {
		if p.Optional {
			fix := ""
			if near := yamlfile.Nearest(p.Name, f.State.names()); near != "" {
				fix = "did you mean " + near + "? Otherwise "
			}
			add(false, p.Name, fmt.Sprintf("interface %s does not exist: the port opens when it appears", p.Name),
				fix+"make the interface, or see `ip link` for those that exist; with `required: true` the node does not start without it")
			return
		}
		add(true, p.Name, fmt.Sprintf("interface %s does not exist", p.Name), "see `ip link` for those that do")
		return
	}
	if !checkInterface(c, o, p, &x, add) {
		return
	}
	if rate, _ := p.Egress.Speed(x.Speed); rate == 0 && x.Up && p.Kind != dataplane.Access {
		add(false, p.Name, fmt.Sprintf("the speed of %s is unknown: its load is not metered, and CONGA and other schemes that look at it are blind there", p.Name), speedFix)
	}
	if x.XDP != 0 {
		add(true, p.Name, fmt.Sprintf("interface %s already carries XDP program %d", p.Name, x.XDP),
			"stop the other daemon that uses the interface (`bpftool prog show id %d` names the program), or ip link set dev %s xdp off", x.XDP, p.Name)
	}
}

// checkInterface looks for what an interface cannot do. False: it cannot be a port.
func checkInterface(c *dataplane.Config, o *config.Leaf, p *dataplane.PortConfig, x *PortFacts, add addFinding) bool {
	if x.Bond {
		add(true, p.Name, fmt.Sprintf("interface %s is a bond: AF_XDP needs the queues of its members", p.Name),
			"list the members as ports, each taken out of the bond: %s", bondFix(p.Name, x.Members))
		return false
	}
	if most := dataplane.MaxMTU(c.FrameSize()); x.MTU > most {
		add(true, p.Name, fmt.Sprintf("interface %s has MTU %d, and a packet buffer holds %d", p.Name, x.MTU, most),
			"ip link set dev %s mtu %d", p.Name, most)
	}
	if problem, fix := c.WrongQueues(p.Name, x.RXQueues, x.TXQueues); problem != "" {
		add(true, p.Name, problem, "%s", fix)
	}
	if o != nil && p.Kind == dataplane.Access {
		in := o.Networks(p.Name)
		if problem, fatal := in.WithoutTags(p.Name, x.TagsHidden); problem != "" {
			add(fatal, p.Name, problem, "%s", x.TagsFix)
		}
	}
	return true
}

// checkOverhead holds the MTUs of ports towards the fabric against what they need.
func checkOverhead(c *dataplane.Config, f *Facts, add addFinding) {
	need, asks := neededMTU(c.Role, c.Ports, c.Overhead(), func(i int) int { return f.Ports[c.Ports[i].Name].MTU })
	shim := ""
	for _, name := range schemesOf(c) {
		if balance.Find(name).Shim {
			shim = " with the shim of " + name
			break
		}
	}
	for _, p := range c.Ports {
		x, ok := f.Ports[p.Name]
		switch {
		case !ok || x.MTU >= need:
		case p.Kind == dataplane.Uplink:
			add(!c.KernelOverlay, p.Name, fmt.Sprintf("uplink %s has MTU %d, and needs %d for the %d of access port %s and %d bytes of VXLAN%s",
				p.Name, x.MTU, need, need-c.Overhead(), asks, c.Overhead(), shim), "ip link set dev %s mtu %d", p.Name, need)
		case p.Kind == dataplane.SpinePort:
			add(false, p.Name, fmt.Sprintf("port %s has MTU %d, and packets of %d may come in by port %s: those that are longer than %d are dropped",
				p.Name, x.MTU, need, asks, x.MTU), "ip link set dev %s mtu %d", p.Name, need)
		}
	}
}

// checkRoutes warns of peers that no frame can be sent to as things are. Routing
// daemons may still bring routes.
func checkRoutes(c *dataplane.Config, o *config.Leaf, f *Facts, add addFinding) {
	b := NewBuilder(c.Role, c.Ports)
	t := b.Build(&f.State, o, time.Time{})
	for _, k := range slices.SortedFunc(maps.Keys(b.strays), stray.compare) {
		problem, fix := k.problem(b.strays[k])
		add(false, k.name, problem, "%s", fix)
	}
	for _, p := range t.Peers {
		if p.VTEP.IsValid() && len(p.Hops) == 0 {
			add(false, "peers", fmt.Sprintf("no route leads to peer %v by way of an uplink that is up", p.VTEP),
				"see `ip route get %v` and `ip link`; add the route, or wait for the routing daemon that does", p.VTEP)
		}
	}
}

// vtepFix gives the machine the address of a VTEP.
func vtepFix(vtep netip.Addr) string {
	return fmt.Sprintf("ip addr add %v/%d dev lo", vtep, vtep.BitLen())
}
