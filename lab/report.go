package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/measure"
)

// Report says what a run found out. An experiment keeps the [measure.Result]; people
// look at the rest, too. Durations are nanoseconds in JSON, rates bits
// per second, amounts bytes.
type Report struct {
	Lab            string          `json:"lab"`
	Dataplane      string          `json:"dataplane"`
	Result         *measure.Result `json:"result"`
	Duration       time.Duration   `json:"duration_ns"`
	LoadEnd        time.Duration   `json:"load_end_ns"` // when the last workload stopped to begin new work
	Reachability   Reachability    `json:"reachability"`
	IdlePair       string          `json:"idle_pair,omitempty"` // the hosts between which the idle fabric was measured
	IdleFresh      []IdlePoint     `json:"idle_new_connection,omitempty"`
	IdlePersistent []IdlePoint     `json:"idle_persistent,omitempty"`
	Timeline       []Second        `json:"timeline"`
	Faults         []FaultReport   `json:"faults"`
	Phases         []Phase         `json:"phases"`
	Daemons        []DaemonReport  `json:"daemons"`                 // none when the kernel forwards
	Uplinks        []UplinkSeries  `json:"uplink_series,omitempty"` // by leaf, when sampled

	page *picture // what HTML shows beyond that; nil: nobody wanted it
}

// Reachability says which hosts of one VNI reach each other. Every ordered pair was
// pinged.
type Reachability struct {
	Pairs     int           `json:"pairs"`
	Reachable int           `json:"reachable"`
	MedianRTT time.Duration `json:"median_rtt_ns"`
	Results   []PairResult  `json:"results"`
}

// PairResult says whether one host reaches another.
type PairResult struct {
	From string        `json:"from"`
	To   string        `json:"to"`
	VNI  uint32        `json:"vni"`
	OK   bool          `json:"ok"`
	RTT  time.Duration `json:"rtt_ns"` // of the first echo answered, address resolution included
}

// IdlePoint is the completion time of one flow over the idle fabric.
type IdlePoint struct {
	Bytes uint64        `json:"bytes"`
	FCT   time.Duration `json:"fct_ns"`
}

// Second has the goodput of one second.
type Second struct {
	At          time.Duration `json:"at_ns"`
	GoodputBits float64       `json:"goodput_bits"`
	ByWorkload  []float64     `json:"by_workload_bits"`
}

// FaultReport says what a fault did.
type FaultReport struct {
	Link       string        `json:"link"`
	Action     string        `json:"action"`
	At         time.Duration `json:"at_ns"`
	Converged  time.Duration `json:"converged_ns"` // until all kernel routes were right again
	BeforeBits float64       `json:"goodput_before_bits"`
	AfterBits  float64       `json:"goodput_after_bits"`
	LongestGap time.Duration `json:"longest_gap_ns"` // without any payload, in steps of 100 ms
}

// Phase is the time from one fault to the next.
type Phase struct {
	From   string        `json:"from"`
	Start  time.Duration `json:"start_ns"`
	End    time.Duration `json:"end_ns"`
	Leaves []LeafUplinks `json:"leaves"`
}

// LeafUplinks has what a leaf sent over its uplinks in a phase.
type LeafUplinks struct {
	Leaf      string        `json:"leaf"`
	Uplinks   []UplinkBytes `json:"uplinks"`
	Imbalance float64       `json:"imbalance"` // (max−min)/mean over those that were up
}

// UplinkBytes has what one uplink carried in a phase.
type UplinkBytes struct {
	Link  string `json:"link"`
	Port  string `json:"port"`
	Up    bool   `json:"up"`
	Bytes uint64 `json:"bytes"`
}

// DaemonReport has a daemon's account in frames since it was started.
type DaemonReport struct {
	Node     string            `json:"node"`
	Account  dataplane.Account `json:"account"`
	Marked   uint64            `json:"ecn_marked"`
	CERaised uint64            `json:"ce_raised"`         // frames that met more congestion here than before (CONGA)
	Schemes  []SchemeReport    `json:"schemes,omitempty"` // of a leaf
	Balanced bool              `json:"balanced"`
	Drops    map[string]uint64 `json:"drops"`
	Closed   []string          `json:"closed_ports,omitempty"` // not carried by AF_XDP at the end
}

