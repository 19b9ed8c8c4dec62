package loomctl

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
)

// table aligns rows of cells.
type table struct {
	w    io.Writer
	tabs *tabwriter.Writer
	rows int // the head is one
}

func newTable(w io.Writer, head ...any) *table {
	t := &table{w: w, tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t *table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.tabs, "\t")
		}
		fmt.Fprint(t.tabs, c)
	}
	fmt.Fprintln(t.tabs)
	t.rows++
}

// end prints the table.
func (t *table) end() { t.tabs.Flush() }

// endWithGap prints the table and an empty line.
func (t *table) endWithGap() {
	t.end()
	fmt.Fprintln(t.w)
}

// endUnlessEmpty does the same if there is more than the head.
func (t *table) endUnlessEmpty() {
	if t.rows > 1 {
		t.endWithGap()
	}
}

// none is printed where there is nothing.
const none = "-"

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

func orNone(s string) string { return either(s != "", s, none) }

// age writes a time to three digits.
func age(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func rate(bits uint64) string {
	switch {
	case bits == 0:
		return none
	case bits >= 1e9:
		return strconv.FormatFloat(float64(bits)/1e9, 'g', 4, 64) + "Gbit"
	case bits >= 1e6:
		return strconv.FormatFloat(float64(bits)/1e6, 'g', 4, 64) + "Mbit"
	}
	return strconv.FormatFloat(float64(bits)/1e3, 'g', 4, 64) + "kbit"
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func printStatus(w io.Writer, a *admin.Status) {
	fmt.Fprintf(w, "%s (%s %s) is %s\n", a.Name, a.Role, a.Version, either(a.Ready, "ready", "not ready"))
	if a.Ready {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "REASON", "PORT", "DETAIL")
	for _, r := range a.Reasons {
		t.row(r.Name, orNone(r.Port), r.Detail)
	}
	t.end()
}

func printPorts(w io.Writer, a *admin.Ports) {
	t := newTable(w, "PORT", "KIND", "STATE", "MTU", "XDP", "RATE", "RATE BY", "LOAD", "METRIC", "QUEUED", "RX FRAMES", "TX FRAMES", "DROPPED")
	for _, p := range a.Ports {
		state := either(p.Up, "up", "down")
		if !p.Open {
			state = "closed"
		}
		t.row(p.Port, p.Kind, state, mtu(&p), orNone(strings.Trim(p.XDPMode+"/"+p.CopyMode, "/")), rate(p.Rate), either(p.Rate != 0, p.RateFrom, "unknown"), percent(p.Utilisation), p.Metric,
			p.QueueBytes, p.RxFrames, p.TxFrames, p.Dropped)
	}
	t.end()
	for _, p := range a.Ports {
		if p.Error != "" {
			fmt.Fprintf(w, "\n%s is not open: %s\n", p.Port, p.Error)
		}
	}
}

// mtu shows also what a port needs that has too little.
func mtu(p *admin.Port) string {
	if p.MTU > 0 && p.MTU < p.MTUNeeded {
		return fmt.Sprintf("%d of %d", p.MTU, p.MTUNeeded)
	}
	return strconv.Itoa(p.MTU)
}

func printPeers(w io.Writer, a *admin.Peers) {
	t := newTable(w, "PEER", "HEADER", "STATE", "NEXT HOPS", "SENT", "BYTES", "RECEIVED", "BYTES")
	for _, p := range a.Peers {
		var hops []string
		for _, h := range p.NextHops {
			hops = append(hops, fmt.Sprintf("%v@%s%s%s", h.Gateway, h.Port, either(h.Weight > 1, fmt.Sprint("*", h.Weight), ""), either(h.Resolved, "", "(unresolved)")))
		}
		t.row(p.VTEP, header(p.Capable), p.State, orNone(strings.Join(hops, " ")), p.SentFrames, p.SentBytes, p.ReceivedFrames, p.ReceivedBytes)
	}
	t.end()
}

// header names the kind of header that a peer gets.
func header(capable bool) string { return either(capable, "fabric", "plain") }

func printPaths(w io.Writer, a *admin.Paths) {
	t := newTable(w, "PEER", "UPLINK", "PORT", "STATE", "TRAFFIC", "ROUND TRIP", "LOSS", "GIVEN UP")
	for _, p := range a.Peers {
		for _, x := range p.Paths {
			t.row(p.VTEP, x.Uplink, x.Port, x.State, either(x.Avoided, "keeps off", "may use it"),
				either(x.RoundTrip > 0, x.RoundTrip.Round(time.Microsecond).String(), none), percent(x.Loss), x.GivenUp)
		}
	}
	t.end()
}

func printConga(w io.Writer, a *admin.Conga) {
	t := newTable(w, "PEER", "HEADER", "UPLINK", "PORT", "USABLE", "LOAD", "LOCAL", "REMOTE", "REMOTE AGE")
	back := newTable(w, "PEER", "ITS UPLINK", "METRIC FED BACK", "AGE")
	for _, p := range a.Peers {
		for _, u := range p.Paths {
			t.row(p.VTEP, header(p.Capable), u.Uplink, u.Port, usable(&u), percent(u.Utilisation), u.Local, remote(&u), remoteAge(&u))
		}
		for _, m := range p.FromLeaf {
			back.row(p.VTEP, m.Tag, m.Metric, age(m.Age))
		}
	}
	t.endWithGap()
	back.end()
}

// usable says whether traffic may take a path.
func usable(p *dataplane.PathState) string {
	if p.Usable && p.Avoided {
		return "avoided"
	}
	return either(p.Usable, "yes", "no")
}

func remote(p *dataplane.PathState) string {
	return either(p.RemoteKnown, strconv.Itoa(int(p.Remote)), none)
}

func remoteAge(p *dataplane.PathState) string {
	return either(p.RemoteKnown, age(p.RemoteAge), none)
}

func printFlowlets(w io.Writer, a *admin.Flowlets) {
	if len(a.Tables) == 0 {
		fmt.Fprintln(w, "no scheme in use keeps flowlets")
		return
	}
	t := newTable(w, "WORKER", "CLASS", "SCHEME", "SIZE", "USED", "ACTIVE", "STARTED", "MOVED", "KEPT", "EXPIRED")
	entries := newTable(w, "WORKER", "CLASS", "SLOT", "UPLINK", "PORT", "STATE", "IDLE")
	for _, f := range a.Tables {
		t.row(f.Worker, f.Class, f.Scheme, f.Size, f.Used, f.Active, f.Started, f.Moved, f.Kept, f.Expired)
		for _, e := range f.Entries {
			entries.row(f.Worker, f.Class, e.Slot, e.Uplink, e.Port, either(e.Active, "active", "ended"), age(e.Idle))
		}
	}
	t.end()
	if entries.rows > 1 {
		fmt.Fprintln(w)
		entries.end()
	}
}

func printFDB(w io.Writer, a *dataplane.FDBTable) {
	t := newTable(w, "VNI", "MAC", "BEHIND", "VLAN", "AGE")
	for _, e := range a.Entries {
		vlan := none
		if e.VLAN != 0 {
			vlan = strconv.Itoa(int(e.VLAN))
		}
		t.row(e.VNI, e.MAC, behind(e.VTEP, e.Port), vlan, either(e.Static, "static", age(e.Age)))
	}
	t.end()
	if len(a.Entries) < a.Total {
		fmt.Fprintf(w, "\n%d of %d addresses; --limit lists more\n", len(a.Entries), a.Total)
	}
}

func printFast(w io.Writer, s *dataplane.FastState) {
	fmt.Fprintf(w, "XDP %s\n", either(s.On, "forwards what it can by itself", "forwards nothing by itself: "+s.Reason))
	if len(s.Ports) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "PORT", "FRAMES", "BYTES", "SENT BYTES", "REFUSED", "FAST IN", "FAST OUT")
	for i := range s.Ports {
		p := &s.Ports[i]
		t.row(p.Port, p.Frames, p.Bytes, p.Sent, p.Lost, either(p.In == "", "yes", "no: "+p.In), either(p.Out == "", "yes", "no: "+p.Out))
	}
	t.endWithGap()
	t = newTable(w, "PORT", "TO THE WORKERS", "FRAMES")
	for i := range s.Ports {
		for _, reason := range slices.Sorted(maps.Keys(s.Ports[i].Slow)) {
			t.row(s.Ports[i].Port, words(reason), s.Ports[i].Slow[reason])
		}
	}
	t.end()
	if c := &s.Choice; c.Count > 0 {
		fmt.Fprintf(w, "\nthe choice of uplinks was %v old when it was made anew (median; p99 %v, p99.9 %v)\n", c.P50, c.P99, c.P999)
	}
}

func printHosts(w io.Writer, a *dataplane.HostTable) {
	t := newTable(w, "VNI", "IP", "MAC", "ANNOUNCED BY WAY OF", "AGE")
	for _, h := range a.Hosts {
		t.row(h.VNI, h.IP, h.MAC, behind(h.VTEP, orNone(h.Port)), age(h.Age))
	}
	t.end()
	if len(a.Hosts) < a.Total {
		fmt.Fprintf(w, "\n%d of %d addresses; --limit lists more\n", len(a.Hosts), a.Total)
	}
}

func printRoutes(w io.Writer, a *admin.Routes) {
	t := newTable(w, "VTEPS", "NEXT HOP", "PORT", "MAC", "WEIGHT")
	for _, r := range a.Routes {
		if len(r.NextHops) == 0 {
			t.row(r.Prefix, "none: packets are dropped", none, none, none)
		}
		for i, h := range r.NextHops {
			t.row(either(i == 0, r.Prefix.String(), ""), h.Gateway, h.Port, either(h.Resolved, h.MAC, "unresolved"), h.Weight)
		}
	}
	t.end()
}

func printFlows(w io.Writer, a *admin.Flows) {
	if len(a.Flows) == 0 {
		fmt.Fprintln(w, "nothing is under way that a scheme remembers; loomctl explain says where any flow goes")
		return
	}
	t := newTable(w, "WORKER", "CLASS", "SCHEME", "FLOW", "PEER", "PATH", "PORT", "STATE", "IDLE")
	for _, f := range a.Flows {
		peer := none
		if f.VTEP.IsValid() {
			peer = f.VTEP.String()
		}
		class, state := none, f.State
		if f.Class != nil {
			class = strconv.Itoa(*f.Class)
		}
		switch f.State {
		case admin.FlowSprayed:
			state = fmt.Sprintf("sprayed, next is %d", *f.Number)
		case admin.FlowWaits:
			state = fmt.Sprintf("arrives: %d wait for %d", f.Held, *f.Number)
		}
		t.row(f.Worker, class, f.Scheme, f.Flow, peer, orNone(f.Path), orNone(f.Port), state, age(f.Idle))
	}
	t.end()
	if len(a.Flows) < a.Active {
		fmt.Fprintf(w, "\n%d of %d; --limit lists more\n", len(a.Flows), a.Active)
	}
}

func behind(vtep netip.Addr, port string) string {
	if vtep.IsValid() {
		return vtep.String()
	}
	return port
}

func printStats(w io.Writer, s *admin.Stats) {
	fmt.Fprintf(w, "%s (%s %s)\n\n", s.Name, s.Role, s.Version)
	t := newTable(w, "WORKER", "RECEIVED", "MADE", "SENT", "DROPPED", "CONSUMED", "HELD", "BOOKS", "FDB")
	for _, x := range s.Workers {
		t.row(either(x.Fast, "xdp", strconv.Itoa(x.Worker)), x.Received, x.Made, x.Sent, x.Dropped, x.Consumed, x.Held, either(x.Balances, "balance", "DO NOT BALANCE"), x.FDBEntries)
	}
	t.end()
	if len(s.Drops) > 0 {
		fmt.Fprintln(w)
		t = newTable(w, "DROPPED BECAUSE", "FRAMES")
		for _, reason := range slices.Sorted(maps.Keys(s.Drops)) {
			t.row(reason, s.Drops[reason])
		}
		t.end()
	}
	if len(s.Schemes) == 0 {
		return
	}
	fmt.Fprintln(w)
	printDecisions(w, s.Schemes)
	printCounters(w, "FABRIC HEADER", []admin.Counters{s.Exchange}, stat.TableOf(&congestion.ExchangeStats{}, ""))
	printCounters(w, "LEAF", []admin.Counters{s.Leaf}, stat.TableOf(&leaf.Stats{}, ""))
	printMessages(w, s.Leaf, 0)
	printTimes(w, timesOf(s.Leaf, stat.TableOf(&leaf.Stats{}, "")))
}
