package config

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

const (
	maxVNI  = 1<<24 - 1
	maxVLAN = 4094
	minRing = 64
	maxRing = 16384
	maxName = 15 // IFNAMSIZ less the terminator
)

// validate checks what leaves and spines have in common.
func (c *Common) validate(d *document) {
	if !slices.Contains(logLevels, c.Log.Level) {
		d.add("log.level", fmt.Sprintf("log level %q does not exist", c.Log.Level), "use "+orList(logLevels))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		d.add("log.format", fmt.Sprintf("log format %q does not exist", c.Log.Format), "use text or json")
	}
	c.Telemetry.validate(d)
	c.Admin.validate(d, c.Telemetry.Listen)
	c.Congestion.validate(d)
	if c.VXLANPort == 0 {
		d.add("vxlan_port", "UDP port 0 does not exist", "use 4789, or leave it out")
	}
	if c.Workers < 1 || c.Workers > 256 {
		d.add("workers", fmt.Sprintf("%d workers", c.Workers), "use 1 to 256, at most one for each core")
	}
	switch n := len(c.Cores); {
	case n > 0 && n != c.Workers:
		d.add("cores", fmt.Sprintf("%d cores for %d workers", n, c.Workers), "list one core for each worker")
	case n > 0:
		c.validateCores(d)
	}
	if c.RingSize < minRing || c.RingSize > maxRing || c.RingSize&(c.RingSize-1) != 0 {
		d.add("ring_size", fmt.Sprintf("ring size %d is not a power of two from %d to %d", c.RingSize, minRing, maxRing),
			"use 2048, or leave it out")
	}
	if c.Frames < 0 || c.Frames > 0 && c.Frames < 4*c.RingSize {
		d.add("frames", fmt.Sprintf("%d frames cannot fill rings of %d", c.Frames, c.RingSize),
			fmt.Sprintf("use at least %d, or leave it out", 4*c.RingSize))
	}
	if c.HoldTime == 0 || time.Duration(c.HoldTime) > time.Minute {
		d.add("hold_time", fmt.Sprintf("hold time %v", c.HoldTime), "use 1ms to 1m")
	}
	if time.Duration(c.Drain) > time.Minute {
		d.add("drain", fmt.Sprintf("drain time %v", c.Drain), "use at most 1m; systemd kills what takes longer than TimeoutStopSec")
	}
}

func (c *Common) validateCores(d *document) {
	seen := make(map[int]bool)
	for i, core := range c.Cores {
		at := "cores[" + strconv.Itoa(i) + "]"
		if core < 0 || core >= 1024 {
			d.add(at, fmt.Sprintf("core %d does not exist", core), fmt.Sprintf("use 0 to %d", runtime.NumCPU()-1))
		} else if seen[core] {
			d.add(at, fmt.Sprintf("core %d is listed twice", core), "give each worker a core of its own")
		}
		seen[core] = true
	}
}

// Off reports whether metrics and health are not served at all.
func (t Telemetry) Off() bool { return t.Listen == "" || t.Listen == "off" }

// Address is the network and the address to listen at, as net.Listen takes
// them; both are empty when Off.
func (t Telemetry) Address() (network, address string) {
	if t.Off() {
		return "", ""
	}
	if path, ok := strings.CutPrefix(t.Listen, "unix:"); ok {
		return "unix", path
	}
	return "tcp", t.Listen
}

func (t Telemetry) validate(d *document) {
	const fix = "use HOST:PORT, unix:/path/of/a/socket or off"
	switch network, address := t.Address(); network {
	case "unix":
		if !strings.HasPrefix(address, "/") || len(address) > 107 {
			d.add("telemetry.listen", fmt.Sprintf("unix socket %q is not an absolute path of at most 107 bytes", address), fix)
		}
	case "tcp":
		_, port, err := net.SplitHostPort(address)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 {
			d.add("telemetry.listen", fmt.Sprintf("%q is not an address to listen at", address), fix)
		}
	}
}

// Off reports whether the admin API is not served.
func (a Admin) Off() bool { return a.Listen == "" || a.Listen == "off" }

func (a Admin) validate(d *document, metrics string) {
	path, unix := strings.CutPrefix(a.Listen, "unix:")
	switch {
	case a.Off():
	case !unix:
		d.add("admin.listen", fmt.Sprintf("%q is not a unix socket", a.Listen), "use unix:/path/of/a/socket or off: the API has no authentication but the socket's owner and group")
	case !strings.HasPrefix(path, "/") || len(path) > 107:
		d.add("admin.listen", fmt.Sprintf("unix socket %q is not an absolute path of at most 107 bytes", path), "use unix:/path/of/a/socket or off")
	case a.Listen == metrics:
		d.add("admin.listen", "metrics are served there already", "give each a socket of its own")
	}
}

