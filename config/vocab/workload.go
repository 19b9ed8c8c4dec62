package vocab

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// The workload types.
const (
	Poisson     = "poisson"     // flows of sizes from a CDF, which begin by a Poisson process
	Bulk        = "bulk"        // long flows between pairs
	Incast      = "incast"      // clients ask servers at once
	UDP         = "udp"         // datagrams at a constant rate between pairs
	RoCE        = "roce"        // RDMA writes of sizes from a CDF, paced, with Go-Back-N
	Stride      = "stride"      // host i sends to host i+stride
	Permutation = "permutation" // each host sends to another one, at random
	AllToAll    = "all-to-all"  // each host sends to every other one
	Random      = "random"      // flows of sizes from a CDF, each to another host
	Trace       = "trace"       // flows from a file
)

// Workload is one load on a fabric. Which keys apply depends on its type.
type Workload struct {
	// Name is for reports. Default: the type and the workload's position.
	Name string `yaml:"name,omitempty"`
	// Type is poisson (flows of sizes from a CDF, which begin by a Poisson process),
	// bulk (long flows between pairs), incast (clients ask servers at once), udp
	// (datagrams at a constant rate between pairs); in fabric.yaml roce (RDMA writes of
	// sizes from a CDF, paced, with Go-Back-N); in experiments stride, permutation,
	// all-to-all (flows between those pairs), random (flows of sizes from a CDF, of which
	// each sender has some under way, each to a random receiver) or trace (flows from a
	// file). Default: poisson in experiments.
	Type string `yaml:"type"`
	// From are the hosts that send: names of hosts, of leaves (all hosts behind them)
	// or all. Incast's clients, who ask, stand here, too. Default: all.
	From []string `yaml:"from,omitempty"`
	// To are the hosts that receive, or incast's servers. A poisson flow goes to one of
	// them at random. For bulk and udp the i-th sender has the i-th of those that it
	// can send to. Default: all.
	To []string `yaml:"to,omitempty"`
	// Pairs restricts whom random pairs have: racks (hosts behind two leaves) or any
	// (two hosts). Default: racks.
	Pairs string `yaml:"pairs,omitempty"`

	// Start is the time after the run's start at which work begins.
	Start time.Duration `yaml:"start,omitempty"`
	// Duration is for how long new work begins. Default: the run's in experiments;
	// required in fabric.yaml.
	Duration time.Duration `yaml:"duration,omitempty"`
	// Seed makes the flows of a lab's workload those of another run.
	Seed uint64 `yaml:"seed,omitempty"`

	// Sizes is the CDF of the flows' sizes: the name of a shipped one, or a file whose
	// name ends in .csv, relative to this one. In experiments bulk, stride and permutation
	// may have it as well: a pair's flows then come one after the other.
	Sizes string `yaml:"sizes,omitempty"`
	// Scale multiplies the sizes. Default: 1.
	Scale float64 `yaml:"scale,omitempty"`
	// Load is the offered payload in percent of what `of` names.
	Load float64 `yaml:"load,omitempty"`
	// Of is what the load is a share of: fabric (what the uplinks of the senders' leaves
	// carry) or hosts (what the senders' access links carry). Default: fabric.
	Of string `yaml:"of,omitempty"`
	// Small is the size below which flows count as small in a lab's report; experiments
	// have measure.small. Default: 100KB.
	Small units.Size `yaml:"small,omitempty"`
	// Large is the size above which flows count as large. Default: 10MB.
	Large units.Size `yaml:"large,omitempty"`
	// Connections is the number of persistent connections of each pair; 0: a new one for
	// each flow.
	Connections int `yaml:"connections,omitempty"`
	// Pool lets a flow take an idle connection of its pair, and open one only where
	// there is none. Otherwise each flow opens a connection of its own. Default: false.
	Pool bool `yaml:"pool,omitempty"`

	// Flows is the number of connections of each pair. Default: 1.
	Flows int `yaml:"flows,omitempty"`
	// Stagger is the time from the start of a pair's flows to that of the next pair's.
	// Default: 0, all at once.
	Stagger time.Duration `yaml:"stagger,omitempty"`
	// Bytes is the size of a flow, 0: endless; for incast the size of the whole answer.
	Bytes units.Size `yaml:"bytes,omitempty"`
	// FanIn is the number of servers of one incast query.
	FanIn int `yaml:"fan_in,omitempty"`
	// Interval is the time from the start of one query to the next, which waits for the
	// end of the last one; 0: for nothing else.
	Interval time.Duration `yaml:"interval,omitempty"`
	// Repeat is the number of queries. Default: 1.
	Repeat int `yaml:"repeat,omitempty"`
	// Stride is the distance of a pair's hosts.
	Stride int `yaml:"stride,omitempty"`
	// Rate is a pair's rate of payload, or that of a host's RDMA NIC, which its queue
	// pairs share in turn. Default for roce: hosts.link.rate.
	Rate units.Rate `yaml:"rate,omitempty"`
	// Size is the payload of a datagram, 1400 by default, or the data of one RDMA
	// packet: InfiniBand's MTU of 256, 512 or 1024, the default.
	Size units.Size `yaml:"size,omitempty"`
	// QueuePairs is the number of queue pairs of each pair of hosts, each a flow of its
	// own. Default: 4.
	QueuePairs int `yaml:"qps,omitempty"`
	// File has the flows of a trace: a CSV, or one that gzip has packed, whose name ends
	// in .gz.
	File string `yaml:"file,omitempty"`
}

