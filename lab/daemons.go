package lab

import (
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
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/namespace"
	"github.com/loomfabric/loom/internal/yamlfile"
)

const (
	// labRing is long enough for a burst at a lab's rates, and leaves a few MiB of
	// frames for each daemon of a whole fabric.
	labRing   = 1024
	readyWait = 15 * time.Second
)

// child is a process that this loomlab started and will reap.
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
}

// startIn starts a program in a node's namespace.
func (l *Lab) startIn(node string, cmd *exec.Cmd) (*child, error) {
	// The child inherits the namespace of the thread that forks it.
	if err := namespace.Do(l.ns(node), cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", filepath.Base(cmd.Path), node, err)
	}
	c := &child{name: node, cmd: cmd, done: make(chan struct{})}
	l.children = append(l.children, c)
	go func() {
		_ = cmd.Wait() // the exit status is in the log; alive reports the end
		close(c.done)
	}()
	return c, nil
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// startDataplane starts the daemons, or the kernel's data plane, and waits until it
// is ready.
func (l *Lab) startDataplane(ctx context.Context) error {
	if l.kernel() || l.File.Fallback == "kernel" {
		for _, n := range l.Topo.Leaves {
			if err := l.kernelLeaf(n); err != nil {
				return err
			}
		}
	}
	if !l.kernel() {
		for _, n := range l.Topo.Spines {
			if err := l.startDaemon("spined", n.Name, l.spineConfig(n)); err != nil {
				return err
			}
		}
		for _, n := range l.Topo.Leaves {
			if err := l.startDaemon("leafd", n.Name, l.leafConfig(n)); err != nil {
				return err
			}
		}
	}
	return l.waitReady(ctx)
}

// startDaemon writes a daemon's configuration and starts it in its node.
func (l *Lab) startDaemon(program, node string, conf any) error {
	path, err := l.binary(program)
	if err != nil {
		return err
	}
	text, err := yamlfile.Marshal(conf)
	if err != nil {
		return fmt.Errorf("configuration of %s: %w", node, err)
	}
	if err := os.WriteFile(l.path(node+".yaml"), text, 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(l.path(node+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(path, "run", "-c", l.path(node+".yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the terminal, as after `up`
	c, err := l.startIn(node, cmd)
	if err != nil {
		return err
	}
	return l.recordProc(node, c.cmd.Process.Pid)
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
		f, err := os.Open(path)
		if err != nil {
			return ""
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return ""
		}
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
		Admin:     config.Admin{Listen: "unix:" + l.path(node+".admin.sock")},
		Polling:   config.Polling(dataplane.Interrupt), // many daemons share the cores
		RingSize:  labRing,
		// The same on all nodes: every hop meters its links.
		Congestion: l.File.Congestion,
	}
}

func egressConfig(l vocab.Link) config.Egress {
	return config.Egress{Egress: l.Egress, Shaper: config.Shaper{Rate: l.Rate}}
}

// leafConfig generates the configuration of a leafd.
func (l *Lab) leafConfig(n fabric.Node) *config.Leaf {
	c := &config.Leaf{
		Common: l.common(n.Name), VTEP: n.VTEP,
		Balancing: l.File.Balancing, Classes: l.classes(n.Index), Sections: l.File.Sections,
	}
	for _, k := range l.Topo.Links {
		if k.Leaf == n.Index {
			c.Uplinks = append(c.Uplinks, config.Uplink{Interface: k.LeafPort, Egress: egressConfig(k.Up)})
		}
	}
	for _, h := range l.Topo.Hosts {
		if h.Leaf != n.Index {
			continue
		}
		a := config.Access{Interface: h.Port, Egress: egressConfig(h.Access)}
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
		flood := []netip.Addr{}
		for _, other := range l.Topo.Leaves {
			if other.Index != n.Index && slices.Contains(l.Topo.VNIsOf(other.Index), vni) {
				flood = append(flood, other.VTEP)
			}
		}
		c.VNIs = append(c.VNIs, config.VNI{VNI: vni, Flood: flood})
	}
	return c
}

// spineConfig generates the configuration of a spined.
func (l *Lab) spineConfig(n fabric.Node) *config.Spine {
	c := &config.Spine{Common: l.common(n.Name)}
	for _, leaf := range l.Topo.Leaves {
		c.VTEPs = append(c.VTEPs, config.Prefix{Prefix: netip.PrefixFrom(leaf.VTEP, 32)})
	}
	for _, k := range l.Topo.Links {
		if k.Spine == n.Index {
			c.Ports = append(c.Ports, config.SpinePort{Interface: k.SpinePort, Egress: egressConfig(k.Down)})
		}
	}
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
func (l *Lab) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
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
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not ready after %v: %w", readyWait, err)
			}
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deadDaemon returns an error for a child that has ended.
func (l *Lab) deadDaemon() error {
	for _, c := range l.children {
		if !c.alive() {
			return fmt.Errorf("the process in %s has ended: %s", c.name, l.lastLog(c.name))
		}
	}
	return nil
}

// ready returns an error for the first node that is not ready yet.
func (l *Lab) ready(ctx context.Context) error {
	if err := l.resolveNeighbours(); err != nil {
		return err
	}
	if l.kernel() {
		return nil
	}
	for _, n := range l.nodes() {
		if _, err := l.get(ctx, n.Name, "/readyz"); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

func (l *Lab) nodes() []fabric.Node { return slices.Concat(l.Topo.Leaves, l.Topo.Spines) }

// resolveNeighbours makes the kernel resolve the gateways of all links that are up,
// as the first packet would. It returns an error while one is not resolved.
func (l *Lab) resolveNeighbours() error {
	up, err := l.linkState()
	if err != nil {
		return err
	}
	for _, k := range l.Topo.Links {
		if !up[k.Index] {
			continue
		}
		if err := errors.Join(
			l.resolve(l.Topo.Leaves[k.Leaf], k.LeafPort, k.SpineAddr),
			l.resolve(l.Topo.Spines[k.Spine], k.SpinePort, k.LeafAddr)); err != nil {
			return err
		}
	}
	return nil
}

// resolve makes the kernel of a node resolve a gateway.
func (l *Lab) resolve(n fabric.Node, port string, gw netip.Addr) error {
	h, err := openNS(l.ns(n.Name))
	if err != nil {
		return err
	}
	defer h.Close()
	return h.resolve(port, gw)
}

func (h *handle) resolve(port string, gw netip.Addr) error {
	index, err := h.index(port)
	if err != nil {
		return err
	}
	have, err := h.NeighList(index, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("%s: neighbours on %s: %w", h.name, port, err)
	}
	const resolved = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	for _, n := range have {
		if n.IP.Equal(gw.AsSlice()) && n.State&resolved != 0 {
			return nil
		}
	}
	// NTF_USE: behave as if a packet were to be sent there.
	if err := h.NeighSet(&netlink.Neigh{LinkIndex: index, Family: netlink.FAMILY_V4, Flags: netlink.NTF_USE, IP: gw.AsSlice()}); err != nil {
		return fmt.Errorf("%s: ask for neighbour %s: %w", h.name, gw, err)
	}
	return fmt.Errorf("%s: neighbour %s on %s is not resolved", h.name, gw, port)
}

// stats reads a daemon's counters.
func (l *Lab) stats(ctx context.Context, node string) (*dataplane.Stats, error) {
	body, err := l.get(ctx, node, "/debug/stats")
	if err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node, err)
	}
	var s dataplane.Stats
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node, err)
	}
	return &s, nil
}

// lastLog returns the end of a node's log, for errors.
func (l *Lab) lastLog(node string) string {
	b, err := os.ReadFile(l.path(node + ".log"))
	if err != nil {
		return "no log"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
