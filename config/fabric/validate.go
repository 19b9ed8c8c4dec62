package fabric

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Limits. The data plane's tables set the first two: at most 16 next hops a
// route, 4 bits of LBTag.
const (
	maxUplinks = 16
	maxVNIs    = 4096
	maxLeaves  = 256
	maxSpines  = 16
	maxHosts   = 1024
	minQueue   = 2 * UnderlayMTU
)

var (
	nameRE = regexp.MustCompile(`^[a-z][a-z0-9_]{0,14}$`)
	// acc-<host> must fit an interface name of 15 characters.
	hostRE = regexp.MustCompile(`^[a-z][a-z0-9_]{1,10}$`)
	autoRE = regexp.MustCompile(`^h[0-9]+$`)
)

// nodeIndex reads "L3" (kind 'L') if it is below n.
func nodeIndex(name string, kind byte, n int) (int, bool) {
	if len(name) < 2 || name[0] != kind {
		return 0, false
	}
	i, err := strconv.Atoi(name[1:])
	if err != nil || i < 0 || i >= n || strconv.Itoa(i) != name[1:] {
		return 0, false
	}
	return i, true
}

func (f *File) setDefaults() {
	setString(&f.Dataplane, "loom")
	setString(&f.Fallback, "none")
	setString(&f.Scheme, "ecmp")
	setString(&f.TCP, "cubic")
	if f.Links.Parallel == 0 {
		f.Links.Parallel = 1
	}
	for _, l := range []*vocab.Link{&f.Links.Link, &f.Hosts.Link} {
		if l.Queue == 0 {
			l.Queue = 256_000
		}
		l.ECN.Complete()
	}
	for i := range f.VNIs {
		v := &f.VNIs[i]
		setString(&v.Subnet, fmt.Sprintf("10.%d.0.0/16", 100+i%100))
		if len(v.Hosts) == 0 {
			v.Hosts = []string{"all"}
		}
	}
	for i := range f.Overrides {
		setString(&f.Overrides[i].Direction, "both")
		if e := f.Overrides[i].ECN; e != nil {
			e.Complete()
		}
	}
	for i := range f.Workloads {
		setWorkload(&f.Workloads[i], i, f.Hosts.Link.Rate)
	}
}

func setString(s *string, def string) {
	if *s == "" {
		*s = def
	}
}

// validator adds everything that is wrong with a file to its document.
type validator struct {
	file *File
	*yamlfile.Document
}

func (v *validator) run() {
	f := v.file
	if !nameRE.MatchString(f.Name) {
		v.Errorf("name", "%q cannot name a lab; use a lower-case letter, then up to 14 lower-case letters, digits or underscores", f.Name)
	}
	v.oneOf("dataplane", f.Dataplane, "loom", "kernel")
	v.oneOf("fallback", f.Fallback, "none", "kernel")
	if f.Fallback == "kernel" && f.Dataplane == "kernel" {
		v.Errorf("fallback", "there is no daemon whose place the kernel could take; remove it, or use dataplane loom")
	}
	v.shape()
	v.balancing()
	v.link("links", &f.Links.Link)
	v.link("hosts.link", &f.Hosts.Link)
	v.overrides()
	if v.hosts() { // members and endpoints make sense only then
		v.vnis()
		v.workloads()
	}
	v.faults()
}

// oneOf reports a word that does not exist.
func (v *validator) oneOf(path, word string, words ...string) {
	if _, err := yamlfile.Choose(path, word, words); err != nil {
		v.Errorf(path, "%v", err)
	}
}

// balancing checks schemes and what they are told.
func (v *validator) balancing() {
	f := v.file
	uplinks := max(f.Spines*f.Links.Parallel, 0)
	v.Report(f.Balancing.Check("", uplinks))
	vocab.CheckClasses(v.Document, f.Classes, uplinks, func(vni uint32) bool {
		return slices.ContainsFunc(f.VNIs, func(n VNI) bool { return n.VNI == vni })
	})
	if f.Dataplane == "kernel" {
		if f.Scheme != "ecmp" {
			v.Errorf("scheme", notKernel, f.Scheme)
		}
		if len(f.Classes) > 0 {
			v.Errorf("classes", "dataplane kernel has no classes; remove them, or use dataplane loom")
		}
	}
	v.Report(f.Congestion.Resolve(profile))
	v.Report(f.Sections.Resolve(f.Congestion.Profile))
}