// SchemeReport has what a scheme decided on one leaf since its daemon was started.
// Flowlets are zero for schemes that keep none.
type SchemeReport struct {
	Scheme    string `json:"scheme"`
	Decisions uint64 `json:"decisions"`
	Started   uint64 `json:"flowlets_started"`
	Moved     uint64 `json:"flowlets_moved"`
	Kept      uint64 `json:"flowlets_kept"`
	Expired   uint64 `json:"flowlets_expired"`
}

// addScheme adds a worker's counters to those of the scheme.
func (d *DaemonReport) addScheme(scheme string, s balance.Stats) {
	at := slices.IndexFunc(d.Schemes, func(r SchemeReport) bool { return r.Scheme == scheme })
	if at < 0 {
		at = len(d.Schemes)
		d.Schemes = append(d.Schemes, SchemeReport{Scheme: scheme})
	}
	r := &d.Schemes[at]
	r.Decisions += s.Decisions
	r.Started += s.Flowlets.Started
	r.Moved += s.Flowlets.Moved
	r.Kept += s.Flowlets.Kept
	r.Expired += s.Flowlets.Expired
}

// Failure returns an error if the fabric did what none may do: a pair of hosts of one
// VNI is not reachable, or a daemon's account does not balance.
func (r *Report) Failure() error {
	var errs []error
	if n := r.Reachability.Pairs - r.Reachability.Reachable; n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d pairs are not reachable", n, r.Reachability.Pairs))
	}
	for _, d := range r.Daemons {
		if !d.Balanced {
			errs = append(errs, fmt.Errorf("%s: the account does not balance: %v", d.Node, d.Account))
		}
	}
	return errors.Join(errs...)
}

// counters adds up what the daemons counted.
func (r *Report) counters() {
	res := r.Result
	res.Drops, res.Scheduler = map[string]uint64{}, map[string]uint64{}
	for _, d := range r.Daemons {
		for reason, n := range d.Drops {
			res.Drops[reason] += n
		}
		for _, s := range d.Schemes {
			res.Scheduler["decisions"] += s.Decisions
			res.Scheduler["flowlets_started"] += s.Started
			res.Scheduler["flowlets_moved"] += s.Moved
			res.Scheduler["flowlets_kept"] += s.Kept
			res.Scheduler["flowlets_expired"] += s.Expired
		}
	}
}

// JSON writes the report.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "fabric %s, dataplane %s, scheme %s\n\n", r.Lab, r.Dataplane, r.Result.Scheme)
	r.tableReach(w)
	if len(r.Result.Workloads) > 0 {
		if idle := r.Result.Machine.CPUIdlePercent; idle != nil {
			fmt.Fprintf(w, "CPU: %.0f %% idle under the load\n", *idle)
		}
		r.tableWorkloads(w)
		r.tableTimeline(w)
		r.tableFaults(w)
		r.tableUplinks(w)
	}
	r.tableSamples(w)
	r.tableSchemes(w)
	r.tableDaemons(w)
	return w.Flush()
}

func (r *Report) tableReach(w io.Writer) {
	c := r.Reachability
	fmt.Fprintf(w, "reachability: %d of %d pairs, median first RTT %v\n", c.Reachable, c.Pairs, round(c.MedianRTT))
	for _, p := range c.Results {
		if !p.OK {
			fmt.Fprintf(w, "  %s cannot reach %s (VNI %d)\n", p.From, p.To, p.VNI)
		}
	}
}

