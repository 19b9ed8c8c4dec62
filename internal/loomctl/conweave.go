package loomctl

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

func printConWeave(w io.Writer, a *admin.ConWeave) {
	if a.ConWeaveState != nil {
		printSources(w, a.Sources)
		printAuto(w, a.Auto)
	}
	printSourceCounters(w, a.SourceCounters)
	printDestination(w, a)
	printTimes(w, a)
}

// printSources shows parameters, and what the connections wait for.
func printSources(w io.Writer, sources []dataplane.ConWeaveSource) {
	if len(sources) == 0 {
		fmt.Fprint(w, "no class reroutes: its scheme is not ConWeave's\n\n")
		return
	}
	t := newTable(w, "WORKER", "CLASS", "SCHEME", "REPLY", "PATH BUSY", "INACTIVE", "SAMPLES", "SELECTORS", "SIZE", "ACTIVE", "ASKED", "REROUTED", "MOVED")
	for i := range sources {
		s := &sources[i]
		t.row(s.Worker, s.Class, s.Scheme, age(s.Reply), age(s.PathBusy), age(s.Inactive), s.Samples, s.Selectors, s.Size, s.Active, s.Asked, s.Rerouted, s.Moved)
	}
	t.end()
	fmt.Fprintln(w)
	t = newTable(w, "WORKER", "CLASS", "FLOW", "PEER", "PATH", "PORT", "EPOCH", "STATE", "OLD PATH", "IDLE")
	rows := 0
	for i := range sources {
		for j := range sources[i].Connections {
			c := &sources[i].Connections[j]
			t.row(sources[i].Worker, sources[i].Class, fmt.Sprintf("%08x", c.Hash), peer(c.VTEP), c.Path, orNone(c.Port), c.Epoch, c.State, orNone(c.Old), age(c.Idle))
			rows++
		}
	}
	t.endUnlessEmpty(w, rows)
	t = newTable(w, "WORKER", "CLASS", "PEER", "BUSY PATH", "PORT", "FOR")
	rows = 0
	for i := range sources {
		for _, b := range sources[i].Busy {
			t.row(sources[i].Worker, sources[i].Class, peer(b.VTEP), b.Path, orNone(b.Port), age(b.For))
			rows++
		}
	}
	t.endUnlessEmpty(w, rows)
}

// printAuto shows the times that were derived, and from what.
func printAuto(w io.Writer, a *dataplane.AutoState) {
	if a == nil {
		return
	}
	t := newTable(w, "ROUND TRIPS", "P50", "P99", "P99.9", "CHANGES", "REPLY", "INACTIVE", "RESUME EXTRA", "RESUME DEFAULT", "MAX HOLD", "FLOWLET GAP")
	cells := []any{a.Samples, age(a.P50), age(a.P99), age(a.P999), a.Changes}
	d := &a.Times
	for _, derived := range []time.Duration{d.Reply, d.Inactive, d.ResumeExtra, d.ResumeDefault, d.MaxHold, d.FlowletGap} {
		cells = append(cells, either(derived > 0, age(derived), none))
	}
	t.row(cells...)
	t.end()
	fmt.Fprintln(w)
}

// endUnlessEmpty is end, and an empty line, for a table of so many rows.
func (t table) endUnlessEmpty(w io.Writer, rows int) {
	if rows > 0 {
		t.end()
		fmt.Fprintln(w)
	}
}

func peer(vtep netip.Addr) string { return either(vtep.IsValid(), vtep.String(), none) }