func (v *validator) shape() {
	f := v.file
	if f.Leaves < 1 || f.Leaves > maxLeaves {
		v.Errorf("leaves", "%d leaves; use 1 to %d", f.Leaves, maxLeaves)
	}
	if f.Spines < 1 || f.Spines > maxSpines {
		v.Errorf("spines", "%d spines; use 1 to %d", f.Spines, maxSpines)
	}
	if f.Links.Parallel < 1 || f.Links.Parallel*f.Spines > maxUplinks {
		v.Errorf("links.parallel", "%d parallel links to %d spines; a leaf has 1 to %d uplinks", f.Links.Parallel, f.Spines, maxUplinks)
	}
}

func (v *validator) link(path string, l *vocab.Link) {
	if l.Rate > 0 && l.Rate < minRate {
		v.Errorf(path+".rate", "%v is too slow to be shaped; use at least 64kbit, or 0 for no shaper", l.Rate)
	}
	if l.Rate == 0 && l.Delay == 0 && l.ECN != (vocab.ECN{}) {
		v.Errorf(path+".ecn", "without a rate no queue builds up that could be marked; set rate")
	}
	if l.Queue < minQueue || l.Queue > 1<<30 {
		v.Errorf(path+".queue", "a queue of %v; use %d bytes (two frames) to 1GiB", l.Queue, minQueue)
	}
	if l.Delay > 10*time.Second {
		v.Errorf(path+".delay", "a delay of %v; use at most 10s", l.Delay)
	}
	v.Report(l.ECN.Check(path + ".ecn"))
	if v.file.Dataplane == "kernel" {
		if l.Delay > 0 {
			v.Errorf(path+".delay", "dataplane kernel cannot delay; remove it, or use dataplane loom")
		}
		if l.ECN != (vocab.ECN{}) {
			v.Errorf(path+".ecn", "dataplane kernel cannot mark; remove it, or use dataplane loom")
		}
	}
}

// exists checks a link's name and reports whether there is such a link.
func (v *validator) exists(path, name string) bool {
	f := v.file
	if l, s, ok := strings.Cut(name, "-"); ok {
		sp, par, _ := strings.Cut(s, ".")
		li, ok1 := nodeIndex(l, 'L', f.Leaves)
		si, ok2 := nodeIndex(sp, 'S', f.Spines)
		pi, err := strconv.Atoi(par)
		if ok1 && ok2 && err == nil && pi >= 0 && pi < f.Links.Parallel && name == LinkName(li, si, pi) {
			return true
		}
	}
	v.Errorf(path, "no link is called %q; links are L0-S0.0 to %s", name, LinkName(f.Leaves-1, f.Spines-1, f.Links.Parallel-1))
	return false
}

func (v *validator) overrides() {
	seen := map[string]bool{}
	for i, o := range v.file.Overrides {
		path := fmt.Sprintf("overrides[%d]", i)
		before := len(v.Errs)
		if v.oneOf(path+".direction", o.Direction, vocab.Directions...); len(v.Errs) > before || !v.exists(path+".link", o.Link) {
			continue
		}
		for _, d := range vocab.Directions[:2] {
			if o.Direction != d && o.Direction != "both" {
				continue
			}
			if seen[o.Link+d] {
				v.Errorf(path+".link", "%s is overridden twice in direction %s; remove one of the two", o.Link, d)
			}
			seen[o.Link+d] = true
		}
		up, down := v.file.Links.Link, v.file.Links.Link
		o.Apply(&up, &down)
		if o.Direction == "down" {
			up = down
		}
		v.link(path, &up)
	}
}

