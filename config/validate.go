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

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

const (
	maxVNI  = 1<<24 - 1
	maxVLAN = 4094
	minRing = 64
	maxRing = 16384
	maxName = 15 // IFNAMSIZ less the terminator
)

// validate checks what leaves and spines have in common.
func (c *Common) validate(d *yamlfile.Document) {
	if !slices.Contains(logLevels, c.Log.Level) {
		d.Add("log.level", fmt.Sprintf("log level %q does not exist", c.Log.Level), "use "+yamlfile.OrList(logLevels))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		d.Add("log.format", fmt.Sprintf("log format %q does not exist", c.Log.Format), "use text or json")
	}
	c.Telemetry.validate(d)
	c.Admin.validate(d, c.Telemetry.Listen)
	d.Report(c.Congestion.Resolve(profile))
	if c.VXLANPort == 0 {
		d.Add("vxlan_port", "UDP port 0 does not exist", "use 4789, or leave it out")
	}
	if c.Workers < 1 || c.Workers > 256 {
		d.Add("workers", fmt.Sprintf("%d workers", c.Workers), "use 1 to 256, at most one for each core")
	}
	switch n := len(c.Cores); {
	case n > 0 && n != c.Workers:
		d.Add("cores", fmt.Sprintf("%d cores for %d workers", n, c.Workers), "list one core for each worker")
	case n > 0:
		c.validateCores(d)
	}
	if c.RingSize < minRing || c.RingSize > maxRing || c.RingSize&(c.RingSize-1) != 0 {
		d.Add("ring_size", fmt.Sprintf("ring size %d is not a power of two from %d to %d", c.RingSize, minRing, maxRing),
			"use 2048, or leave it out")
	}
	if c.Frames < 0 || c.Frames > 0 && c.Frames < 4*c.RingSize {
		d.Add("frames", fmt.Sprintf("%d frames cannot fill rings of %d", c.Frames, c.RingSize),
			fmt.Sprintf("use at least %d, or leave it out", 4*c.RingSize))
	}
	if c.HoldTime == 0 || c.HoldTime > time.Minute {
		d.Add("hold_time", fmt.Sprintf("hold time %v", c.HoldTime), "use 1ms to 1m")
	}
	if c.Drain > time.Minute {
		d.Add("drain", fmt.Sprintf("drain time %v", c.Drain), "use at most 1m; systemd kills what takes longer than TimeoutStopSec")
	}
}

