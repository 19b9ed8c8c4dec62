package fabric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

const (
	// maxWorkloads is how many the hosts' packets can tell apart.
	maxWorkloads = 256
	// minRate is the slowest rate that is paced, maxQueuePairs the largest number of
	// queue pairs of a pair of hosts.
	minRate       = 64_000
	maxQueuePairs = 64
)

// setWorkload fills in what a workload leaves out.
func setWorkload(w *vocab.Workload, position int, access units.Rate) {
	w.Complete()
	w.Name = cmp.Or(w.Name, fmt.Sprintf("%s-%d", w.Type, position))
	if w.Type == vocab.Poisson || w.Type == vocab.RoCE {
		w.Small = cmp.Or(w.Small, 100_000)
		w.Large = cmp.Or(w.Large, max(10_000_000, w.Small))
	}
	if w.Type == vocab.RoCE {
		w.Size = cmp.Or(w.Size, 1024)
		w.QueuePairs = cmp.Or(w.QueuePairs, 4)
		w.Rate = cmp.Or(w.Rate, access)
	}
}

func (v *validator) workloads() {
	n := len(v.file.Workloads)
	v.ErrorIf(n > maxWorkloads, "workloads", "%d workloads; use at most %d", n, maxWorkloads)
	seen := map[string]bool{}
	for i := range v.file.Workloads {
		w, at := &v.file.Workloads[i], fmt.Sprintf("workloads[%d]", i)
		errs := w.Check(at, vocab.Lab)
		v.Add(errs)
		v.ErrorIf(seen[w.Name], at+".name", "the name %q is used twice; give each workload its own", w.Name)
		seen[w.Name] = true
		if len(errs) == 0 {
			v.workloadValues(at, w)
			v.endpoints(at, w)
		}
	}
}

func (v *validator) workloadValues(at string, w *vocab.Workload) {
	v.ErrorIf(w.Small > w.Large, at+".large", "large flows of %v are smaller than small ones, %v; raise large, or lower small", w.Large, w.Small)
	switch w.Type {
	case vocab.Bulk:
		v.ErrorIf(w.Flows > 1000, at+".flows", "%d flows; use 1 to 1000", w.Flows)
	case vocab.RoCE:
		v.ErrorIf(w.Rate < minRate, at+".rate", "NICs at %v; write their rate, as in rate: 40Mbit, or set hosts.link.rate", w.Rate)
		v.ErrorIf(w.QueuePairs > maxQueuePairs, at+".qps", "%d queue pairs; use 1 to %d", w.QueuePairs, maxQueuePairs)
		v.ErrorIf(!slices.Contains([]units.Size{256, 512, 1024}, w.Size), at+".size",
			"packets with %v of data; use 256, 512 or 1024, InfiniBand's MTUs that fit a frame", w.Size)
	case vocab.Incast:
		v.ErrorIf(w.Bytes < units.Size(w.FanIn), at+".bytes", "an answer of %v by %d servers; use at least one byte a server", w.Bytes, w.FanIn)
	case vocab.UDP:
		most := units.Size(v.file.Hosts.MTU - 28)
		v.ErrorIf(w.Size < 16 || w.Size > most, at+".size", "datagrams of %v; use 16 to %d bytes, which fit a frame", w.Size, most)
		v.ErrorIf(w.Flows > 1, at+".flows", "%d flows of datagrams; the lab has one a pair: remove flows", w.Flows)
	}
}

// endpoints checks that the selectors give at least one pair inside a VNI.
func (v *validator) endpoints(at string, w *vocab.Workload) {
	from, err := v.file.Select(w.From)
	v.ErrorIf(err != nil, at+".from", "%v", err)
	to, err2 := v.file.Select(w.To)
	v.ErrorIf(err2 != nil, at+".to", "%v", err2)
	if err != nil || err2 != nil || len(v.Errors) > 0 {
		return // the expansion below needs a file that is otherwise right
	}
	t := v.file.Expand()
	open := w.Type == vocab.Poisson || w.Type == vocab.RoCE
	if open && t.Capacity(from, w.Of) == 0 {
		fix := "set links.rate, or of: hosts"
		if w.Of == "hosts" {
			fix = "set hosts.link.rate, or of: fabric"
		}
		v.Errorf(at+".load", "a share of links that have no rate; %s", fix)
	}
	asking, asked := w.Askers(from, to)
	for _, c := range asking {
		n := len(t.Candidates(c, asked, w.Pairs))
		name := t.Hosts[c].Name
		if v.ErrorIf(w.Type == vocab.Incast && n < w.FanIn, at+".fan_in",
			"%d servers a query, but host %s has only %d in its VNI; lower fan_in, or set pairs: any", w.FanIn, name, n) ||
			v.ErrorIf(n == 0, at+".to", "host %s has no partner in its VNI; widen from and to, or set pairs: any", name) {
			return
		}
	}
}

// Candidates returns those of to that a host may talk with: others of its VNI. Under
// pairs "racks" they are behind another leaf.
func (t *Topology) Candidates(host int, to []int, pairs string) []int {
	var out []int
	for _, h := range to {
		if h != host && t.Hosts[h].VNI == t.Hosts[host].VNI && (pairs != "racks" || t.Hosts[h].Leaf != t.Hosts[host].Leaf) {
			out = append(out, h)
		}
	}
	return out
}

// Pairs returns who sends to whom in a bulk or udp workload: the i-th sender with
// the i-th of its candidates, wrapping around, so that senders spread over
// receivers.
func (t *Topology) Pairs(from, to []int) [][2]int {
	var out [][2]int
	for i, src := range from {
		if c := t.Candidates(src, to, "any"); len(c) > 0 {
			out = append(out, [2]int{src, c[i%len(c)]})
		}
	}
	return out
}

// Capacity returns the rate, in bits per second, that the load of hosts which send is
// a percentage of: of what their leaves' uplinks carry ("fabric"), or their own access
// links ("hosts"). 0: these links have no rate.
func (t *Topology) Capacity(senders []int, of string) (sum units.Rate) {
	if of == "hosts" {
		for _, s := range senders {
			sum += t.Hosts[s].Access.Rate
		}
		return sum
	}
	for leaf := range t.Leaves {
		if !slices.ContainsFunc(senders, func(s int) bool { return t.Hosts[s].Leaf == leaf }) {
			continue
		}
		for _, l := range t.Links {
			if l.Leaf == leaf {
				sum += l.Up.Rate
			}
		}
	}
	return sum
}
