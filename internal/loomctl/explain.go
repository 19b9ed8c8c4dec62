package loomctl

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
)

// printExplanation answers for the flow that the arguments name.
func printExplanation(w io.Writer, args []string, x *dataplane.Explanation) {
	t := newTable(w, "flow", flowName(args)+fmt.Sprintf(", VNI %d", x.VNI))
	t.row("hash", fmt.Sprintf("%08x of %s; outer source port %d", x.Hash, x.Hashed, x.SourcePort))
	t.row("class", fmt.Sprintf("%d, %s", x.Class, x.Scheme))
	switch x.Destination {
	case dataplane.DestinationLocal:
		t.row("goes to", fmt.Sprintf("port %s of this leaf: it does not enter the fabric%s", x.Port, either(x.Drop != "", ", and is dropped: "+words(x.Drop), "")))
	case dataplane.DestinationFlooded:
		t.row("goes to", "every member of the VNI: no address of one station, or one that is not known; a copy to each peer")
	case dataplane.DestinationUnnamed:
		t.row("goes to", "any peer: nobody has announced the destination; --dst-mac tells where it is")
	}
	if x.Announced != nil {
		t.row("announced", fmt.Sprintf("as %s, %s ago", x.DstMAC, age(*x.Announced)))
	}
	if f := x.Flowlet; f != nil {
		t.row("flowlet", fmt.Sprintf("%s on uplink %d (%s), last packet %s ago, worker %d", either(f.Active, "active", "ended"), f.Uplink, f.Port, age(f.Idle), x.Worker))
	}
	if c := x.Connection; c != nil {
		t.row("connection", fmt.Sprintf("epoch %d to %v, %s; last packet %s ago, worker %d", c.Epoch, c.VTEP, connectionState(c), age(c.Idle), x.Worker))
	}
	t.end()
	for i := range x.Peers {
		printChoice(w, &x.Peers[i])
	}
}

// flowName writes a flow as its arguments do.
func flowName(args []string) string {
	switch len(args) {
	case 2:
		return args[0] + " to " + args[1]
	case 3:
		return args[0] + " to " + args[1] + " " + args[2]
	}
	return fmt.Sprintf("%s port %s to %s port %s %s", args[0], args[3], args[1], args[4], args[2])
}

func printChoice(w io.Writer, p *dataplane.PeerChoice) {
	if len(p.Uplinks) == 0 {
		fmt.Fprintf(w, "\nto %v: %s\n", p.VTEP, p.Reason)
		return
	}
	verdict := "no uplink is certain"
	if p.Uplink != nil {
		verdict = "takes " + uplinkName(p, int(*p.Uplink))
	}
	fmt.Fprintf(w, "\nto %v: %s: %s\n", p.VTEP, verdict, p.Reason)
	t := newTable(w, "UPLINK", "PORT", "LOAD", "LOCAL", "REMOTE", "REMOTE AGE", "COMBINED", "TAKEN")
	for i := range p.Uplinks {
		u := &p.Uplinks[i]
		combined := none
		if u.Combined != nil {
			combined = strconv.Itoa(*u.Combined)
		}
		taken := none
		switch {
		case p.Uplink != nil && *p.Uplink == u.Uplink:
			taken = "now"
		case slices.Contains(p.Fresh, int(u.Uplink)):
			taken = either(p.Uplink == nil, "maybe", "if it started now")
		case u.Avoided:
			taken = "avoided: it does not deliver"
		}
		t.row(u.Uplink, u.Port, percent(u.Utilisation), u.Local, remote(&u.PathState), remoteAge(&u.PathState), combined, taken)
	}
	t.end()
}

// connectionState says which path a flow is on and what its connection waits for.
func connectionState(c *dataplane.ConnectionEntry) string {
	path := fmt.Sprintf("path %s (%s)", c.Path, orNone(c.Port))
	switch c.State {
	case balance.ConnectionAsked:
		return "on " + path + ", asked for a reply"
	case balance.ConnectionRerouted:
		return "rerouted from path " + c.Old + " to " + path + ", not cleared yet"
	case balance.ConnectionMoved:
		return "moved to " + path + " as its own went away"
	}
	return "on " + path + ", its next packet asks for a reply"
}

func uplinkName(p *dataplane.PeerChoice, uplink int) string {
	for i := range p.Uplinks {
		if int(p.Uplinks[i].Uplink) == uplink {
			return fmt.Sprintf("uplink %d (%s)", uplink, p.Uplinks[i].Port)
		}
	}
	return fmt.Sprintf("uplink %d", uplink)
}
