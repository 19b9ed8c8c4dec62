package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
)

const (
	frrPrograms = "/usr/lib/frr" // where Debian's and FRR's own packages put the daemons
	frrUser     = "frr"          // whom they become
	// netlinkBuffer holds the events of a burst: with the kernel's default FRR loses
	// addresses of 20,000 at once, and does not notice.
	netlinkBuffer = "90000000"
	// routesWait is how long routes and flood lists may take to be right.
	routesWait = 60 * time.Second
)

// The autonomous systems: one for all spines, and of each leaf its own (RFC 7938
// §5.2.1). Under OSPF and IS-IS all are in the spines'.
const (
	spineAS = 65000
	leafAS  = 65001
)

//go:embed frr.conf.tmpl
var frrTemplate string

var frrConf = template.Must(template.New("frr.conf").Parse(frrTemplate))

// frrNode is what the template needs to know of a node.
type frrNode struct {
	Name       string
	ID         netip.Addr // the address on lo, and the router ID
	NET        string     // IS-IS's name of the node
	AS         int
	Routing    string
	Leaf       bool
	BFD        int64 // milliseconds; 0: none
	EVPN       bool
	BGP        bool     // whether bgpd runs
	Internal   bool     // BGP carries EVPN only, between addresses that another protocol routes to
	Ports      []port   // towards the other tier
	Neighbours []string // of BGP, as FRR names them
}

func (l *Lab) frr() bool { return l.File.Control == fabric.ControlFRR }

// frrDir is the folder of a node's FRR: sockets, pid files, configuration, logs.
func (l *Lab) frrDir(node string) string { return l.path(node + ".frr") }

// checkFRR reports what FRR lacks on this machine.
func checkFRR() error {
	const remedy = "install FRR, for instance by `apt-get install frr`, or use control: static"
	for _, p := range []string{"zebra", "bgpd", "ospfd", "isisd", "bfdd"} {
		if _, err := os.Stat(filepath.Join(frrPrograms, p)); err != nil {
			return fmt.Errorf("control frr: %w: %s", err, remedy)
		}
	}
	if _, err := exec.LookPath("vtysh"); err != nil {
		return fmt.Errorf("control frr: %w: %s", err, remedy)
	}
	if _, err := user.Lookup(frrUser); err != nil {
		return fmt.Errorf("control frr: %w: %s", err, remedy)
	}
	return nil
}

// loopback is a node's address on lo: a leaf's VTEP.
func loopback(n fabric.Node) netip.Addr {
	if isLeaf(n) {
		return n.VTEP
	}
	return netip.AddrFrom4([4]byte{10, 253, 0, byte(n.Index + 1)})
}

// frrNode describes a node to the template.
func (l *Lab) frrNode(n fabric.Node) frrNode {
	f := l.File.FRR
	c := frrNode{
		Name: n.Name, ID: loopback(n), Routing: f.Routing, Leaf: isLeaf(n), BFD: f.BFD.Milliseconds(), EVPN: f.EVPN,
		AS: spineAS, Ports: l.ports(n),
	}
	b := c.ID.As4()
	digits := fmt.Sprintf("%03d%03d%03d%03d", b[0], b[1], b[2], b[3])
	c.NET = fmt.Sprintf("49.0001.%s.%s.%s.00", digits[:4], digits[4:8], digits[8:])
	eBGP := f.Routing == fabric.RoutingUnnumbered || f.Routing == fabric.RoutingBGP
	c.BGP, c.Internal = eBGP || f.EVPN, !eBGP
	switch {
	case !eBGP:
		others := l.Topo.Spines // which reflect
		if !c.Leaf {
			others = l.Topo.Leaves
		}
		for _, o := range others {
			c.Neighbours = append(c.Neighbours, loopback(o).String())
		}
	default:
		if c.Leaf {
			c.AS = leafAS + n.Index
		}
		for _, p := range c.Ports {
			if f.Routing == fabric.RoutingUnnumbered {
				c.Neighbours = append(c.Neighbours, p.Name+" interface")
			} else {
				c.Neighbours = append(c.Neighbours, p.gateway.String())
			}
		}
	}
	return c
}

