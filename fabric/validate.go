package fabric

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/yamlerr"
)

// Limits. The data plane's tables set the first two: at most 16 next hops a
// route, 4 bits of LBTag.
const (
	maxUplinks = 16
	maxVNIs    = 4096
	maxLeaves  = 256
	maxSpines  = 16
	maxHosts   = 1024
	minBuffer  = 2 * UnderlayMTU
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
	setString(&f.Congestion.Profile, "lab")
	if f.ConWeave.Profile == "" {
		f.ConWeave.Profile = "lab"
		if f.Congestion.Profile == "datacenter" {
			f.ConWeave.Profile = "datacenter"
		}
	}
	setString(&f.Congestion.Detector, congestion.Timestamp.String())
	setString(&f.Congestion.PathMetric, congestion.MaxMetric.String())
	if f.Links.Parallel == 0 {
		f.Links.Parallel = 1
	}
	for _, p := range []*LinkParams{&f.Links.LinkParams, &f.Hosts.Link} {
		if p.Buffer == 0 {
			p.Buffer = 256_000
		}
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
	}
	for i := range f.Workloads {
		f.Workloads[i].setDefaults(i, f.Hosts.Link.Rate)
	}
}

func (w *Workload) setDefaults(position int, access Rate) {
	setString(&w.Name, fmt.Sprintf("%s-%d", w.Type, position))
	if len(w.From) == 0 {
		w.From = []string{"all"}
	}
	if len(w.To) == 0 {
		w.To = []string{"all"}
	}
	if w.Type == BulkTCP && w.Flows == 0 {
		w.Flows = 1
	}
	if w.Type == Request || w.Type == RoCE {
		if w.Small == 0 {
			w.Small = 100_000
		}
		if w.Large == 0 {
			w.Large = max(10_000_000, w.Small)
		}
	}
	if w.Type == UDP && w.Size == 0 {
		w.Size = 1400
	}
	if w.Type == RoCE {
		if w.Size == 0 {
			w.Size = 1024
		}
		if w.QueuePairs == 0 {
			w.QueuePairs = 4
		}
		if w.Rate == 0 {
			w.Rate = access
		}
	}
}

func setString(s *string, def string) {
	if *s == "" {
		*s = def
	}
}

// validator collects everything that is wrong with a file.
type validator struct {
	file *File
	name string
	root ast.Node // of the first document; nil: none
	errs []error
}

func (v *validator) errorf(path, format string, args ...any) {
	v.errs = append(v.errs, &Error{File: v.name, Line: yamlerr.LineOf(v.root, path), Path: path, Msg: fmt.Sprintf(format, args...)})
}

func (v *validator) run() {
	f := v.file
	if !nameRE.MatchString(f.Name) {
		v.errorf("name", "%q cannot name a lab: a lower-case letter, then up to 14 lower-case letters, digits or underscores", f.Name)
	}
	if f.Dataplane != "loom" && f.Dataplane != "kernel" {
		v.errorf("dataplane", "%q is unknown: write loom or kernel", f.Dataplane)
	}
	switch {
	case f.Fallback != "none" && f.Fallback != "kernel":
		v.errorf("fallback", "%q is unknown: write none or kernel", f.Fallback)
	case f.Fallback == "kernel" && f.Dataplane == "kernel":
		v.errorf("fallback", "there is no daemon whose place the kernel could take: remove it or use dataplane loom")
	}
	v.shape()
	v.balancing("", &f.Balancing)
	v.classes()
	v.congestion()
	v.conweave()
	v.params("links", f.Links.LinkParams)
	v.params("hosts.link", f.Hosts.Link)
	v.overrides()
	if v.hosts() { // members and endpoints make sense only then
		v.vnis()
		v.workloads()
	}
	v.faults()
}

func (v *validator) shape() {
	f := v.file
	if f.Leaves < 1 || f.Leaves > maxLeaves {
		v.errorf("leaves", "%d leaves: between 1 and %d are possible", f.Leaves, maxLeaves)
	}
	if f.Spines < 1 || f.Spines > maxSpines {
		v.errorf("spines", "%d spines: between 1 and %d are possible", f.Spines, maxSpines)
	}
	if f.Links.Parallel < 1 || f.Links.Parallel*f.Spines > maxUplinks {
		v.errorf("links.parallel", "%d parallel links to %d spines: a leaf has between 1 and %d uplinks", f.Links.Parallel, f.Spines, maxUplinks)
	}
}

func (v *validator) params(path string, p LinkParams) {
	if p.Rate > 0 && p.Rate < minRate {
		v.errorf(path+".rate", "%s is too slow to be shaped: at least 64kbit, or 0 for no shaper", p.Rate)
	}
	if p.Rate == 0 && p.Delay == 0 && p.ECN != nil {
		v.errorf(path+".ecn", "without a rate no queue builds up that could be marked: set rate")
	}
	if p.Buffer < minBuffer || p.Buffer > 1<<30 {
		v.errorf(path+".buffer", "%s bytes: between %d (two frames) and 1GiB are possible", p.Buffer, minBuffer)
	}
	if p.Delay.D().Seconds() > 10 {
		v.errorf(path+".delay", "%s: at most 10s", p.Delay)
	}
	if e := p.ECN; e != nil && (e.Kmax == 0 || e.Kmin > e.Kmax || e.Pmax <= 0 || e.Pmax > 1) {
		v.errorf(path+".ecn", "kmin %s, kmax %s, pmax %g: needs kmin ≤ kmax, kmax > 0 and 0 < pmax ≤ 1", e.Kmin, e.Kmax, e.Pmax)
	}
	if v.file.Dataplane == "kernel" {
		if p.Delay > 0 {
			v.errorf(path+".delay", "dataplane kernel cannot delay: remove it or use dataplane loom")
		}
		if p.ECN != nil {
			v.errorf(path+".ecn", "dataplane kernel cannot mark: remove it or use dataplane loom")
		}
	}
}