func (r *Report) tableWorkloads(w io.Writer) {
	fmt.Fprint(w, "\nworkload\tgoodput\tflows\tFCT mean\tp50\tp99\tp99.9\t÷idle mean\tp50\tp99\tnot finished\n")
	for _, x := range r.Result.Workloads {
		fcts := x.FCT
		if len(r.Result.Workloads) == 1 {
			fcts = r.Result.FCT
		}
		fmt.Fprintf(w, "%s\t%s\t", x.Name, rate(x.GoodputBps))
		if len(fcts) > 0 {
			fctCells(w, &fcts[0])
		} else if x.DatagramsSent > 0 {
			lost := max(0, 1-float64(x.DatagramsReceived)/float64(x.DatagramsSent))
			fmt.Fprintf(w, "%d of %d datagrams (%.2f%% lost)\t\t\t\t\t\t\t\t", x.DatagramsReceived, x.DatagramsSent, 100*lost)
		} else {
			fmt.Fprintf(w, "%d\t-\t-\t-\t-\t-\t-\t-\t", x.Flows)
		}
		fmt.Fprintf(w, "%d\n", x.Unfinished)
		for i := 1; i < len(fcts); i++ {
			fmt.Fprintf(w, "  %s\t\t", fcts[i].Class)
			fctCells(w, &fcts[i])
			fmt.Fprintln(w)
		}
	}
	if r.IdlePair != "" {
		fmt.Fprintf(w, "(FCT: from the receiver's request to its last byte read, or the age of a flow that did not finish; ÷idle: divided by the FCT of a flow of its size, %s, before the load)\n", r.IdlePair)
	}
	r.tableRoCE(w)
}

