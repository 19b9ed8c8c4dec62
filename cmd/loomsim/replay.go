package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/record"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/sim"
)

const (
	// replayHosts are the hosts that stand for those of a leaf, which a record does not
	// know. Flows are spread over them by their hashes.
	replayHosts = 16
	// headerBytes are those of Ethernet, IPv4 and TCP with a timestamp, of which the record
	// counts one set a frame.
	headerBytes = 66
	// talkBytes is the mean frame length up to which a flow is taken for acknowledgements of
	// another one: the simulator's transport makes its own.
	talkBytes = 100
)

func replayCommand() *cobra.Command {
	var schemes []string
	var rate, hostRate units.Rate
	c := &cobra.Command{
		Use: "replay DUMP.loom...", Short: "Run the traffic of flight records through other schemes, and compare",
		Long: "replay reads flight records of leaves (loomctl record dump), builds a leaf-spine fabric of the\n" +
			"leaves, uplinks and rates that they name, and starts each recorded flow, with the bytes that\n" +
			"it had, at the time when it began, under each scheme. Flows have TCP (cubic) and greedy\n" +
			"senders. What was stands in the first row, as far as the records know it.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return replay(c.Context(), c.OutOrStdout(), args, schemes, rate, hostRate)
		},
	}
	c.Flags().StringSliceVar(&schemes, "schemes", []string{"ecmp", "conga", "reed"}, "schemes to compare")
	c.Flags().TextVar(&rate, "rate", units.Rate(0), "rate of the links between switches (default: that of the recorded uplinks)")
	c.Flags().TextVar(&hostRate, "host-rate", units.Rate(0), "rate of the hosts' links (default: that of the recorded access ports, or the links')")
	return c
}

// replayed is what records say, as a simulator understands it.
type replayed struct {
	leaves  []string // VTEPs
	uplinks int
	rate    units.Rate
	host    units.Rate
	flows   []record.Flow // by their start
	talk    int           // flows that are left out
	length  time.Duration
	dumps   []*record.Dump
}

// readRecords reads records and derives a fabric of them.
func readRecords(files []string, rate, host units.Rate) (*replayed, error) {
	r := &replayed{rate: rate, host: host}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		d, err := record.Read(bufio.NewReader(f))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if d.VTEP == "" {
			return nil, fmt.Errorf("%s: it is of a spine, which does not know flows: give records of leaves", file)
		}
		r.dumps = append(r.dumps, d)
		r.add(d)
	}
	switch {
	case len(r.flows) == 0:
		return nil, errors.New("the records have no flows into the fabric")
	case r.uplinks == 0:
		return nil, errors.New("the records name no uplinks")
	case r.rate == 0:
		return nil, errors.New("the rates of the uplinks are not known: give --rate")
	}
	r.host = cmp.Or(r.host, r.rate)
	slices.SortStableFunc(r.flows, func(a, b record.Flow) int { return cmp.Compare(a.Start, b.Start) })
	slices.Sort(r.leaves)
	r.leaves = slices.Compact(r.leaves)
	r.length = time.Duration(r.flows[len(r.flows)-1].Start - r.flows[0].Start + 1)
	return r, nil
}

// add takes in one record.
func (r *replayed) add(d *record.Dump) {
	uplinks, rate, host := 0, units.Rate(0), units.Rate(0)
	for _, p := range d.Ports {
		switch p.Kind {
		case "uplink":
			uplinks++
			rate = max(rate, units.Rate(p.Rate))
		case "access":
			host = max(host, units.Rate(p.Rate))
		}
	}
	r.uplinks, r.rate, r.host = max(r.uplinks, uplinks), cmp.Or(r.rate, rate), cmp.Or(r.host, host)
	r.leaves = append(r.leaves, d.VTEP)
	for _, f := range d.Flows {
		if f.Frames == 0 || f.Bytes/f.Frames <= talkBytes || f.Src == f.Dst {
			r.talk++
			continue
		}
		r.flows = append(r.flows, f)
		r.leaves = append(r.leaves, f.Src, f.Dst)
	}
}

// payload is what a flow's transport carried.
func payload(f *record.Flow) uint64 {
	return max(1, f.Bytes-min(f.Bytes, f.Frames*headerBytes))
}

// trace writes the flows as package traffic reads them.
func (r *replayed) trace(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "start_ns,src,dst,bytes")
	host := func(vtep string, hash uint32) int {
		leaf, _ := slices.BinarySearch(r.leaves, vtep)
		return leaf*replayHosts + int(hash%replayHosts)
	}
	for i := range r.flows {
		f := &r.flows[i]
		fmt.Fprintf(out, "%d,%d,%d,%d\n", f.Start-r.flows[0].Start, host(f.Src, f.Hash), host(f.Dst, f.Hash>>8), payload(f))
	}
	return out.Flush()
}