func (c *Common) validateCores(d *yamlfile.Document) {
	seen := make(map[int]bool)
	for i, core := range c.Cores {
		at := "cores[" + strconv.Itoa(i) + "]"
		if core < 0 || core >= 1024 {
			d.Add(at, fmt.Sprintf("core %d does not exist", core), fmt.Sprintf("use 0 to %d", runtime.NumCPU()-1))
		} else if seen[core] {
			d.Add(at, fmt.Sprintf("core %d is listed twice", core), "give each worker a core of its own")
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

func (t Telemetry) validate(d *yamlfile.Document) {
	const fix = "use HOST:PORT, unix:/path/of/a/socket or off"
	switch network, address := t.Address(); network {
	case "unix":
		if !strings.HasPrefix(address, "/") || len(address) > 107 {
			d.Add("telemetry.listen", fmt.Sprintf("unix socket %q is not an absolute path of at most 107 bytes", address), fix)
		}
	case "tcp":
		_, port, err := net.SplitHostPort(address)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 {
			d.Add("telemetry.listen", fmt.Sprintf("%q is not an address to listen at", address), fix)
		}
	}
}

// Off reports whether the admin API is not served.
func (a Admin) Off() bool { return a.Listen == "" || a.Listen == "off" }

func (a Admin) validate(d *yamlfile.Document, metrics string) {
	path, unix := strings.CutPrefix(a.Listen, "unix:")
	switch {
	case a.Off():
	case !unix:
		d.Add("admin.listen", fmt.Sprintf("%q is not a unix socket", a.Listen), "use unix:/path/of/a/socket or off: the API has no authentication but the socket's owner and group")
	case !strings.HasPrefix(path, "/") || len(path) > 107:
		d.Add("admin.listen", fmt.Sprintf("unix socket %q is not an absolute path of at most 107 bytes", path), "use unix:/path/of/a/socket or off")
	case a.Listen == metrics:
		d.Add("admin.listen", "metrics are served there already", "give each a socket of its own")
	}
}

func (e *Egress) validate(d *yamlfile.Document, at string) {
	if d.Has(at+".queue") && (e.Queue < 2048 || e.Queue > 1<<30) {
		d.Add(at+".queue", fmt.Sprintf("a queue of %v", e.Queue), "use 2KiB to 1GiB, or leave it out")
	}
	if e.Shaper.Rate == 0 && e.Shaper.Burst > 0 {
		d.Add(at+".shaper", "a shaper without a rate", "add rate, as in rate: 1Gbit")
	}
	if e.Shaper.Rate > 0 && d.Has(at+".shaper.burst") && (e.Shaper.Burst < 2048 || e.Shaper.Burst > 1<<30) {
		d.Add(at+".shaper.burst", fmt.Sprintf("burst %v", e.Shaper.Burst), "use 2KiB (more than one frame) to 1GiB, or leave it out")
	}
	if e.Shaper.Rate > 0 && e.LinkRate > 0 && e.Shaper.Rate > e.LinkRate {
		d.Add(at+".shaper.rate", fmt.Sprintf("the shaper's %v is above the link's %v", e.Shaper.Rate, e.LinkRate), "lower it, or leave the shaper out")
	}
	if e.Delay > 10*time.Second {
		d.Add(at+".delay", fmt.Sprintf("a delay of %v", e.Delay), "use at most 10s")
	}
	d.Report(e.ECN.Check(at + ".ecn"))
	if d.Has(at+".ecn.pmax") && e.ECN.Pmax == 0 {
		d.Add(at+".ecn.pmax", "pmax 0 is outside (0, 1]", "pmax is a probability, as in 0.2")
	}
}

// ports checks a node's interfaces: that they are named, exist, and are used
// once. The paths of all ports seen so far are in seen, by name.
type ports struct {
	exist []string // nil: unknown
	seen  map[string]string
}

func (p *ports) validate(d *yamlfile.Document, at, name string) {
	switch first, dup := p.seen[name]; {
	case name == "":
		d.Add(at, "a port without an interface", "add interface, as in interface: eth1")
		return
	case len(name) > maxName || strings.ContainsAny(name, "/ \t"):
		d.Add(at+".interface", fmt.Sprintf("%q cannot be an interface's name", name), "names have at most 15 characters, none of them a space or a slash")
		return
	case dup:
		d.Add(at+".interface", fmt.Sprintf("interface %s is already used on line %d", name, d.Line(first)),
			"an interface is one port: remove one of the two")
		return
	case p.exist != nil && !slices.Contains(p.exist, name):
		fix := "see `ip link` for those that do"
		if near := yamlfile.Nearest(name, p.exist); near != "" {
			fix = fmt.Sprintf("did you mean %s? `ip link` shows those that do", near)
		}
		d.Add(at+".interface", fmt.Sprintf("interface %s does not exist", name), fix)
	}
	p.seen[name] = at + ".interface"
}

// validateVTEP checks that an address can be a VTEP of an IPv4 underlay.
func validateVTEP(d *yamlfile.Document, at string, a netip.Addr) bool {
	if !a.Is4() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		d.Add(at, fmt.Sprintf("%v cannot be a VTEP", a), "use a unicast IPv4 address, as in 10.255.0.1")
		return false
	}
	return true
}

// validateScheme checks a spine's scheme, if it has one.
func (s *Spine) validateScheme(d *yamlfile.Document) {
	if s.Scheme == "" {
		for _, key := range s.ExtraKeys() {
			if d.Has(key) {
				d.Add(key, "it is for a scheme, and there is none", "add scheme, or remove it")
			}
		}
		return
	}
	b := vocab.Balancing{Scheme: s.Scheme, Keys: s.Keys}
	d.Report(b.Check("", 0))
	s.Keys = b.Keys
	if x := balance.Find(s.Scheme); x != nil && x.NeedsPeer {
		d.Add("scheme", "scheme "+s.Scheme+" needs an answer of the leaf at the far end", "use it on leaves; here use "+yamlfile.OrList(spineSchemes()))
	}
}

// spineSchemes returns the schemes that a spine can have.
func spineSchemes() (names []string) {
	for _, s := range balance.Schemes() {
		if !s.NeedsPeer {
			names = append(names, s.Name)
		}
	}
	return names
}

func (s *Spine) validate(d *yamlfile.Document, interfaces []string) {
	s.Common.validate(d)
	if len(s.VTEPs) == 0 {
		d.Add("vteps", "a spine that forwards to nobody", "list the leaves' VTEPs, as in vteps: [10.255.0.0/24]")
	}
	for i, p := range s.VTEPs {
		at := "vteps[" + strconv.Itoa(i) + "]"
		if !p.Addr().Is4() || p.Bits() == 0 {
			d.Add(at, fmt.Sprintf("%v cannot be a prefix of VTEPs", p.Prefix), "use an IPv4 prefix, as in 10.255.0.0/24")
			continue
		}
		if p.Masked() != p.Prefix {
			d.Add(at, fmt.Sprintf("%v has host bits set", p.Prefix), fmt.Sprintf("write %v", p.Masked()))
			continue
		}
		for j, q := range s.VTEPs[:i] {
			if p.Overlaps(q.Prefix) {
				d.Add(at, fmt.Sprintf("%v overlaps %v on line %d", p.Prefix, q.Prefix, d.Line("vteps["+strconv.Itoa(j)+"]")), "remove the narrower one")
				break
			}
		}
	}
	s.validateScheme(d)
	if len(s.Ports) == 0 {
		d.Add("ports", "a spine without ports", "list the ports towards the leaves, as in ports: [{interface: eth1}]")
	}
	if len(s.Ports) > dataplane.MaxPorts {
		d.Add("ports", fmt.Sprintf("%d ports", len(s.Ports)), fmt.Sprintf("use at most %d", dataplane.MaxPorts))
	}
	p := ports{exist: interfaces, seen: make(map[string]string)}
	for i := range s.Ports {
		at := "ports[" + strconv.Itoa(i) + "]"
		p.validate(d, at, s.Ports[i].Interface)
		s.Ports[i].Egress.validate(d, at)
	}
}