func (e *Egress) validate(d *document, at string) {
	if d.has(at+".queue") && (e.Queue < 2048 || e.Queue > 1<<30) {
		d.add(at+".queue", fmt.Sprintf("a queue of %v", e.Queue), "use 2KiB to 1GiB, or leave it out")
	}
	if e.Shaper.Rate == 0 && e.Shaper.Burst > 0 {
		d.add(at+".shaper", "a shaper without a rate", "add rate, as in rate: 1Gbit")
	}
	if e.Shaper.Rate > 0 && d.has(at+".shaper.burst") && (e.Shaper.Burst < 2048 || e.Shaper.Burst > 1<<30) {
		d.add(at+".shaper.burst", fmt.Sprintf("burst %v", e.Shaper.Burst), "use 2KiB (more than one frame) to 1GiB, or leave it out")
	}
	if e.Shaper.Rate > 0 && e.LinkRate > 0 && e.Shaper.Rate > e.LinkRate {
		d.add(at+".shaper.rate", fmt.Sprintf("the shaper's %v is above the link's %v", e.Shaper.Rate, e.LinkRate), "lower it, or leave the shaper out")
	}
	if time.Duration(e.Delay) > 10*time.Second {
		d.add(at+".delay", fmt.Sprintf("a delay of %v", e.Delay), "use at most 10s")
	}
	c := e.ECN
	switch {
	case c.Kmax == 0 && (c.Kmin > 0 || c.Pmax != 0):
		d.add(at+".ecn", "ECN marking without kmax", "add kmax, as in kmax: 400KB")
	case c.Kmin > c.Kmax:
		d.add(at+".ecn.kmin", fmt.Sprintf("kmin %v is above kmax %v", c.Kmin, c.Kmax), "marking starts at kmin and is certain from kmax: lower kmin")
	case c.Kmax > 1<<30:
		d.add(at+".ecn.kmax", fmt.Sprintf("kmax %v is above any queue", c.Kmax), "use less than the queue's limit")
	}
	if d.has(at+".ecn.pmax") && !(c.Pmax > 0 && c.Pmax <= 1) {
		d.add(at+".ecn.pmax", fmt.Sprintf("pmax %v is outside (0, 1]", c.Pmax), "pmax is a probability, as in 0.2")
	}
}

// has reports whether the file gives the value itself.
func (d *document) has(path string) bool { return d.at[path] != nil }

// ports checks a node's interfaces: that they are named, exist, and are used
// once. The paths of all ports seen so far are in seen, by name.
type ports struct {
	exist []string // nil: unknown
	seen  map[string]string
}

func (p *ports) validate(d *document, at, name string) {
	switch first, dup := p.seen[name]; {
	case name == "":
		d.add(at, "a port without an interface", "add interface, as in interface: eth1")
		return
	case len(name) > maxName || strings.ContainsAny(name, "/ \t"):
		d.add(at+".interface", fmt.Sprintf("%q cannot be an interface's name", name), "names have at most 15 characters, none of them a space or a slash")
		return
	case dup:
		d.add(at+".interface", fmt.Sprintf("interface %s is already used on line %d", name, d.line(first)),
			"an interface is one port: remove one of the two")
		return
	case p.exist != nil && !slices.Contains(p.exist, name):
		fix := "see `ip link` for those that do"
		if near := nearest(name, p.exist); near != "" {
			fix = fmt.Sprintf("did you mean %s? `ip link` shows those that do", near)
		}
		d.add(at+".interface", fmt.Sprintf("interface %s does not exist", name), fix)
	}
	p.seen[name] = at + ".interface"
}

// validateVTEP checks that an address can be a VTEP of an IPv4 underlay.
func (d *document) validateVTEP(at string, a netip.Addr) bool {
	if !a.Is4() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		d.add(at, fmt.Sprintf("%v cannot be a VTEP", a), "use a unicast IPv4 address, as in 10.255.0.1")
		return false
	}
	return true
}

func (s *Spine) validate(d *document, interfaces []string) {
	s.Common.validate(d)
	if len(s.VTEPs) == 0 {
		d.add("vteps", "a spine that forwards to nobody", "list the leaves' VTEPs, as in vteps: [10.255.0.0/24]")
	}
	for i, p := range s.VTEPs {
		at := "vteps[" + strconv.Itoa(i) + "]"
		if !p.Addr().Is4() || p.Bits() == 0 {
			d.add(at, fmt.Sprintf("%v cannot be a prefix of VTEPs", p.Prefix), "use an IPv4 prefix, as in 10.255.0.0/24")
			continue
		}
		if p.Masked() != p.Prefix {
			d.add(at, fmt.Sprintf("%v has host bits set", p.Prefix), fmt.Sprintf("write %v", p.Masked()))
			continue
		}
		for j, q := range s.VTEPs[:i] {
			if p.Overlaps(q.Prefix) {
				d.add(at, fmt.Sprintf("%v overlaps %v on line %d", p.Prefix, q.Prefix, d.line("vteps["+strconv.Itoa(j)+"]")), "remove the narrower one")
				break
			}
		}
	}
	if len(s.Ports) == 0 {
		d.add("ports", "a spine without ports", "list the ports towards the leaves, as in ports: [{interface: eth1}]")
	}
	if len(s.Ports) > dataplane.MaxPorts {
		d.add("ports", fmt.Sprintf("%d ports", len(s.Ports)), fmt.Sprintf("use at most %d", dataplane.MaxPorts))
	}
	p := ports{exist: interfaces, seen: make(map[string]string)}
	for i := range s.Ports {
		at := "ports[" + strconv.Itoa(i) + "]"
		p.validate(d, at, s.Ports[i].Interface)
		s.Ports[i].Egress.validate(d, at)
	}
}
