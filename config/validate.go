package config

import (
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
	minRing = 256
	maxRing = 16384
	maxName = 15 // IFNAMSIZ less the terminator
)

// checker collects what is wrong with a file. It checks interfaces: that they are
// named, exist, and are used once.
type checker struct {
	*yamlfile.Document
	yamlfile.Errors
	interfaces []string          // of the machine; nil: unknown
	used       map[string]string // paths of the ports so far, by name
}

// item is the path of a list's i-th item.
func item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// common checks what leaves and spines have in common.
func (d *checker) common(c *Common) {
	d.OneOf("log.level", "log level", c.Log.Level, logLevels...)
	d.OneOf("log.format", "log format", c.Log.Format, "text", "json")
	d.listen(c.Telemetry.Listen, c.Admin.Listen)
	d.adminRemote(&c.Admin.Remote)
	if web := c.Telemetry.WebConfig; web != "" {
		d.ErrorIf(!strings.HasPrefix(web, "/"), "telemetry.web_config", "%q is not an absolute path; use /etc/loom/web.yaml, or leave it out", web)
		d.ErrorIf(Off(c.Telemetry.Listen), "telemetry.web_config", "nothing is served that %q could guard; set telemetry.listen, or leave it out", web)
	}
	d.Add(c.Congestion.Resolve(profile))
	d.ErrorIf(c.VXLANPort == 0, "vxlan_port", "UDP port 0 does not exist; use 4789, or leave it out")
	d.ErrorIf(c.Workers < 1 || c.Workers > 256, "workers", "%d workers; use 1 to 256, at most one for each core", c.Workers)
	d.cores(c)
	d.ErrorIf(c.RingSize < minRing || c.RingSize > maxRing || c.RingSize&(c.RingSize-1) != 0, "ring_size",
		"ring size %d is not a power of two from %d to %d; use 2048, or leave it out", c.RingSize, minRing, maxRing)
	d.ErrorIf(c.Frames < 0 || c.Frames > 0 && c.Frames < 4*c.RingSize, "frames",
		"%d frames cannot fill rings of %d; use at least %d, or leave it out", c.Frames, c.RingSize, 4*c.RingSize)
	d.ErrorIf(c.HoldTime == 0 || c.HoldTime > time.Minute, "hold_time", "hold time %v; use 1ms to 1m", c.HoldTime)
	if c.Drain > time.Minute {
		d.Add(yamlfile.Errors{{Path: "drain", Problem: "drain time " + c.Drain.String(), Fix: "use at most 1m; systemd kills what takes longer than TimeoutStopSec"}})
	}
}

// room checks that a node with so many ports has room for them.
func (d *checker) room(c *Common, ports int) {
	d.ErrorIf(d.Has("max_ports") && (c.MaxPorts < ports || c.MaxPorts < 1 || c.MaxPorts > dataplane.MaxPorts), "max_ports",
		"room for %d ports, of %d that are listed; use as many at least and %d at most, or leave it out", c.MaxPorts, ports, dataplane.MaxPorts)
}

func (d *checker) cores(c *Common) {
	n := len(c.Cores)
	if n == 0 || d.ErrorIf(n != c.Workers, "cores", "%d cores for %d workers; list one core for each worker", n, c.Workers) {
		return
	}
	for i, core := range c.Cores {
		if !d.ErrorIf(core < 0 || core >= 1024, item("cores", i), "core %d does not exist; use 0 to %d", core, runtime.NumCPU()-1) {
			d.ErrorIf(slices.Contains(c.Cores[:i], core), item("cores", i), "core %d is listed twice; give each worker a core of its own", core)
		}
	}
}

// Off reports whether the value of a key listen says that nothing is served.
func Off(listen string) bool { return listen == "" || listen == "off" }