func (v *validator) hosts() bool {
	before := len(v.Errs)
	h := v.file.Hosts
	if h.PerLeaf < 0 {
		v.Errorf("hosts.per_leaf", "%d hosts a leaf; use 0 or more", h.PerLeaf)
		return false
	}
	seen := map[string]bool{}
	for i, n := range h.List {
		path := fmt.Sprintf("hosts.list[%d]", i)
		switch {
		case !hostRE.MatchString(n.Name) || n.Name == "all":
			v.Errorf(path+".name", "%q cannot name a host; use a lower-case letter, then 1 to 10 lower-case letters, digits or underscores", n.Name)
		case h.PerLeaf > 0 && autoRE.MatchString(n.Name):
			v.Errorf(path+".name", "%q may clash with the names that per_leaf gives (h0, h1, ...); use another one", n.Name)
		case seen[n.Name]:
			v.Errorf(path+".name", "host %q is defined twice; remove one of the two", n.Name)
		}
		seen[n.Name] = true
		if _, ok := nodeIndex(n.Leaf, 'L', v.file.Leaves); !ok {
			v.Errorf(path+".leaf", "%q is not a leaf; leaves are L0 to L%d", n.Leaf, v.file.Leaves-1)
		}
	}
	total := len(h.List) + h.PerLeaf*max(v.file.Leaves, 0)
	if total == 0 {
		v.Errorf("hosts", "a fabric without hosts; set per_leaf or list")
	}
	if total > maxHosts {
		v.Errorf("hosts", "%d hosts; use at most %d", total, maxHosts)
	}
	return len(v.Errs) == before && v.file.Leaves > 0
}

func (v *validator) vnis() {
	f := v.file
	names, _ := f.hostNames()
	member := make([]int, len(names)) // position of the VNI + 1
	seen := map[uint32]bool{}
	if len(f.VNIs) == 0 || len(f.VNIs) > maxVNIs {
		v.Errorf("vnis", "%d virtual networks; use 1 to %d", len(f.VNIs), maxVNIs)
	}
	for i, n := range f.VNIs {
		path := fmt.Sprintf("vnis[%d]", i)
		if n.VNI == 0 || n.VNI >= 1<<24 {
			v.Errorf(path+".vni", "VNI %d is out of range; use 1 to 16777215", n.VNI)
		}
		if seen[n.VNI] {
			v.Errorf(path+".vni", "VNI %d is defined twice; merge the two entries", n.VNI)
		}
		seen[n.VNI] = true
		if n.VLAN > 4094 {
			v.Errorf(path+".vlan", "VLAN %d is out of range; use 1 to 4094, or 0 for untagged", n.VLAN)
		}
		p, err := netip.ParsePrefix(n.Subnet)
		if err != nil || !p.Addr().Is4() || p.Bits() < 8 || 1<<(32-p.Bits()) < len(names)+2 {
			v.Errorf(path+".subnet", "%q is not an IPv4 prefix with room for %d hosts; use for instance 10.100.0.0/16", n.Subnet, len(names))
		}
		hosts, err := f.Select(n.Hosts)
		if err != nil {
			v.Errorf(path+".hosts", "%v", err)
		}
		for _, h := range hosts {
			if member[h] > 0 {
				v.Errorf(path+".hosts", "host %s is already in VNI %d; a host has one: name it once", names[h], f.VNIs[member[h]-1].VNI)
				continue
			}
			member[h] = i + 1
		}
	}
	for h, m := range member {
		if m == 0 && len(f.VNIs) > 0 {
			v.Errorf("vnis", "host %s is in no VNI; name it in a VNI's hosts", names[h])
		}
	}
}

func (v *validator) faults() {
	for i, flt := range v.file.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		if (flt.Fail == "") == (flt.Restore == "") {
			v.Errorf(path, "a fault that does nothing, or two things; give one of fail and restore")
			continue
		}
		if flt.Fail != "" {
			v.exists(path+".fail", flt.Fail)
		} else {
			v.exists(path+".restore", flt.Restore)
		}
	}
}
