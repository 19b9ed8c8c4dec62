package fabric

import (
	"fmt"
	"slices"
)

// field is an optional field of a workload: whether it was given, and the
// types it belongs to.
type field struct {
	key   string
	given bool
	types []string
}

func (w *Workload) fields() []field {
	return []field{
		{"flows", w.Flows != 0, []string{BulkTCP}},
		{"sizes", w.Sizes != "", []string{Request, RoCE}},
		{"load", w.Load != 0, []string{Request, RoCE}},
		{"small", w.Small != 0, []string{Request, RoCE}},
		{"large", w.Large != 0, []string{Request, RoCE}},
		{"persistent", w.Persistent, []string{Request}},
		{"fan-in", w.FanIn != 0, []string{Incast}},
		{"bytes", w.Bytes != 0, []string{Incast}},
		{"interval", w.Interval != 0, []string{Incast}},
		{"rate", w.Rate != 0, []string{UDP, RoCE}},
		{"size", w.Size != 0, []string{UDP, RoCE}},
		{"qps", w.QueuePairs != 0, []string{RoCE}},
	}
}

// maxWorkloads is how many the agents' packets can tell apart.
const maxWorkloads = 256

func (v *validator) workloads() {
	if n := len(v.file.Workloads); n > maxWorkloads {
		v.errorf("workloads", "%d: at most %d are possible", n, maxWorkloads)
	}
	seen := map[string]bool{}
	for i := range v.file.Workloads {
		w := &v.file.Workloads[i]
		path := fmt.Sprintf("workloads[%d]", i)
		if !slices.Contains([]string{BulkTCP, Request, Incast, UDP, RoCE}, w.Type) {
			v.errorf(path+".type", "%q is unknown: write tcp, request, incast, udp or roce", w.Type)
			continue
		}
		if seen[w.Name] {
			v.errorf(path+".name", "%q is used twice", w.Name)
		}
		seen[w.Name] = true
		if w.Duration <= 0 {
			v.errorf(path+".duration", "is missing: write for how long work begins, for instance 5s")
		}
		for _, f := range w.fields() {
			if f.given && !slices.Contains(f.types, w.Type) {
				v.errorf(path+"."+f.key, "does not belong to a workload of type %s, only of %v", w.Type, f.types)
			}
		}
		v.workloadValues(path, w)
		v.endpoints(path, w)
	}
}

func (v *validator) workloadValues(path string, w *Workload) {
	switch w.Type {
	case BulkTCP:
		if w.Flows < 1 || w.Flows > 1000 {
			v.errorf(path+".flows", "%d: between 1 and 1000 are possible", w.Flows)
		}
	case Request:
		v.openLoop(path, w)
	case RoCE:
		v.openLoop(path, w)
		if w.Rate < minRate {
			v.errorf(path+".rate", "%s: write the NICs' rate, for instance 40Mbit, or set hosts.link.rate", w.Rate)
		}
		if w.QueuePairs < 1 || w.QueuePairs > maxQueuePairs {
			v.errorf(path+".qps", "%d: between 1 and %d are possible", w.QueuePairs, maxQueuePairs)
		}
		if !slices.Contains([]Bytes{256, 512, 1024}, w.Size) {
			v.errorf(path+".size", "%s bytes of data: InfiniBand's MTUs that fit a frame are 256, 512 and 1024", w.Size)
		}
	case Incast:
		if w.FanIn < 1 {
			v.errorf(path+".fan-in", "%d: at least 1", w.FanIn)
		}
		if w.Bytes < Bytes(max(w.FanIn, 1)) {
			v.errorf(path+".bytes", "%s: at least one byte a server", w.Bytes)
		}
	case UDP:
		if w.Rate == 0 {
			v.errorf(path+".rate", "is missing: write for instance 10Mbit")
		}
		if w.Size < 16 || w.Size > HostMTU-28 {
			v.errorf(path+".size", "%s bytes of payload: between 16 and %d fit a frame", w.Size, HostMTU-28)
		}
	}
}

// minRate is the slowest that is paced, maxQueuePairs the most of a pair of hosts.
const (
	minRate       = 64_000
	maxQueuePairs = 64
)

// openLoop checks what workloads have in common whose flows begin by a Poisson
// process, whether earlier ones are over or not.
func (v *validator) openLoop(path string, w *Workload) {
	if w.Sizes == "" {
		v.errorf(path+".sizes", "is missing: name a distribution, for instance web-search")
	}
	if w.Load <= 0 || w.Load > 200 {
		v.errorf(path+".load", "%g percent: above 0 and at most 200", w.Load)
	}
	if w.Small > w.Large {
		v.errorf(path+".large", "%s bytes are below small, %s: large flows are larger", w.Large, w.Small)
	}
}

// endpoints checks that the selectors give at least one pair inside a VNI.
func (v *validator) endpoints(path string, w *Workload) {
	from, err := v.file.Select(w.From)
	if err != nil {
		v.errorf(path+".from", "%v", err)
	}
	to, err2 := v.file.Select(w.To)
	if err2 != nil {
		v.errorf(path+".to", "%v", err2)
	}
	if err != nil || err2 != nil || len(v.errs) > 0 {
		return // the expansion below needs a file that is otherwise right
	}
	t := v.file.Expand()
	senders := to
	if w.Type == RoCE {
		senders = from
	}
	if (w.Type == Request || w.Type == RoCE) && t.ServerCapacity(senders) == 0 {
		v.errorf(path+".load", "is a percentage of links that have no rate: set links.rate or hosts.link.rate")
	}
	for _, c := range from {
		n := len(t.Candidates(c, to))
		if w.Type == Incast && n < w.FanIn {
			v.errorf(path+".fan-in", "%d servers a query, but host %s has only %d in its VNI", w.FanIn, t.Hosts[c].Name, n)
			return
		}
		if n == 0 {
			v.errorf(path+".to", "holds no partner for host %s in its VNI", t.Hosts[c].Name)
			return
		}
	}
}

// Candidates lists those of to that host may talk with: others of its VNI.
func (t *Topology) Candidates(host int, to []int) []int {
	var out []int
	for _, h := range to {
		if h != host && t.Hosts[h].VNI == t.Hosts[host].VNI {
			out = append(out, h)
		}
	}
	return out
}

// Pairs lists who sends to whom in a tcp or udp workload: the i-th sender with
// the i-th of its candidates, wrapping around, so that senders spread over
// receivers.
func (t *Topology) Pairs(from, to []int) [][2]int {
	var out [][2]int
	for i, src := range from {
		if c := t.Candidates(src, to); len(c) > 0 {
			out = append(out, [2]int{src, c[i%len(c)]})
		}
	}
	return out
}

// ServerCapacity is the rate, in bits per second, that the load of a request or
// roce workload is a percentage of, whose servers or senders these hosts are: for
// each leaf with some of them the lesser of its uplinks' total and their access
// links' total. 0: nothing is limited.
func (t *Topology) ServerCapacity(servers []int) Rate {
	var sum Rate
	for leaf := range t.Leaves {
		var access, uplinks Rate
		unlimited, any := false, false
		for _, s := range servers {
			if h := t.Hosts[s]; h.Leaf == leaf {
				any = true
				access += h.Access.Rate
				unlimited = unlimited || h.Access.Rate == 0
			}
		}
		if !any {
			continue
		}
		for _, l := range t.Links {
			if l.Leaf == leaf {
				uplinks += l.Up.Rate
			}
		}
		switch {
		case unlimited || access == 0:
			sum += uplinks
		case uplinks == 0:
			sum += access
		default:
			sum += min(access, uplinks)
		}
	}
	return sum
}