// link checks a link name and reports whether it exists.
func (v *validator) link(path, name string) bool {
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
	v.errorf(path, "no link is called %q: links are L0-S0.0 to %s", name, LinkName(f.Leaves-1, f.Spines-1, f.Links.Parallel-1))
	return false
}

func (v *validator) overrides() {
	seen := map[string]bool{}
	for i, o := range v.file.Overrides {
		path := fmt.Sprintf("overrides[%d]", i)
		if !slices.Contains([]string{"up", "down", "both"}, o.Direction) {
			v.errorf(path+".direction", "%q is unknown: write up (leaf to spine), down or both", o.Direction)
			continue
		}
		if !v.link(path+".link", o.Link) {
			continue
		}
		for _, d := range []string{"up", "down"} {
			if o.Direction != d && o.Direction != "both" {
				continue
			}
			if seen[o.Link+d] {
				v.errorf(path+".link", "%s is overridden twice in direction %s", o.Link, d)
			}
			seen[o.Link+d] = true
		}
		l := Link{Up: v.file.Links.LinkParams, Down: v.file.Links.LinkParams}
		o.apply(&l)
		if o.Direction == "down" {
			v.params(path, l.Down)
		} else {
			v.params(path, l.Up)
		}
	}
}

func (v *validator) hosts() bool {
	before := len(v.errs)
	h := v.file.Hosts
	if h.PerLeaf < 0 {
		v.errorf("hosts.per-leaf", "%d is negative", h.PerLeaf)
		return false
	}
	seen := map[string]bool{}
	for i, n := range h.List {
		path := fmt.Sprintf("hosts.list[%d]", i)
		switch {
		case !hostRE.MatchString(n.Name) || n.Name == "all":
			v.errorf(path+".name", "%q cannot name a host: a lower-case letter, then 1 to 10 lower-case letters, digits or underscores", n.Name)
		case h.PerLeaf > 0 && autoRE.MatchString(n.Name):
			v.errorf(path+".name", "%q may clash with the names that per-leaf gives (h0, h1, ...)", n.Name)
		case seen[n.Name]:
			v.errorf(path+".name", "%q is defined twice", n.Name)
		}
		seen[n.Name] = true
		if _, ok := nodeIndex(n.Leaf, 'L', v.file.Leaves); !ok {
			v.errorf(path+".leaf", "%q is not a leaf: leaves are L0 to L%d", n.Leaf, v.file.Leaves-1)
		}
	}
	total := len(h.List) + h.PerLeaf*max(v.file.Leaves, 0)
	if total == 0 {
		v.errorf("hosts", "there are none: set per-leaf or list")
	}
	if total > maxHosts {
		v.errorf("hosts", "%d hosts: at most %d are possible", total, maxHosts)
	}
	return len(v.errs) == before && v.file.Leaves > 0
}

func (v *validator) vnis() {
	f := v.file
	names, _ := f.hostNames()
	member := make([]int, len(names)) // position of the VNI + 1
	seen := map[uint32]bool{}
	if len(f.VNIs) == 0 || len(f.VNIs) > maxVNIs {
		v.errorf("vnis", "%d VNIs: between 1 and %d are possible", len(f.VNIs), maxVNIs)
	}
	for i, n := range f.VNIs {
		path := fmt.Sprintf("vnis[%d]", i)
		if n.VNI == 0 || n.VNI >= 1<<24 {
			v.errorf(path+".vni", "%d is out of range: 1 to 16777215", n.VNI)
		}
		if seen[n.VNI] {
			v.errorf(path+".vni", "%d is defined twice", n.VNI)
		}
		seen[n.VNI] = true
		if n.VLAN > 4094 {
			v.errorf(path+".vlan", "%d is out of range: 1 to 4094, or 0 for untagged", n.VLAN)
		}
		p, err := netip.ParsePrefix(n.Subnet)
		if err != nil || !p.Addr().Is4() || p.Bits() < 8 || 1<<(32-p.Bits()) < len(names)+2 {
			v.errorf(path+".subnet", "%q is not an IPv4 prefix with room for %d hosts, for instance 10.100.0.0/16", n.Subnet, len(names))
		}
		hosts, err := f.Select(n.Hosts)
		if err != nil {
			v.errorf(path+".hosts", "%v", err)
		}
		for _, h := range hosts {
			if member[h] > 0 {
				v.errorf(path+".hosts", "host %s is already in VNI %d: a host has one", names[h], f.VNIs[member[h]-1].VNI)
				continue
			}
			member[h] = i + 1
		}
	}
	for h, m := range member {
		if m == 0 && len(f.VNIs) > 0 {
			v.errorf("vnis", "host %s is in none: name it in a VNI's hosts", names[h])
		}
	}
}

func (v *validator) faults() {
	for i, flt := range v.file.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		if (flt.Fail == "") == (flt.Restore == "") {
			v.errorf(path, "needs either fail or restore")
			continue
		}
		if flt.Fail != "" {
			v.link(path+".fail", flt.Fail)
		} else {
			v.link(path+".restore", flt.Restore)
		}
	}
}
