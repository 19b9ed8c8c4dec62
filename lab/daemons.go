package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

const (
	// labRing is long enough for a burst at a lab's rates, and leaves a few MiB of
	// frames for each daemon of a whole fabric.
	labRing   = 1024
	labSpare  = 1 // ports that may come while a daemon runs
	readyWait = 15 * time.Second
)

// startDataplane starts the daemons, or the kernel's data plane, and waits until it
// is ready.
func (l *Lab) startDataplane(ctx context.Context) error {
	for _, n := range l.Topo.Leaves {
		if l.File.KernelLeaf(n.Name) || l.kernelBeside() {
			if err := l.kernelLeaf(n); err != nil {
				return err
			}
		}
	}
	for _, n := range slices.Backward(l.withDaemon()) { // spines first
		if err := l.startDaemon(n); err != nil {
			return err
		}
	}
	return l.waitReady(ctx)
}

// kernelBeside reports whether the kernel has bridges and vxlan devices beside a leaf's
// daemon.
func (l *Lab) kernelBeside() bool { return l.File.Fallback == "kernel" || l.File.FRR.EVPN }

// withDaemon lists the nodes that have a leafd or spined.
func (l *Lab) withDaemon() (out []fabric.Node) {
	for _, n := range l.nodes() {
		if !l.kernel() && !l.File.KernelLeaf(n.Name) {
			out = append(out, n)
		}
	}
	return out
}