// spec is a run of the flows under a scheme.
func (r *replayed) spec(scheme, trace string) *sim.Spec {
	s := &sim.Spec{
		Topology: sim.Topology{Leaves: len(r.leaves), Spines: r.uplinks, Hosts: fabric.Hosts{PerLeaf: replayHosts}},
		Scheme:   scheme, Workloads: []vocab.Workload{{Type: vocab.Trace, File: trace}}, Duration: r.length, Drain: max(10*r.length, 10*time.Second),
	}
	s.Topology.Links.Rate, s.Topology.Hosts.Link.Rate = r.rate, r.host
	s.Topology.Links.Queue, s.Topology.Hosts.Link.Queue = 512<<10, 512<<10
	s.Measure.Imbalance = 10 * time.Millisecond
	return s
}

func replay(ctx context.Context, w io.Writer, files, schemes []string, rate, host units.Rate) error {
	r, err := readRecords(files, rate, host)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "loomsim-replay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "flows.csv")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(r.trace(f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d flows of %v between %d leaves by %d uplinks of %v, hosts' links of %v; %d flows of short frames are left out\n\n",
		len(r.flows), r.length.Round(time.Millisecond), len(r.leaves), r.uplinks, r.rate, r.host, r.talk)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCHEME\tFLOWS\tUNFINISHED\tFCT MEAN\tFCT P50\tFCT P99\tIMBALANCE\tBUSIEST UPLINK\tLEAST BUSY\tDROPS")
	r.was(t)
	for _, scheme := range schemes {
		x, err := sim.Run(ctx, r.spec(scheme, path))
		if err != nil {
			return fmt.Errorf("scheme %s: %w", scheme, err)
		}
		would(t, scheme, x)
	}
	return t.Flush()
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// was prints what the records say: how long flows sent, and what the uplinks did.
func (r *replayed) was(w io.Writer) {
	took := measure.NewValues(len(r.flows)) // as the simulator's flows are measured
	for i := range r.flows {
		took.Add(time.Duration(max(r.flows[i].End-r.flows[i].Start, 0)).Seconds())
	}
	var shares []float64
	drops := uint64(0)
	scheme := r.dumps[0].Scheme
	imbalance := 0.0
	for _, d := range r.dumps {
		if d.Scheme != scheme {
			scheme = "several"
		}
		s, dropped := uplinkShares(d)
		drops += dropped
		shares = append(shares, s...)
		if len(s) > 0 {
			imbalance += (slices.Max(s) - slices.Min(s)) * float64(len(s)) / 100 / float64(len(r.dumps))
		}
	}
	busiest, least := "-", "-"
	if len(shares) > 0 {
		busiest, least = fmt.Sprintf("%.1f%%", slices.Max(shares)), fmt.Sprintf("%.1f%%", slices.Min(shares))
	}
	fmt.Fprintf(w, "was: %s\t%d\t-\t%v\t%v\t%v\t%.0f%% overall\t%s\t%s\t%d\n", scheme, len(r.flows), seconds(took.Mean()), seconds(took.Quantile(0.5)), seconds(took.Quantile(0.99)), 100*imbalance, busiest, least, drops)
}

// would prints what a run found.
func would(w io.Writer, scheme string, x *measure.Result) {
	var fct measure.ClassFCT
	for _, c := range x.FCT {
		if c.Class == "all" {
			fct = c
		}
	}
	imbalance := "-"
	if len(x.Imbalance) > 0 {
		imbalance = fmt.Sprintf("%.0f%% mean of 10ms", 100*x.Imbalance[0].Mean)
	}
	busiest, least := 0.0, 100.0
	for _, u := range x.Uplinks {
		if u.Bytes > 0 || u.Percent > 0 {
			busiest, least = max(busiest, u.Percent), min(least, u.Percent)
		}
	}
	drops := uint64(0)
	for _, n := range x.Drops {
		drops += n
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t%v\t%s\t%.1f%%\t%.1f%%\t%d\n", scheme, x.Flows, x.Unfinished, seconds(fct.MeanS), seconds(fct.P50S), seconds(fct.P99S), imbalance, busiest, least, drops)
}

// uplinkShares returns which part of what left into the fabric each uplink had, percent, and
// how many frames were dropped, from the first sample of a record to the last one.
func uplinkShares(d *record.Dump) (shares []float64, drops uint64) {
	if len(d.Samples) < 2 {
		return nil, 0
	}
	first, last := &d.Samples[0], &d.Samples[len(d.Samples)-1]
	sent, sum := map[int]uint64{}, uint64(0)
	for _, p := range last.Ports {
		i := slices.IndexFunc(first.Ports, func(q record.PortSample) bool { return q.Number == p.Number })
		if i < 0 {
			continue
		}
		sent[p.Number] = p.TxBytes - first.Ports[i].TxBytes
		drops += p.Dropped - first.Ports[i].Dropped
	}
	for _, p := range d.Ports {
		if p.Kind == "uplink" {
			sum += sent[p.Number]
		}
	}
	for _, p := range d.Ports {
		if p.Kind == "uplink" && sum > 0 {
			shares = append(shares, 100*float64(sent[p.Number])/float64(sum))
		}
	}
	return shares, drops
}
