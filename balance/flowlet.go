package balance

import (
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/reorder"
)

// flowlets is what the schemes have in common that decide once a flowlet
// (CONGA §3.4): its packets follow the first one.
type flowlets struct {
	table *congestion.Flowlets
	fixed bool // the gap does not follow from round trips
}

// FlowletKeys are what schemes that keep flowlets are told beside their name.
type FlowletKeys struct {
	// Flowlets is the number of entries of each worker's flowlet table: a power of
	// two from 64 to 16777216, of 8 bytes each. Flows that share an entry can only
	// move together.
	Flowlets int `yaml:"flowlets"`
}

// Validate reports a size that makes no sense.
func (k *FlowletKeys) Validate() error {
	if k.Flowlets < 64 || k.Flowlets > 1<<24 || k.Flowlets&(k.Flowlets-1) != 0 {
		return fieldError("flowlets", "use a power of two from 64 to 16777216", "flowlet table of %d entries", k.Flowlets)
	}
	return nil
}

func flowletKeys() Params { return &FlowletKeys{congestion.DefaultFlowlets} }

func newFlowlets(o *Options, gap time.Duration) flowlets {
	if o.Memory != nil {
		return flowlets{table: congestion.NewFlowletsIn(o.Memory, gap, o.Congestion.Detector)}
	}
	return flowlets{table: congestion.NewFlowlets(o.Keys.(*FlowletKeys).Flowlets, gap, o.Congestion.Detector)}
}

// flowletGap and flowGap are the Scheme.Gap of schemes that keep flowlets, and of
// those for which a flowlet is to be a flow.
func flowletGap(p *congestion.Params) (time.Duration, string) { return p.FlowletGap, "flowlet_gap" }

func flowGap(p *congestion.Params) (time.Duration, string) { return p.FlowGap, "flow_gap" }

// Flowlets returns the table.
func (f *flowlets) Flowlets() *congestion.Flowlets { return f.table }

// Stats returns the table's counters; every decision starts a flowlet.
func (f *flowlets) Stats() Stats {
	s := f.table.Stats()
	return Stats{Decisions: s.Started, Flowlets: s}
}

// Retime changes the gap of schemes that move flows after one. A flowlet of
// conga-flow is a flow: its gap exceeds any round trip.
func (f *flowlets) Retime(now mono.Time, t *reorder.Times) error {
	if t.FlowletGap != 0 && !f.fixed {
		f.table.SetGap(now, t.FlowletGap)
	}
	return nil
}

// CarryVersion returns the version of what Save writes.
func (f *flowlets) CarryVersion() uint16 { return 1 }

// Save writes the active flowlets.
func (f *flowlets) Save(now mono.Time, w *snapshot.Writer) { f.table.Save(w, now) }

// Load reads what Save wrote. Flowlets are known by uplink alone.
func (f *flowlets) Load(r *snapshot.Reader, _ func(uint16) (uint16, bool)) { f.table.Load(r) }

// follow sends packets after their flowlets, from the i-th one on, until it
// comes to one for which a decision is due: it starts a flowlet, or the uplink
// of its flowlet no longer leads to the leaf. It returns the packet's index and
// the uplink that the flow's last flowlet took, or congestion.NoUplink; the
// index is len(pkts) when all are on their way. Packets without a path are
// passed over.
func (f *flowlets) follow(now mono.Time, v *View, pkts []Packet, i int) (next int, last uint8) {
	table := f.table
	at := table.Stamp(now)
	for ; i < len(pkts); i++ {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		last, active := table.Packet(p.Hash, at)
		path := paths.Index[last%MaxPaths]
		if active && path >= 0 {
			p.Path = uint8(path)
		} else if paths.N > 0 {
			return i, last
		}
	}
	return i, congestion.NoUplink
}

// start puts p, the first packet of a flowlet, on an uplink that leads to its
// leaf.
func (f *flowlets) start(now mono.Time, paths *Paths, p *Packet, uplink uint8) {
	f.table.Set(p.Hash, uplink, now)
	p.Path = uint8(paths.Index[uplink%MaxPaths])
}