// OldKeys are the names that keys had before.
func (Workload) OldKeys() map[string]string {
	return map[string]string{"persistent": "pool", "gap": "interval"}
}

// Runner is what runs workloads: each can only do some.
type Runner struct {
	Name  string // in messages: "the lab"
	types []string
	lacks []string // keys
}

// The runners.
var (
	Lab = &Runner{
		Name: "the lab", types: []string{Bulk, Poisson, Incast, UDP, RoCE},
		lacks: []string{"scale", "connections", "repeat", "stride", "stagger", "file"},
	}
	Simulator = &Runner{
		Name: "the simulator", types: []string{Poisson, Bulk, Incast, Stride, Permutation, AllToAll, Random, UDP, Trace},
		lacks: []string{"seed", "small", "large", "qps"},
	}
)

// oldTypes are the names that types had before.
var oldTypes = map[string]string{
	"tcp":     "type tcp is bulk now; write bulk",
	"request": "type request is poisson now; write poisson, and in from those who send and in to those who ask: that is the other way round",
}

// belongs says which types the keys are for that not all types have.
var belongs = map[string][]string{
	"from":        {Poisson, Bulk, Incast, Stride, AllToAll, Random, UDP, RoCE},
	"to":          {Poisson, Bulk, Incast, Random, UDP, RoCE},
	"pairs":       {Poisson, Incast, Random, RoCE},
	"sizes":       {Poisson, Bulk, Stride, Permutation, Random, RoCE},
	"scale":       {Poisson, Bulk, Stride, Permutation, Random},
	"stagger":     {Bulk, Stride, Permutation, Random},
	"load":        {Poisson, RoCE},
	"of":          {Poisson, RoCE},
	"small":       {Poisson, RoCE},
	"large":       {Poisson, RoCE},
	"connections": {Poisson, Incast},
	"pool":        {Poisson},
	"flows":       {Bulk, Stride, Permutation, Random, UDP},
	"bytes":       {Bulk, Incast, Stride, Permutation, AllToAll},
	"fan_in":      {Incast},
	"interval":    {Incast},
	"repeat":      {Incast},
	"stride":      {Stride},
	"rate":        {UDP, RoCE},
	"size":        {UDP, RoCE},
	"qps":         {RoCE},
	"file":        {Trace},
}