// frrDaemons lists the daemons of every node, zebra first.
func (l *Lab) frrDaemons() []string {
	out, f := []string{"zebra"}, l.File.FRR
	if f.BFD > 0 {
		out = append(out, "bfdd")
	}
	switch f.Routing {
	case fabric.RoutingOSPF:
		out = append(out, "ospfd")
	case fabric.RoutingISIS:
		out = append(out, "isisd")
	}
	if c := l.frrNode(l.Topo.Leaves[0]); c.BGP {
		out = append(out, "bgpd")
	}
	return out
}

// startFRR writes the configuration of each node and starts its daemons.
func (l *Lab) startFRR(ctx context.Context) error {
	if !l.frr() {
		return nil
	}
	for _, n := range l.nodes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.writeFRR(n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if err := l.startRouting(n.Name, l.frrDaemons()); err != nil {
			return err
		}
	}
	return nil
}

// writeFRR makes a node's folder, which belongs to the user that the daemons become.
func (l *Lab) writeFRR(n fabric.Node) error {
	u, err := user.Lookup(frrUser)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := frrConf.Execute(&text, l.frrNode(n)); err != nil {
		return err
	}
	dir := l.frrDir(n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A daemon reads the empty file: in the whole one it would stumble over the blocks of
	// others. It gets its own part from vtysh.
	for name, b := range map[string][]byte{"empty.conf": nil, "frr.conf": text.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o640); err != nil {
			return err
		}
		if err := os.Chown(filepath.Join(dir, name), uid, gid); err != nil {
			return err
		}
	}
	return os.Chown(dir, uid, gid)
}

// StartRouting starts FRR's daemons of a node that is up, with the configuration that
// they had: bgpd again after a test has killed it, for instance.
func (l *Lab) StartRouting(node string, daemons ...string) (err error) {
	defer l.name(&err)
	return l.startRouting(node, daemons)
}