func fctCells(w io.Writer, f *measure.ClassFCT) {
	fmt.Fprintf(w, "%d", f.Flows)
	for _, s := range []float64{f.MeanS, f.P50S, f.P99S, f.P999S} {
		fmt.Fprintf(w, "\t%v", round(seconds(s)))
	}
	if f.SlowdownMean > 0 {
		fmt.Fprintf(w, "\t%.2f\t%.2f\t%.2f\t", f.SlowdownMean, f.SlowdownP50, f.SlowdownP99)
	} else {
		fmt.Fprint(w, "\t-\t-\t-\t")
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r *Report) tableRoCE(w io.Writer) {
	head := "\nRoCE\tpackets\treordered\tdistance mean\tmax\tout of sequence\tretransmitted\trewinds\ttimeouts\n"
	for _, x := range r.Result.Workloads {
		if c := x.Reordering; c != nil {
			fmt.Fprintf(w, "%s%s\t%d\t%d (%.2f %%)\t%.1f\t%d\t%d (%.2f %%)\t%d (%.2f %%)\t%d\t%d\n", head, x.Name, c.Packets, c.Reordered, c.Percent,
				c.MeanDistance, c.MaxDistance, c.OutOfSequence, c.OutOfSequencePercent, c.Retransmitted, c.RetransmittedPercent, c.Rewinds, c.Timeouts)
			head = ""
		}
	}
	if head == "" {
		fmt.Fprint(w, "(FCT: from the sender's posting of the message to the receiver's having all of it, in order)\n")
	}
}

func (r *Report) tableTimeline(w io.Writer) {
	fmt.Fprint(w, "\nsecond\tgoodput")
	for _, x := range r.Result.Workloads {
		fmt.Fprintf(w, "\t%s", x.Name)
	}
	fmt.Fprint(w, "\tfaults\n")
	for _, s := range r.Timeline {
		fmt.Fprintf(w, "%.0f\t%s", s.At.Seconds(), rate(s.GoodputBits))
		for _, b := range s.ByWorkload {
			fmt.Fprintf(w, "\t%s", rate(b))
		}
		var faults []string
		for _, f := range r.Faults {
			if f.At >= s.At && f.At < s.At+time.Second {
				faults = append(faults, f.Action+" "+f.Link)
			}
		}
		fmt.Fprintf(w, "\t%s\n", strings.Join(faults, ", "))
	}
}

func (r *Report) tableFaults(w io.Writer) {
	if len(r.Faults) == 0 {
		return
	}
	fmt.Fprint(w, "\nfault\tat\troutes after\tgoodput 1 s before\t1 s after\tlongest gap\n")
	for _, f := range r.Faults {
		gap := "< 100ms"
		if f.LongestGap > 0 {
			gap = f.LongestGap.String()
		}
		fmt.Fprintf(w, "%s %s\t%.2fs\t%v\t%s\t%s\t%s\n", f.Action, f.Link, f.At.Seconds(), round(f.Converged), rate(f.BeforeBits), rate(f.AfterBits), gap)
	}
}

func (r *Report) tableUplinks(w io.Writer) {
	fmt.Fprint(w, "\nuplink (MB sent)")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "\tfrom %s", p.From)
	}
	fmt.Fprintln(w)
	if len(r.Phases) == 0 {
		return
	}
	for i, leaf := range r.Phases[0].Leaves {
		for j, u := range leaf.Uplinks {
			fmt.Fprint(w, u.Link)
			for _, p := range r.Phases {
				x := p.Leaves[i].Uplinks[j]
				mark := ""
				if !x.Up {
					mark = " (down)"
				}
				fmt.Fprintf(w, "\t%.1f%s", float64(x.Bytes)/1e6, mark)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (max−min)/mean", leaf.Leaf)
		for _, p := range r.Phases {
			fmt.Fprintf(w, "\t%.2f", p.Leaves[i].Imbalance)
		}
		fmt.Fprintln(w)
	}
}

func (r *Report) tableSamples(w io.Writer) {
	if len(r.Result.Imbalance) == 0 {
		return
	}
	fmt.Fprint(w, "\n(max−min)/mean in intervals\tintervals\tmean\tp50\tp90\n")
	for _, m := range r.Result.Imbalance {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\n", m.Name, m.N, m.Mean, m.P50, m.P90)
	}
	for _, x := range r.Result.Reactions {
		after := "never"
		if x.FollowedS != nil {
			after = "after " + round(seconds(*x.FollowedS)).String()
		}
		fmt.Fprintf(w, "%s's share of traffic to that spine: %.0f %% before, %.0f %% after, followed %s\n", x.Name, x.BeforePercent, x.AfterPercent, after)
	}
}

func (r *Report) tableSchemes(w io.Writer) {
	head := "\nscheme\tdecisions\tflowlets\tmoved\tkept\tnew flows\n"
	for _, d := range r.Daemons {
		for _, s := range d.Schemes {
			fmt.Fprintf(w, "%s%s: %s\t%d", head, d.Node, s.Scheme, s.Decisions)
			head = ""
			if s.Started > 0 {
				fmt.Fprintf(w, "\t%d\t%d\t%d\t%d\n", s.Started, s.Moved, s.Kept, s.Started-s.Moved-s.Kept)
			} else {
				fmt.Fprint(w, "\t-\t-\t-\t-\n")
			}
		}
	}
}

func (r *Report) tableDaemons(w io.Writer) {
	if len(r.Daemons) == 0 {
		return
	}
	fmt.Fprint(w, "\nframes\treceived\tmade\tsent\tdropped\tconsumed\theld\tCE raised\taccount\tdrops by reason\n")
	for _, d := range r.Daemons {
		account := "balances"
		if !d.Balanced {
			account = "IS WRONG"
		}
		var drops []string
		for _, reason := range slices.Sorted(maps.Keys(d.Drops)) {
			drops = append(drops, fmt.Sprintf("%s %d", reason, d.Drops[reason]))
		}
		for _, p := range d.Closed {
			drops = append(drops, p+" IS NOT OPEN")
		}
		a := d.Account
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", d.Node, a.Received, a.Made, a.Sent, a.Dropped, a.Consumed, a.Held, d.CERaised, account, strings.Join(drops, ", "))
	}
}

// rate writes bits per second in Mbit.
func rate(bits float64) string { return fmt.Sprintf("%.1f Mbit/s", bits/1e6) }

// round shortens a duration to three or four digits.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
