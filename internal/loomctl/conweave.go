package loomctl

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

func printConWeave(w io.Writer, a *admin.ConWeave) {
	if a.ConWeaveState != nil {
		printSources(w, a.Sources)
		printAuto(w, a.Auto)
	}
	source, destination := stat.TableOf(&balance.ConWeaveStats{}, ""), stat.TableOf(&reorder.Stats{}, "")
	messages := stat.TableOf(&leaf.Stats{}, "")
	var times []timesRow
	if len(a.SourceCounters) > 0 {
		printCounters(w, "SOURCE", a.SourceCounters, source)
	}
	for _, c := range a.SourceCounters {
		times = append(times, timesOf(c, source)...)
	}
	d := a.DestinationCounters
	printCounters(w, "DESTINATION", []admin.Counters{d}, destination)
	printCounters(w, "LEAF", []admin.Counters{d}, messages)
	printMessages(w, d, d.Number("arrived_bytes"))
	if a.ConWeaveState != nil {
		printHolds(w, &a.Destination)
	}
	printTimes(w, slices.Concat(times, timesOf(d, destination), timesOf(d, messages)))
}

// printSources shows parameters, and what the connections wait for.
func printSources(w io.Writer, sources []dataplane.ConWeaveSource) {
	if len(sources) == 0 {
		fmt.Fprint(w, "no class reroutes: its scheme is not ConWeave's\n\n")
		return
	}
	t := newTable(w, "WORKER", "CLASS", "SCHEME", "REPLY", "PATH BUSY", "INACTIVE", "SAMPLES", "SELECTORS", "SIZE", "ACTIVE", "ASKED", "REROUTED", "MOVED")
	connections := newTable(w, "WORKER", "CLASS", "FLOW", "PEER", "PATH", "PORT", "EPOCH", "STATE", "OLD PATH", "IDLE")
	busy := newTable(w, "WORKER", "CLASS", "PEER", "BUSY PATH", "PORT", "FOR")
	for i := range sources {
		s := &sources[i]
		reply := age(s.Reply)
		if s.ReplyExtra > 0 {
			reply = "rtt+" + age(s.ReplyExtra)
		}
		t.row(s.Worker, s.Class, s.Scheme, reply, age(s.PathBusy), age(s.Inactive), s.Samples, s.Selectors, s.Size, s.Active, s.Asked, s.Rerouted, s.Moved)
		for j := range s.Connections {
			c := &s.Connections[j]
			connections.row(s.Worker, s.Class, fmt.Sprintf("%08x", c.Hash), peer(c.VTEP), c.Path, orNone(c.Port), c.Epoch, c.State, orNone(c.Old), age(c.Idle))
		}
		for _, b := range s.Busy {
			busy.row(s.Worker, s.Class, peer(b.VTEP), b.Path, orNone(b.Port), age(b.For))
		}
	}
	t.endWithGap()
	connections.endUnlessEmpty()
	busy.endUnlessEmpty()
}

// printAuto shows the times that were derived, and from what.
func printAuto(w io.Writer, a *dataplane.AutoState) {
	if a == nil {
		return
	}
	head := []any{"ROUND TRIPS", "P50", "P99", "P99.9", "CHANGES"}
	cells := []any{a.Samples, age(a.P50), age(a.P99), age(a.P999), a.Changes}
	table := stat.TableOf(&reorder.Times{}, "")
	for i := range table.Fields {
		f := &table.Fields[i]
		derived := time.Duration(f.Count(&a.Times))
		head, cells = append(head, strings.ToUpper(words(f.Value))), append(cells, either(derived > 0, age(derived), none))
	}
	t := newTable(w, head...)
	t.row(cells...)
	t.endWithGap()
}

func peer(vtep netip.Addr) string { return either(vtep.IsValid(), vtep.String(), none) }

// printHolds shows the parameters of the destination side, and what it holds.
func printHolds(w io.Writer, s *dataplane.ConWeaveDestination) {
	t := newTable(w, "RESUME EXTRA", "RESUME DEFAULT", "INACTIVE", "MAX HOLD", "NOTIFY INTERVAL", "ADMISSION")
	t.row(age(s.ResumeExtra), age(s.ResumeDefault), age(s.Inactive), age(s.MaxHold), age(s.NotifyInterval), either(s.Admission > 0, fmt.Sprintf("%d%%", s.Admission), none))
	t.endWithGap()
	t = newTable(w, "HELD FOR", "QUEUES", "PEAK", "LIMIT", "PACKETS", "PEAK", "LIMIT", "BYTES", "PEAK", "LIMIT")
	use := func(name string, now, peak, limit *dataplane.HoldUse) {
		t.row(name, now.Queues, peak.Queues, limit.Queues, now.Packets, peak.Packets, limit.Packets, now.Bytes, peak.Bytes, limit.Bytes)
	}
	use("all ports", &s.Held, &s.Peak, &s.Limit)
	for i := range s.Ports {
		p := &s.Ports[i]
		use(either(p.Port != "", p.Port, "floods"), &p.Held, &p.Peak, &s.PortLimit)
	}
	t.endWithGap()
}