func (l *Lab) startRouting(node string, daemons []string) error {
	dir := l.frrDir(node)
	for _, d := range daemons {
		args := []string{
			"-A", "127.0.0.1", "-P", "0", "-z", filepath.Join(dir, "zserv.api"), "--vty_socket", dir,
			"-i", filepath.Join(dir, d+".pid"), "-f", filepath.Join(dir, "empty.conf"),
			"--log", "file:" + filepath.Join(dir, d+".log"), "--log-level", "informational",
		}
		switch d {
		case "zebra":
			args = append(args, "-s", netlinkBuffer)
		case "bfdd":
			args = append(args, "--bfdctl", filepath.Join(dir, "bfdd.sock"))
		}
		// A daemon that was killed has left its socket.
		if err := os.Remove(filepath.Join(dir, d+".vty")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		log, err := os.OpenFile(filepath.Join(dir, "start.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		cmd := exec.Command(filepath.Join(frrPrograms, d), args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err = l.startIn(node, filepath.Join(dir, "start.log"), cmd)
		log.Close() // the child has its own descriptor
		if err != nil {
			return err
		}
		// The next one connects to zebra, and vtysh to each.
		if err := waitFile(filepath.Join(dir, d+".vty"), l.children[len(l.children)-1]); err != nil {
			return fmt.Errorf("%s of %s does not start: %w", d, node, err)
		}
	}
	for _, d := range daemons {
		out, err := exec.Command("vtysh", "--vty_socket", dir, "-d", d, "-f", filepath.Join(dir, "frr.conf")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("configure %s of %s: %w: %s", d, node, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// waitFile waits for a file that a daemon makes.
func waitFile(path string, by *child) error {
	for deadline := time.Now().Add(readyWait); ; time.Sleep(5 * time.Millisecond) {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		if by.ended() {
			return by.death()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// VTYSH replaces this process with FRR's shell of a leaf or spine. It returns only on
// failure.
func (l *Lab) VTYSH(node string, args []string) (err error) {
	defer l.name(&err)
	if !l.frr() {
		return errors.New("control is static: there is no FRR whose shell it could be")
	}
	if !slices.ContainsFunc(l.nodes(), func(n fabric.Node) bool { return n.Name == node }) {
		return fmt.Errorf("neither a leaf nor a spine is called %q", node)
	}
	return l.Exec(node, append([]string{"vtysh", "--vty_socket", l.frrDir(node)}, args...))
}

// awaitRoutes waits until FRR has given every node the routes that follow from the
// links' state.
func (l *Lab) awaitRoutes(ctx context.Context) error {
	up, err := l.linkState()
	if err != nil {
		return err
	}
	all := l.Topo.Routes(up)
	routes := slices.Concat(all.Leaves, all.Spines)
	since := time.Now()
	return l.await(ctx, "routes", func() error {
		for i, n := range l.nodes() {
			err := l.in(n.Name, func() error { return l.checkRoutes(routes[i]) })
			if err == nil {
				continue
			}
			if time.Since(since) > patience {
				since = time.Now()
				return errors.Join(err, l.clearBGP(n.Name))
			}
			return err
		}
		return nil
	})
}

// patience is how long FRR may take on a busy machine before its sessions are made anew.
// Now and then zebra 8.4.4 believes a next hop to be in the kernel that is not.
const patience = 20 * time.Second

func (l *Lab) clearBGP(node string) error {
	if c := l.frrNode(l.Topo.Leaves[0]); !c.BGP || c.Internal {
		return nil
	}
	out, err := exec.Command("vtysh", "--vty_socket", l.frrDir(node), "-c", "clear bgp *").CombinedOutput()
	if err != nil {
		return fmt.Errorf("clear BGP: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// await calls ok until it returns nil.
func (l *Lab) await(ctx context.Context, what string, ok func() error) error {
	for deadline := time.Now().Add(routesWait); ; {
		err := ok()
		if err == nil {
			return nil
		}
		if dead := l.deadDaemon(); dead != nil {
			return dead
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s are not right after %v: %w", what, routesWait, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kernelRoutes returns the ports of the calling thread's namespace that lead to each
// address with a route of its own, in ascending order.
func kernelRoutes() (map[netip.Addr][]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	out := map[netip.Addr][]string{}
	for _, r := range routes {
		dst, ok := netip.Addr{}, false
		if r.Dst != nil {
			dst, ok = netip.AddrFromSlice(r.Dst.IP.To4())
		}
		if ones, _ := r.Dst.Mask.Size(); !ok || ones != 32 {
			continue
		}
		ports := []string{}
		for _, h := range r.MultiPath {
			if h.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
				ports = append(ports, names[h.LinkIndex])
			}
		}
		if len(r.MultiPath) == 0 {
			ports = append(ports, names[r.LinkIndex])
		}
		slices.Sort(ports)
		out[dst] = ports
	}
	return out, nil
}

// checkRoutes compares the routes of the calling thread's namespace with those that it
// should have: each VTEP by exactly these links. Where there is none, BGP has none
// either. OSPF and IS-IS may know a way through another leaf.
func (l *Lab) checkRoutes(want []fabric.Route) error {
	have, err := kernelRoutes()
	if err != nil {
		return err
	}
	igp := l.File.FRR.Routing == fabric.RoutingOSPF || l.File.FRR.Routing == fabric.RoutingISIS
	for _, leaf := range l.Topo.Leaves {
		var ports []string
		if i := slices.IndexFunc(want, func(r fabric.Route) bool { return r.Dst == leaf.VTEP }); i >= 0 {
			for _, h := range want[i].Hops {
				ports = append(ports, h.Port)
			}
		}
		if ports == nil && igp {
			continue
		}
		slices.Sort(ports)
		if got := have[leaf.VTEP]; !slices.Equal(got, ports) {
			return fmt.Errorf("%s by [%s], want [%s]", leaf.VTEP, strings.Join(got, " "), strings.Join(ports, " "))
		}
	}
	return nil
}
