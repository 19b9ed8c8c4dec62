package loomctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/events"
)

func logCommand(o *options) *cobra.Command {
	parent := &cobra.Command{Use: "log", Short: "The daemon's log"}
	parent.AddCommand(&cobra.Command{
		Use: "level [LEVEL]", Short: "From which level on the daemon logs; with LEVEL, have it log from there on",
		Long: "LEVEL is debug, info, warn or error. It holds until the daemon's next start, or until it\n" +
			"takes over a changed file. Events are kept from info on, whatever the level is.",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1)),
		ValidArgs: []string{"debug", "info", "warn", "error"},
		RunE: func(c *cobra.Command, args []string) error {
			v := asking("log", nil, func(w io.Writer, l *admin.LogLevel) { fmt.Fprintln(w, l.Level) })
			if len(args) > 0 {
				v.ask = func(ctx context.Context, n *node) (json.RawMessage, error) {
					return n.client.Post(ctx, "log", url.Values{"level": args}, nil)
				}
			}
			return v.show(c, o)
		},
	})
	return parent
}

func eventsCommand(o *options) *cobra.Command {
	var since uint64
	c := &cobra.Command{
		Use: "events", Short: "What the daemon has logged: ports, peers, paths, addresses, reloads; with --watch what comes, too",
		Args: cobra.NoArgs,
	}
	c.Flags().Uint64Var(&since, "since", 0, "only events after the one of this number")
	limited(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := limitOf(c)
		if since > 0 {
			q.Set("since", strconv.FormatUint(since, 10))
		}
		if o.watch > 0 {
			return o.follow(c, q)
		}
		return asking("events", q, printEvents).show(c, o)
	}
	return c
}

func printEvents(w io.Writer, a *admin.Events) {
	if a.Lost > 0 {
		fmt.Fprintf(w, "%d earlier events are not listed\n", a.Lost)
	}
	for i := range a.Events {
		fmt.Fprintln(w, eventLine(&a.Events[i]))
	}
}

// objects are attributes that an event can be about.
var objects = []string{"peer", "uplink", "vtep", "mac", "vni", "port", "interface", "address", "file", "about"}

// said reports whether an event's line says an attribute already: whose it is, or what it
// is about.
func said(e *events.Event, key string) bool {
	value := e.Attrs[key]
	return key == "node" || slices.Contains(objects, key) && (value == e.Object || slices.Contains(strings.Fields(e.Object), value))
}

// eventLine writes an event in one line.
func eventLine(e *events.Event) string {
	var more []string
	for _, key := range slices.Sorted(maps.Keys(e.Attrs)) {
		if !said(e, key) {
			more = append(more, key+"="+e.Attrs[key])
		}
	}
	text := strings.ReplaceAll(fmt.Sprintf("%s %-5s %s: %s", e.Time.Format("2006-01-02 15:04:05.000"), e.Level, strings.TrimSpace(e.Kind+" "+e.Object), e.Text), "\n", " ")
	if len(more) > 0 {
		text += " (" + strings.ReplaceAll(strings.Join(more, ", "), "\n", " ") + ")"
	}
	return text
}

// NodeEvent is an event of one of several nodes that are followed.
type NodeEvent struct {
	Node string `json:"node,omitempty"`
	events.Event
}

// follow writes events as they come: lines, or one document each.
func (o *options) follow(c *cobra.Command, first url.Values) error {
	if err := o.check(); err != nil {
		return err
	}
	nodes, _, err := o.choose()
	if err != nil {
		return err
	}
	f := &follower{options: o, nodes: nodes, ask: make([]url.Values, len(nodes)), failed: make([]bool, len(nodes))}
	for i := range f.ask {
		f.ask[i] = first
	}
	tick := time.NewTicker(o.watch)
	defer tick.Stop()
	for c.Context().Err() == nil {
		if err := f.step(c); err != nil {
			return err
		}
		select {
		case <-c.Context().Done():
		case <-tick.C:
		}
	}
	return nil
}

// follower knows how far each node's events have been written.
type follower struct {
	*options
	nodes  []node
	ask    []url.Values
	failed []bool // the last question
}

// step writes what has come since the last one.
func (f *follower) step(c *cobra.Command) error {
	var all []NodeEvent
	for i := range f.nodes {
		n := &f.nodes[i]
		a, err := get[admin.Events](c.Context(), n, "events", f.ask[i])
		if err != nil {
			if !f.failed[i] && c.Context().Err() == nil {
				fmt.Fprintf(c.ErrOrStderr(), "loomctl: %s\n", strings.TrimPrefix(n.name+": "+err.Error(), ": "))
			}
			f.failed[i] = true
			continue
		}
		f.failed[i] = false
		f.ask[i] = url.Values{"since": {strconv.FormatUint(a.Last, 10)}}
		for _, e := range a.Events {
			all = append(all, NodeEvent{n.name, e})
		}
	}
	slices.SortStableFunc(all, func(a, b NodeEvent) int { return a.Time.Compare(b.Time) })
	for i := range all {
		if err := f.write(c.OutOrStdout(), &all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) write(w io.Writer, e *NodeEvent) error {
	if f.output == asTable {
		name := e.Node
		if name != "" {
			name += " "
		}
		_, err := fmt.Fprintln(w, name+eventLine(&e.Event))
		return err
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return f.document(w, raw)
}