// listen checks where metrics and the admin API are served.
func (d *checker) listen(metrics, admin string) {
	const (
		badPath = "unix socket %q is not an absolute path of at most 107 bytes; "
		fix     = "use HOST:PORT, unix:/path/of/a/socket or off"
	)
	bad := func(path string) bool { return !strings.HasPrefix(path, "/") || len(path) > 107 }
	if path, unix := strings.CutPrefix(metrics, "unix:"); unix {
		d.ErrorIf(bad(path), "telemetry.listen", badPath+fix, path)
	} else if !Off(metrics) {
		_, port, err := net.SplitHostPort(metrics)
		n, perr := strconv.ParseUint(port, 10, 16)
		d.ErrorIf(err != nil || perr != nil || n == 0, "telemetry.listen", "%q is not an address to listen at; "+fix, metrics)
	}
	path, unix := strings.CutPrefix(admin, "unix:")
	switch {
	case Off(admin):
	case !unix:
		d.Errorf("admin.listen", "%q is not a unix socket; use unix:/path/of/a/socket or off: the API has no authentication but the socket's owner and group; other machines ask at admin.remote", admin)
	case bad(path):
		d.Errorf("admin.listen", badPath+"use unix:/path/of/a/socket or off", path)
	case admin == metrics:
		d.Errorf("admin.listen", "metrics are served there already; give each a socket of its own")
	}
}

// adminRemote checks where other machines ask the node.
func (d *checker) adminRemote(r *AdminRemote) {
	if Off(r.Listen) {
		return
	}
	_, port, err := net.SplitHostPort(r.Listen)
	n, perr := strconv.ParseUint(port, 10, 16)
	d.ErrorIf(err != nil || perr != nil || n == 0, "admin.remote.listen", "%q is not an address to listen at; use HOST:PORT or off", r.Listen)
	d.ErrorIf(!strings.HasPrefix(r.WebConfig, "/"), "admin.remote.web_config",
		"web_config %q is not an absolute path; name a file that asks clients for certificates, as /etc/loom/web.yaml", r.WebConfig)
}

// port checks a port at a path: its interface, which has to exist if it is needed, and
// what a frame meets there.
func (d *checker) port(at, name string, needed bool, e *Egress) {
	d.name(at, name, needed)
	s, queue, burst := e.Shaper, at+".queue", at+".shaper.burst"
	d.ErrorIf(d.Has(queue) && (e.Queue < 2048 || e.Queue > 1<<30), queue, "a queue of %v; use 2KiB to 1GiB, or leave it out", e.Queue)
	d.ErrorIf(s.Rate == 0 && s.Burst > 0, at+".shaper", "a shaper without a rate; add rate, as in rate: 1Gbit")
	d.ErrorIf(s.Rate > 0 && d.Has(burst) && (s.Burst < 2048 || s.Burst > 1<<30), burst, "burst %v; use 2KiB (more than one frame) to 1GiB, or leave it out", s.Burst)
	d.ErrorIf(s.Rate > 0 && e.LinkRate > 0 && s.Rate > e.LinkRate, at+".shaper.rate",
		"the shaper's %v is above the link's %v; lower it, or leave the shaper out", s.Rate, e.LinkRate)
	d.ErrorIf(e.Delay > 10*time.Second, at+".delay", "a delay of %v; use at most 10s", e.Delay)
	d.Add(e.ECN.Check(at + ".ecn"))
	d.ErrorIf(d.Has(at+".ecn.pmax") && e.ECN.Pmax == 0, at+".ecn.pmax", "pmax 0 is outside (0, 1]; pmax is a probability, as in 0.2")
}

func (d *checker) name(at, name string, needed bool) {
	if d.ErrorIf(name == "", at, "a port without an interface; add interface, as in interface: eth1") {
		return
	}
	at += ".interface"
	switch first, dup := d.used[name]; {
	case len(name) > maxName || strings.ContainsAny(name, "/ \t"):
		d.Errorf(at, "%q cannot be an interface's name; names have at most 15 characters, none of them a space or a slash", name)
		return
	case dup:
		d.Errorf(at, "interface %s is already used on line %d; an interface is one port: remove one of the two", name, d.Line(first))
		return
	case needed && d.interfaces != nil && !slices.Contains(d.interfaces, name):
		fix := "see `ip link` for those that do"
		if near := yamlfile.Nearest(name, d.interfaces); near != "" {
			fix = "did you mean " + near + "? `ip link` shows those that do"
		}
		d.Errorf(at, "interface %s does not exist; %s", name, fix)
	}
	d.used[name] = at
}

