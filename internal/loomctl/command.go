// Package loomctl is the command line that shows people what a running node
// knows. It asks the admin API and prints; it must not work anything out.
package loomctl

import (
	"errors"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/dataplane"
)

// Command returns the command line, which prints to out.
func Command(out io.Writer) *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use: "loomctl", Short: "Show what a running leafd or spined knows",
		Long: "loomctl asks the admin API of a daemon on this machine (admin.listen), or of those that\n" +
			"--node or --lab names, and prints the answer: tables for people, with -o json or yaml what\n" +
			"the API said; of several nodes, an object by their names.\n\n" + exitCodes,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(out)
	o.add(root)
	root.AddCommand(
		command(o, "status", "status", "Whether the node is ready, and if not, why", printStatus),
		configCommand(o),
		topCommand(o),
		logCommand(o),
		eventsCommand(o),
		command(o, "ports", "ports", "Ports: state, load, counters", printPorts),
		command(o, "fast", "fast", "The fast path: which ports XDP forwards by, why not, and how much", printFast),
		command(o, "peers", "peers", "Peers: whether they speak the fabric's header, next hops, traffic", printPeers),
		command(o, "paths", "paths", "Paths to each peer: whether they deliver, round trips, losses", printPaths),
		command(o, "conga", "conga", "Congestion of each uplink towards each peer, and what is fed back", printConga),
		limited(command(o, "conweave", "conweave", "ConWeave: parameters, counters and times of both sides; with --limit also connections", printConWeave)),
		limited(command(o, "flowlets", "flowlets", "Flowlet tables, active flowlets first", printFlowlets)),
		limited(command(o, "fdb", "fdb", "MAC addresses, and where they live", printFDB)),
		limited(command(o, "hosts", "hosts", "IP addresses that stations have announced, and their MAC addresses", printHosts)),
		limited(command(o, "flows", "flows", "What is under way: flowlets and flows that a scheme remembers, and their paths", printFlows)),
		command(o, "routes", "routes", "Where packets to VTEPs go: next hops and their MAC addresses", printRoutes),
		explainCommand(o),
		traceCommand(o),
		doctorCommand(o), supportCommand(o),
		command(o, "schemes", "stats", "Schemes: decisions, and what only one scheme counts, on both sides", printSchemes),
		captureCommand(o), recordCommand(o),
		command(o, "stats", "stats", "Where frames came from and went, drops, decisions, feedback, messages", printStats),
	)
	return root
}

// command returns one that asks for what and prints the answer.
func command[T any](o *options, use, what, short string, print func(io.Writer, *T)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return asking(what, limitOf(c), print).show(c, o)
	}}
}

// limited lets the caller bound an answer.
func limited(c *cobra.Command) *cobra.Command {
	c.Flags().Int("limit", 0, "list at most this many entries (default: what the daemon thinks reasonable)")
	return c
}

// limitOf returns the parameters of a command that [limited] may have given a flag.
func limitOf(c *cobra.Command) url.Values {
	q := url.Values{}
	if f := c.Flags().Lookup("limit"); f != nil && f.Value.String() != "0" {
		q.Set("limit", f.Value.String())
	}
	return q
}

func explainCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "explain SRC DST [PROTO [SPORT DPORT]]", Short: "The uplink that a flow takes, and why",
		Long: "SRC and DST are IP addresses, or MAC addresses for what is not IP. PROTO is a name or\n" +
			"a number; without it, a ping is meant. Where DST is, the leaf knows if DST has\n" +
			"announced itself (ARP, ND), or from --dst-mac; else the answer is for each peer.",
		Args: flowArguments,
	}
	flowFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		q := flowQuery(c, args)
		named, err := o.nameHosts(q)
		if err != nil {
			return err
		}
		setVNI(q, named)
		return asking("explain", q, func(w io.Writer, x *dataplane.Explanation) { printExplanation(w, args, x) }).show(c, o)
	}
	return c
}

// flowArguments checks how many arguments name a flow.
func flowArguments(_ *cobra.Command, args []string) error {
	if n := len(args); n != 2 && n != 3 && n != 5 {
		return errors.New("give SRC DST, SRC DST PROTO, or SRC DST PROTO SPORT DPORT")
	}
	return nil
}

// flowFlags adds what else may be said of a flow.
func flowFlags(c *cobra.Command) {
	c.Flags().Uint("vni", 0, "virtual network (default: the leaf's, if it has only one)")
	c.Flags().String("dscp", "", "DSCP of the packets, which may decide on their class: a number or a name, as ef")
	c.Flags().String("dst-mac", "", "MAC address of DST (default: what DST has announced by ARP or ND)")
}

// flowQuery returns the parameters of a flow.
func flowQuery(c *cobra.Command, args []string) url.Values {
	q := url.Values{}
	for i, name := range []string{"src", "dst", "proto", "sport", "dport"} {
		if i < len(args) {
			q.Set(name, args[i])
		}
	}
	for flag, name := range map[string]string{"vni": "vni", "dscp": "dscp", "dst-mac": "dst_mac"} {
		if c.Flags().Changed(flag) {
			q.Set(name, c.Flags().Lookup(flag).Value.String())
		}
	}
	return q
}