// printSourceCounters has a column for each scheme.
func printSourceCounters(w io.Writer, all []admin.ConWeaveSource) {
	if len(all) == 0 {
		return
	}
	head := []any{"SOURCE"}
	for i := range all {
		head = append(head, all[i].Scheme)
	}
	t := newTable(w, head...)
	row := func(name string, of func(*admin.ConWeaveSource) uint64) {
		cells := []any{name}
		for i := range all {
			cells = append(cells, of(&all[i]))
		}
		t.row(cells...)
	}
	type s = admin.ConWeaveSource
	row("epochs", func(x *s) uint64 { return x.Epochs })
	row("  ended by a pause", func(x *s) uint64 { return x.Inactive })
	row("  of those, without the CLEAR", func(x *s) uint64 { return x.Unclear })
	row("requests", func(x *s) uint64 { return x.Requests })
	row("  replies in time", func(x *s) uint64 { return x.Replies })
	row("  late replies", func(x *s) uint64 { return x.LateReplies })
	row("cut-offs", func(x *s) uint64 { return x.CutOffs })
	row("  reroutes", func(x *s) uint64 { return x.Reroutes })
	row("  attempts, all paths busy", func(x *s) uint64 { return x.Aborts })
	row("  attempts, peer short of queues", func(x *s) uint64 { return x.Refused })
	row("clears", func(x *s) uint64 { return x.Clears })
	row("notifies", func(x *s) uint64 { return x.Notifies })
	row("flows whose path went away", func(x *s) uint64 { return x.Moves })
	row("packets by hash, table full", func(x *s) uint64 { return x.OverflowFrames })
	row("packets by hash, peer plain", func(x *s) uint64 { return x.IncapableFrames })
	reasons := make(map[string]bool)
	for i := range all {
		for reason := range all[i].Ignored {
			reasons[reason] = true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		row("control ignored: "+reason, func(x *s) uint64 { return x.Ignored[reason] })
	}
	t.end()
	fmt.Fprintln(w)
}

func printDestination(w io.Writer, a *admin.ConWeave) {
	d := &a.DestinationCounters
	t := newTable(w, "DESTINATION", "PACKETS", "BYTES")
	t.row("arrived", d.ArrivedFrames, d.ArrivedBytes)
	t.row("  rerouted", d.ReroutedFrames, none)
	t.row("  held", d.HeldFrames, d.HeldBytes)
	for _, cause := range slices.Sorted(maps.Keys(d.UnorderedFrames)) {
		t.row("  out of order: "+cause, d.UnorderedFrames[cause], none)
	}
	t.row("arrived unmarked", d.UnmarkedFrames, none)
	for _, c := range d.Control {
		t.row("control "+c.Opcode, c.Frames, fmt.Sprintf("%d (%s)", c.Bytes, share(c.Bytes, d.ArrivedBytes)))
	}
	for _, reason := range slices.Sorted(maps.Keys(d.ControlUnsent)) {
		t.row("control not sent: "+reason, d.ControlUnsent[reason], none)
	}
	t.row("control that refuses reroutes", d.Refusals, none)
	t.row("control spared: NOTIFY", d.NotifiesSpared, none)
	t.end()

	fmt.Fprintln(w)
	t = newTable(w, "DESTINATION", "TIMES")
	t.row("epochs", d.Epochs)
	t.row("TAILs", d.Tails)
	t.row("taken", d.QueuesTaken)
	for _, cause := range slices.Sorted(maps.Keys(d.Flushes)) {
		t.row("  flushed: "+cause, d.Flushes[cause])
	}
	t.row("flows without a queue", d.NoQueue)
	t.row("T_resume by default", d.DefaultResumes)
	t.row("T_resume cut short", d.CappedResumes)
	t.end()
	if a.ConWeaveState == nil {
		return
	}
	s := &a.Destination
	fmt.Fprintln(w)
	t = newTable(w, "RESUME EXTRA", "RESUME DEFAULT", "INACTIVE", "MAX HOLD", "NOTIFY INTERVAL", "ADMISSION")
	t.row(age(s.ResumeExtra), age(s.ResumeDefault), age(s.Inactive), age(s.MaxHold), age(s.NotifyInterval), either(s.Admission > 0, fmt.Sprintf("%d%%", s.Admission), none))
	t.end()
	fmt.Fprintln(w)
	t = newTable(w, "HELD FOR", "QUEUES", "PEAK", "LIMIT", "PACKETS", "PEAK", "LIMIT", "BYTES", "PEAK", "LIMIT")
	use := func(name string, now, peak, limit *dataplane.HoldUse) {
		t.row(name, now.Queues, peak.Queues, limit.Queues, now.Packets, peak.Packets, limit.Packets, now.Bytes, peak.Bytes, limit.Bytes)
	}
	use("all ports", &s.Held, &s.Peak, &s.Limit)
	for i := range s.Ports {
		p := &s.Ports[i]
		use(either(p.Port != "", p.Port, "floods"), &p.Held, &p.Peak, &s.PortLimit)
	}
	t.end()
}

// share writes a part of the whole in percent, small ones to three digits.
func share(part, whole uint64) string {
	if whole == 0 {
		return none
	}
	return fmt.Sprintf("%.3g%%", 100*float64(part)/float64(whole))
}

func printTimes(w io.Writer, a *admin.ConWeave) {
	fmt.Fprintln(w)
	t := newTable(w, "TIME", "COUNT", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	row := func(name string, x *admin.Times) {
		if x.Count == 0 {
			t.row(name, 0, none, none, none, none, none, none)
			return
		}
		cells := []any{name, x.Count}
		for _, d := range []time.Duration{x.Mean, x.P50, x.P90, x.P99, x.P999, x.Max} {
			cells = append(cells, age(d))
		}
		t.row(cells...)
	}
	for i := range a.SourceCounters {
		row("reply, "+a.SourceCounters[i].Scheme, &a.SourceCounters[i].ReplyTime)
	}
	row("queue held", &a.DestinationCounters.HoldTime)
	row("TAIL before T_resume", &a.DestinationCounters.ResumeErrorEarly)
	row("TAIL after T_resume", &a.DestinationCounters.ResumeErrorLate)
	t.end()
}