// Check returns what a workload at a path says that r cannot do, and values that
// make no sense for anybody.
func (w *Workload) Check(at string, r *Runner) (errs yamlfile.Errors) {
	if !slices.Contains(r.types, w.Type) {
		if now, ok := oldTypes[w.Type]; ok {
			errs.Errorf(at+".type", "%s", now)
		} else {
			errs.Errorf(at+".type", "%s has no workload of type %q; use %s", r.Name, w.Type, yamlfile.OrList(r.types))
		}
		return errs
	}
	v := reflect.ValueOf(w).Elem()
	for _, f := range yamlfile.Fields(v.Type()) {
		types, some := belongs[f.Key]
		value, n := v.FieldByIndex(f.Index), 0.0
		switch {
		case value.IsZero() || value.Kind() == reflect.Slice && slices.Equal(value.Interface().([]string), all):
		case some && !slices.Contains(types, w.Type):
			errs.Errorf(at+"."+f.Key, "a workload of type %s has no %s; remove it: it is for %s", w.Type, f.Key, yamlfile.OrList(types))
		case slices.Contains(r.lacks, f.Key):
			errs.Errorf(at+"."+f.Key, "%s has no %s; remove it", r.Name, f.Key)
		}
		if value.CanInt() {
			n = float64(value.Int())
		} else if value.CanFloat() {
			n = value.Float()
		}
		errs.ErrorIf(n < 0 && f.Key != "stride" || math.IsInf(n, 0) || math.IsNaN(n), at+"."+f.Key, "%s is %g; use a number above 0", f.Key, n)
	}
	errs.ErrorIf(w.Type == Bulk && r == Lab && w.Sizes != "", at+".sizes", "%s has no sizes of bulk flows; remove them, or use type poisson", r.Name)
	errs.ErrorIf(w.Sizes != "" && w.Bytes > 0, at+".bytes", "sizes are set too; remove one of the two: each flow has one size")
	errs.ErrorIf(w.Load > 200, at+".load", "a load of %g percent; use a number above 0 and up to 200", w.Load)
	if w.Pairs != "" {
		errs.OneOf(at+".pairs", "pairs", w.Pairs, "racks", "any")
	}
	if w.Of != "" {
		errs.OneOf(at+".of", "of", w.Of, "fabric", "hosts")
	}
	return append(errs, w.missing(at, r)...)
}

// missing returns the keys that a type cannot do without.
func (w *Workload) missing(at string, r *Runner) (errs yamlfile.Errors) {
	need := func(key, example string, missing bool) {
		errs.ErrorIf(missing, at+"."+key, "a workload of type %s without %s; write for instance %s: %s", w.Type, key, key, example)
	}
	open := w.Type == Poisson || w.Type == RoCE
	need("sizes", "web-search", (open || w.Type == Random) && w.Sizes == "")
	need("load", "50", open && w.Load == 0)
	need("fan_in", "8", w.Type == Incast && w.FanIn == 0)
	need("bytes", "1MB", (w.Type == Incast || w.Type == AllToAll) && w.Bytes == 0)
	need("stride", "8", w.Type == Stride && w.Stride == 0)
	need("rate", "10Mbit", w.Type == UDP && w.Rate == 0)
	need("file", "flows.csv", w.Type == Trace && w.File == "")
	need("duration", "5s", r == Lab && w.Duration == 0)
	return errs
}

var all = []string{"all"}

// Complete fills in what all runners leave out alike.
func (w *Workload) Complete() {
	if w.From == nil {
		w.From = slices.Clone(all)
	}
	if w.To == nil {
		w.To = slices.Clone(all)
	}
	if slices.Contains(belongs["pairs"], w.Type) {
		w.Pairs = cmp.Or(w.Pairs, "racks")
	}
	if slices.Contains(belongs["of"], w.Type) {
		w.Of = cmp.Or(w.Of, "fabric")
	}
	if slices.Contains(belongs["flows"], w.Type) {
		w.Flows = cmp.Or(w.Flows, 1)
	}
	if w.Type == UDP {
		w.Size = cmp.Or(w.Size, 1400)
	}
}

// Askers returns the hosts that begin the work of a workload, and those that they
// turn to: receivers ask for the flows of type poisson, and incast's clients stand in
// from.
func (w *Workload) Askers(from, to []int) (asking, asked []int) {
	if w.Type == Poisson {
		return to, from
	}
	return from, to
}
