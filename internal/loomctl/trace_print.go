package loomctl

import (
	"fmt"
	"io"
	"time"
)

// printTrace shows the ways of a flow.
func printTrace(w io.Writer, x *Trace) {
	l := x.Leaf
	t := newTable(w, "leaf", fmt.Sprintf("%s (%v), VNI %d, class %d, %s", x.Ingress, l.VTEP, l.VNI, l.Class, l.Scheme))
	t.row("hash", fmt.Sprintf("%08x of %s; outer source port %d", l.Hash, l.Hashed, l.SourcePort))
	switch {
	case l.Announced != nil:
		t.row("goes to", fmt.Sprintf("%s, announced %s ago: %s", l.DstMAC, age(*l.Announced), l.Destination))
	case l.DstMAC != "":
		t.row("goes to", l.DstMAC+": "+l.Destination)
	default:
		t.row("goes to", "any peer: nobody has announced the destination")
	}
	t.end()
	if len(x.Ways) == 0 {
		fmt.Fprintln(w, "\nno peer is in the network: it goes nowhere")
	}
	for i := range x.Ways {
		printWay(w, &x.Ways[i], len(x.Ways) > 1)
	}
	for _, s := range x.Silent {
		fmt.Fprintf(w, "\nno answer from %s\n", s)
	}
}

func printWay(w io.Writer, x *Way, several bool) {
	fmt.Fprintln(w)
	if several {
		fmt.Fprintf(w, "one way, to %v:\n", x.VTEP)
	}
	t := newTable(w, "HOP", "NODE", "IN", "OUT", "NEXT HOP", "LOAD", "QUEUED", "WHY")
	for i := range x.Hops {
		h := &x.Hops[i]
		next := none
		if h.NextHop.IsValid() {
			next = h.NextHop.String()
		}
		t.row(i+1, h.Node, orNone(h.In), orNone(h.Out), next, percent(h.Load), h.QueueBytes, h.Reason)
	}
	t.end()
	switch {
	case x.End == endArrives:
		fmt.Fprint(w, "it arrives")
	case x.Drop != "":
		fmt.Fprintf(w, "it is dropped (%s): %s", x.Drop, x.Reason)
	default:
		fmt.Fprintf(w, "%s: %s", x.End, x.Reason)
	}
	switch {
	case x.State == "":
	case x.RoundTrip == 0:
		fmt.Fprintf(w, "; the path is %s, round trip not measured, loss %s", x.State, percent(x.Loss))
	default:
		fmt.Fprintf(w, "; the path is %s, loss %s\n", x.State, percent(x.Loss))
		fmt.Fprintf(w, "the round trip is %v: that of HELLOs, which overtake the data that wait in the queues above (%s)", x.RoundTrip.Round(time.Microsecond), age(x.wait()))
	}
	fmt.Fprintln(w)
}

// wait is how long data wait in the queues on a way, as far as rates are known.
func (w *Way) wait() (sum time.Duration) {
	for i := range w.Hops {
		sum += w.Hops[i].Wait
	}
	return sum
}