// startDaemon writes a node's configuration and starts its daemon.
func (l *Lab) startDaemon(n fabric.Node) error {
	program, conf := "spined", any(l.spineConfig(n))
	if isLeaf(n) {
		program, conf = "leafd", l.leafConfig(n)
	}
	path, err := l.binary(program)
	if err != nil {
		return err
	}
	keys := yamlfile.Map(conf)
	if isLeaf(n) && l.File.Overlay == "kernel" {
		keys = l.kernelOverlay(keys)
	}
	text, err := yaml.Marshal(keys)
	if err != nil {
		return fmt.Errorf("configuration of %s: %w", n.Name, err)
	}
	if err := os.WriteFile(l.path(n.Name+".yaml"), text, 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(l.path(n.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(path, "run", "-c", l.path(n.Name+".yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the terminal, as after `up`
	if err := l.startIn(n.Name, l.path(n.Name+".log"), cmd); err != nil {
		return err
	}
	return os.WriteFile(fabric.ProcessFile(l.File.Name, n.Name), fmt.Appendf(nil, "{\"pid\":%d}\n", cmd.Process.Pid), 0o644)
}

// StartDaemon starts the leafd or spined of a node again that is up, after a test has
// ended it, with the configuration that it had.
func (l *Lab) StartDaemon(node string) (err error) {
	defer l.name(&err)
	for _, n := range l.withDaemon() {
		if n.Name == node {
			return l.startDaemon(n)
		}
	}
	return fmt.Errorf("%q has no daemon", node)
}

// DaemonsHash returns a word that differs if leafd or spined does; "" if one is not
// to be found.
func (l *Lab) DaemonsHash() string {
	h := sha256.New()
	for _, name := range []string{"leafd", "spined"} {
		path, err := l.binary(name)
		if err != nil {
			return ""
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		h.Write(program)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// binary finds a daemon: beside loomlab, else on $PATH.
func (l *Lab) binary(name string) (string, error) {
	dir := l.Binaries
	if dir == "" {
		if self, err := os.Executable(); err == nil {
			dir = filepath.Dir(self)
		}
	}
	path := filepath.Join(dir, name)
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s nor on $PATH: build it (`make build`), or use dataplane: kernel", name, dir)
	}
	return path, nil
}

func (l *Lab) common(node string) config.Common {
	return config.Common{
		Name:      node,
		Telemetry: config.Telemetry{Listen: "unix:" + l.socket(node)},
		Admin:     config.Admin{Listen: "unix:" + fabric.AdminSocket(l.File.Name, node)},
		Polling:   config.Polling(dataplane.Interrupt), // many daemons share the cores
		RingSize:  labRing,
		// The same on all nodes: every hop meters its links.
		Congestion: l.File.Congestion,
	}
}

// fastPath returns the file's fast path as daemons know it.
func (l *Lab) fastPath() (f config.FastPath) {
	if err := f.UnmarshalText([]byte(cmp.Or(l.File.FastPath, "off"))); err != nil {
		panic(err) // the file has been validated
	}
	return f
}

func egressConfig(l vocab.Link) config.Egress {
	return config.Egress{Egress: l.Egress, Shaper: config.Shaper{Rate: l.Rate}}
}

// classes returns the traffic classes of a leaf. Those of VNIs that it has no host of
// would be refused there, and match nothing.
func (l *Lab) classes(leaf int) (out []vocab.Class) {
	vnis := append(l.Topo.VNIsOf(leaf), 0)
	for i, c := range l.File.Classes {
		if slices.Contains(vnis, c.Match.VNI) {
			c.Name = cmp.Or(c.Name, "class "+strconv.Itoa(i))
			out = append(out, c)
		}
	}
	return out
}

// leafConfig generates the configuration of a leafd.
func (l *Lab) leafConfig(n fabric.Node) *config.Leaf {
	c := &config.Leaf{
		Common: l.common(n.Name), VTEP: n.VTEP,
		Balancing: l.File.Balancing, Classes: l.classes(n.Index), Sections: l.File.Sections,
		FastPath: l.fastPath(),
	}
	for _, p := range l.ports(n) {
		c.Uplinks = append(c.Uplinks, config.Uplink{Interface: p.Name, Egress: egressConfig(p.egress)})
	}
	for _, h := range l.members(n.Index) {
		a := config.Access{Interface: h.Port, Egress: egressConfig(h.Access)}
		if l.kernelBeside() {
			a.Fail = config.FailOpen // there is a bridge that takes over
		}
		if h.VLAN == 0 {
			a.VNI = h.VNI
		} else {
			a.VLANs = map[uint16]uint32{h.VLAN: h.VNI}
		}
		c.Access = append(c.Access, a)
	}
	for _, other := range l.Topo.Leaves {
		if other.Index != n.Index {
			c.Peers = append(c.Peers, other.VTEP)
		}
	}
	for _, vni := range l.Topo.VNIsOf(n.Index) {
		// Empty means nobody; none would mean all peers.
		c.VNIs = append(c.VNIs, config.VNI{VNI: vni, Flood: append([]netip.Addr{}, l.others(n.Index, vni)...)})
	}
	c.MaxPorts = min(len(c.Uplinks)+len(c.Access)+labSpare, dataplane.MaxPorts)
	return c
}

// kernelOverlay is the configuration of a leafd that follows the kernel's bridges: without
// what it finds there. Uplinks are listed where there is more to say than their names.
func (l *Lab) kernelOverlay(keys yaml.MapSlice) (out yaml.MapSlice) {
	out = yaml.MapSlice{{Key: "overlay", Value: "kernel"}}
	shaped := slices.ContainsFunc(l.Topo.Links, func(k fabric.Link) bool { return k.Up.Rate > 0 || k.Up.Delay > 0 || k.Up.ECN.Kmax > 0 })
	for _, item := range keys {
		if item.Key == "uplinks" && !shaped {
			item.Value = "auto"
		}
		if !slices.Contains([]any{"vtep", "access", "vnis", "peers", "max_ports"}, item.Key) {
			out = append(out, item)
		}
	}
	return out
}

// spineConfig generates the configuration of a spined.
func (l *Lab) spineConfig(n fabric.Node) *config.Spine {
	c := &config.Spine{Common: l.common(n.Name), FastPath: l.fastPath()}
	for _, leaf := range l.Topo.Leaves {
		c.VTEPs = append(c.VTEPs, config.Prefix{Prefix: netip.PrefixFrom(leaf.VTEP, leaf.VTEP.BitLen())})
	}
	for _, p := range l.ports(n) {
		c.Ports = append(c.Ports, config.SpinePort{Interface: p.Name, Egress: egressConfig(p.egress)})
	}
	if s := balance.Find(l.File.Scheme); s != nil && s.EveryTier && !s.NeedsPeer {
		c.Scheme, c.Keys = l.File.Scheme, l.File.Keys
		if s.Section != nil {
			c.Sections = l.File.Sections.Only(s.Section.Name)
		}
	}
	c.MaxPorts = min(len(c.Ports)+labSpare, dataplane.MaxPorts)
	return c
}

// get reads a page of a daemon's telemetry over its unix socket.
func (l *Lab) get(ctx context.Context, node, path string) ([]byte, error) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", l.socket(node))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// waitReady waits until every daemon reports ready and the neighbours on the links
// are resolved.
func (l *Lab) waitReady(caller context.Context) error {
	wait := readyWait
	if l.frr() {
		wait = routesWait // until EVPN has the flood lists
	}
	ctx, cancel := context.WithTimeout(caller, wait)
	defer cancel()
	for {
		err := l.ready(ctx)
		if err == nil {
			return nil
		}
		if dead := l.deadDaemon(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			if caller.Err() != nil { // it has had enough, by its own deadline perhaps
				return caller.Err()
			}
			return fmt.Errorf("not ready after %v: %w", wait, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ready returns an error for the first node that is not ready yet.
func (l *Lab) ready(ctx context.Context) error {
	if err := l.resolveNeighbours(); err != nil {
		return err
	}
	if err := l.floodLists(); err != nil {
		return err
	}
	for _, n := range l.withDaemon() {
		if _, err := l.get(ctx, n.Name, "/readyz"); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// resolveNeighbours makes the kernel resolve the gateways of all links that are up,
// as the first packet would. It returns an error while one is not resolved.
func (l *Lab) resolveNeighbours() error {
	if l.File.Unnumbered() {
		return nil // zebra has taken the neighbours' addresses from their advertisements
	}
	up, err := l.linkState()
	if err != nil {
		return err
	}
	for _, n := range l.nodes() {
		err := l.in(n.Name, func() error {
			for _, p := range l.ports(n) {
				if up[p.link] {
					if err := withLink(p.Name, "resolve "+p.gateway.String(), p.resolve); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resolve makes the kernel resolve a port's gateway.
func (p port) resolve(link netlink.Link) error {
	index, gw := link.Attrs().Index, net.IP(p.gateway.AsSlice())
	family := netlink.FAMILY_V4
	if p.gateway.Is6() {
		family = netlink.FAMILY_V6
	}
	have, err := netlink.NeighList(index, family)
	if err != nil {
		return err
	}
	const resolved = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	if slices.ContainsFunc(have, func(n netlink.Neigh) bool { return n.IP.Equal(gw) && n.State&resolved != 0 }) {
		return nil
	}
	// NTF_USE: behave as if a packet were to be sent there.
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: index, Family: family, Flags: netlink.NTF_USE, IP: gw}); err != nil {
		return err
	}
	return errors.New("is not resolved")
}

// daemonStats has those parts of /debug/stats that the lab reports.
type daemonStats struct {
	dataplane.Stats
	Drops map[string]uint64 `json:"drops"` // by reason
}

// stats reads a daemon's counters.
func (l *Lab) stats(ctx context.Context, node string) (s daemonStats, err error) {
	body, err := l.get(ctx, node, "/debug/stats")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return s, fmt.Errorf("statistics of %s: %w", node, err)
	}
	return s, nil
}

// lastLog returns the end of a log, for errors.
func lastLog(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "no log"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