// vtep checks that an address can be a VTEP.
func (d *checker) vtep(at string, a netip.Addr) bool {
	return !d.ErrorIf(!a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		a.Is4In6() || a.Zone() != "" || a.Is6() && a.IsLinkLocalUnicast(),
		at, "%v cannot be a VTEP; use a unicast address of IPv4 or IPv6 that routers forward to, as in 10.255.0.1 or 2001:db8::1", a)
}

// fastPath checks what a fast path needs that is to be there.
func (d *checker) fastPath(mode XDPMode) {
	d.ErrorIf(dataplane.XDPMode(mode) == dataplane.XDPGeneric, "fast_path", "it needs XDP in the driver; remove xdp_mode: generic, or use auto")
}

// scheme checks a spine's scheme, if it has one.
func (d *checker) scheme(s *Spine) {
	d.Add(s.Sections.Resolve(s.Congestion.Profile))
	of := balance.Find(s.Scheme)
	for _, name := range s.Sections.ExtraKeys() {
		if d.Has(name) && (of == nil || of.Section == nil || of.Section.Name != name) {
			d.Errorf(name, "the spine has no scheme that goes by it; remove it, or use one that does")
		}
	}
	if dataplane.FastMode(s.FastPath) == dataplane.FastOn {
		d.ErrorIf(s.Scheme != "", "fast_path", "XDP cannot forward by itself what scheme %s decides about; remove one of the two, or use auto", s.Scheme)
		d.fastPath(s.XDPMode)
	}
	if s.Scheme == "" {
		for _, key := range s.ExtraKeys() {
			d.ErrorIf(d.Has(key), key, "it is for a scheme, and there is none; add scheme, or remove it")
		}
		return
	}
	b := vocab.Balancing{Scheme: s.Scheme, Keys: s.Keys}
	d.Add(b.Check("", 0))
	s.Keys = b.Keys
	if of != nil && of.NeedsPeer {
		var possible []string
		for _, o := range balance.Schemes() {
			if !o.NeedsPeer {
				possible = append(possible, o.Name)
			}
		}
		d.Add(yamlfile.Errors{{
			Path: "scheme", Problem: "scheme " + s.Scheme + " needs an answer of the leaf at the far end",
			Fix: "use it on leaves; here use " + yamlfile.OrList(possible),
		}})
	}
}

func (s *Spine) validate(d *checker) {
	d.common(&s.Common)
	d.ErrorIf(s.VTEPs == nil, "vteps", "a spine that forwards to nobody; list the leaves' VTEPs, as in vteps: [10.255.0.0/24], or write vteps: any")
	for i, p := range s.VTEPs {
		at := item("vteps", i)
		if d.ErrorIf(!p.IsValid() || p.Addr().Is4In6() || p.Bits() == 0, at, "%v cannot be a prefix of VTEPs; use one as in 10.255.0.0/24 or 2001:db8::/64", p.Prefix) ||
			d.ErrorIf(p.Masked() != p.Prefix, at, "%v has host bits set; write %v", p.Prefix, p.Masked()) {
			continue
		}
		if j := slices.IndexFunc(s.VTEPs[:i], func(q Prefix) bool { return p.Overlaps(q.Prefix) }); j >= 0 {
			d.Errorf(at, "%v overlaps %v on line %d; remove the narrower one", p.Prefix, s.VTEPs[j].Prefix, d.Line(item("vteps", j)))
		}
	}
	d.scheme(s)
	n := len(s.Ports)
	d.ErrorIf(s.Ports == nil && !s.VTEPs.Any(), "ports", "a spine without ports; list the ports towards the leaves, as in ports: [{interface: eth1}], or write ports: auto")
	d.ErrorIf(n > dataplane.MaxPorts, "ports", "%d ports; use at most %d", n, dataplane.MaxPorts)
	d.room(&s.Common, n)
	for i := range s.Ports {
		d.port(item("ports", i), s.Ports[i].Interface, s.Ports[i].Required, &s.Ports[i].Egress)
	}
}
