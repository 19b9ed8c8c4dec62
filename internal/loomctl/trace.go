package loomctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/overlay"
)

// Trace is what becomes of a flow in a fabric, as its nodes say.
type Trace struct {
	Ingress string                 `json:"ingress"` // the leaf that it enters by
	Leaf    *dataplane.Explanation `json:"leaf"`    // what that one says
	Ways    []Way                  `json:"ways"`    // that it may go; of several, chance decides, or each packet's scheme
	Silent  []string               `json:"silent"`  // nodes that did not answer, and why
}

// Way is one way through the fabric.
type Way struct {
	VTEP     netip.Addr `json:"vtep"`     // where to; "": it does not enter the fabric
	Selector *uint8     `json:"selector"` // null: none, or it is chosen for each packet
	Hops     []TraceHop `json:"hops"`
	End      string     `json:"end"`    // arrives, flooded, dropped or unknown
	Drop     string     `json:"drop"`   // the reason's name; "": it is not dropped
	Reason   string     `json:"reason"` // of the end, if it does not arrive
	// RoundTrip, Loss and State are of the path, from leaf to leaf, by HELLOs. These go ahead
	// of data in every queue: RoundTrip is without what data wait.
	RoundTrip time.Duration `json:"round_trip_ns"` // 0: not known
	Loss      float64       `json:"loss"`
	State     string        `json:"state"`
}

// The ends of a [Way].
const (
	endArrives = "arrives"
	endFlooded = "flooded"
	endDropped = "dropped"
	endUnknown = "unknown"
)

// TraceHop is a node on a way.
type TraceHop struct {
	Node       string     `json:"node"`
	In         string     `json:"in"`       // port
	Out        string     `json:"out"`      // port; "": it ends here
	NextHop    netip.Addr `json:"next_hop"` // "" at the end
	Load       float64    `json:"utilisation"`
	QueueBytes uint64     `json:"queue_bytes"`
	// Wait is how long the bytes in the queue take at the port's rate; 0 if that is unknown.
	Wait   time.Duration `json:"wait_ns"`
	Reason string        `json:"reason"`
}

// ErrDropped says that a trace ends in a drop.
var ErrDropped = errors.New("the flow's packets are dropped")

// maxHops bounds a way: routes may go round in circles.
const maxHops = 16

func traceCommand(o *options) *cobra.Command {
	t := &tracer{options: o}
	c := &cobra.Command{
		Use: "trace SRC DST [PROTO [SPORT DPORT]]", Short: "A flow's way through the fabric, hop by hop, and where it ends",
		Long: "trace asks the leaf that the flow enters by, as explain does, then each node on the way\n" +
			"where it sends the leaf's packets, and the leaf at the end by which port they leave. The\n" +
			"nodes are those of the inventory or of the lab, and of a lab SRC and DST may be hosts'\n" +
			"names. Where SRC is, and DST's MAC address, the leaves know from what stations have\n" +
			"announced (ARP, ND); --from and --dst-mac say it where nobody has. The exit code is 1 if\n" +
			"the packets are dropped.",
		Args: flowArguments,
	}
	flowFlags(c)
	c.Flags().StringVar(&t.from, "from", "", "the leaf that the flow enters by")
	c.RunE = func(c *cobra.Command, args []string) error { return t.run(c, args) }
	return c
}

// tracer asks nodes about a flow.
type tracer struct {
	*options
	from string

	places map[string]place       // by MAC address
	nodes  map[string]*tracedNode // by name
	topo   *fabric.Topology       // of a lab; nil: there is none
	silent []string
}

// place is a port of a node.
type place struct{ node, port string }

type tracedNode struct {
	node
	role  string
	ports map[string]admin.Port
	err   error
}

func (t *tracer) run(c *cobra.Command, args []string) error {
	if t.socket != "" || len(t.names) > 0 {
		return errors.New("trace asks all nodes of the inventory, or of a lab: leave out --socket and --node")
	}
	v := &view[Trace]{whole: true, print: printTrace, judge: judgeTrace, ask: func(ctx context.Context, _ *node) (json.RawMessage, error) {
		x, err := t.trace(ctx, c, args)
		if err != nil {
			return nil, err
		}
		return json.Marshal(x)
	}}
	return v.show(c, t.options)
}

func judgeTrace(x *Trace) error {
	if slices.ContainsFunc(x.Ways, func(w Way) bool { return w.End == endDropped }) {
		return ErrDropped
	}
	return nil
}

// gather asks all nodes what they are, and which MAC addresses their ports have.
func (t *tracer) gather(ctx context.Context) error {
	all, err := t.source()
	if err != nil {
		return fmt.Errorf("%w; trace needs the nodes of an inventory or of a lab", err)
	}
	if t.lab != "" {
		if t.topo, err = fabric.OfLab(t.lab); err != nil {
			return err
		}
	}
	t.nodes, t.places, t.silent = make(map[string]*tracedNode), make(map[string]place), []string{}
	var wait sync.WaitGroup
	for _, name := range all.Names() {
		client, err := all.Client(name)
		if err != nil {
			return err
		}
		n := &tracedNode{node: node{name, client}}
		t.nodes[name] = n
		wait.Go(func() { n.look(ctx) })
	}
	wait.Wait()
	for _, name := range all.Names() {
		n := t.nodes[name]
		if n.err != nil {
			t.silent = append(t.silent, name+": "+n.err.Error())
			delete(t.nodes, name)
			continue
		}
		for port := range n.ports {
			t.places[n.ports[port].MAC] = place{name, port}
		}
	}
	return nil
}

func (n *tracedNode) look(ctx context.Context) {
	status, err := get[admin.Status](ctx, &n.node, "status", nil)
	if err != nil {
		n.err = err
		return
	}
	ports, err := get[admin.Ports](ctx, &n.node, "ports", nil)
	if err != nil {
		n.err = err
		return
	}
	n.role, n.ports = status.Role, make(map[string]admin.Port)
	for _, p := range ports.Ports {
		n.ports[p.Port] = p
	}
}

// trace answers for a flow.
func (t *tracer) trace(ctx context.Context, c *cobra.Command, args []string) (*Trace, error) {
	if err := t.gather(ctx); err != nil {
		return nil, err
	}
	q, in, err := t.ends(ctx, flowQuery(c, args))
	if err != nil {
		return nil, err
	}
	leaf := t.nodes[t.ingressName(in)]
	x := &Trace{Ingress: leaf.name, Ways: []Way{}, Silent: t.silent}
	if x.Leaf, err = get[dataplane.Explanation](ctx, &leaf.node, "explain", q); err != nil {
		return nil, fmt.Errorf("%s: %w", leaf.name, err)
	}
	first := TraceHop{Node: leaf.name, In: in.port}
	if x.Leaf.Destination == dataplane.DestinationLocal {
		first.Reason = "the destination is behind this leaf, too"
		w := Way{Hops: []TraceHop{first}, End: endArrives, Drop: x.Leaf.Drop}
		if w.Hops[0].out(leaf, x.Leaf.Port); w.Drop != "" {
			w.End, w.Reason = endDropped, "the port does not take it"
		}
		x.Ways = append(x.Ways, w)
		return x, nil
	}
	paths, err := get[admin.Paths](ctx, &leaf.node, "paths", nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", leaf.name, err)
	}
	for i := range x.Leaf.Peers {
		x.Ways = append(x.Ways, t.waysTo(ctx, x.Leaf, &x.Leaf.Peers[i], first, paths)...)
	}
	return x, nil
}

// waysTo follows a flow to a peer, by the uplink that it takes or by those that it may
// take.
func (t *tracer) waysTo(ctx context.Context, x *dataplane.Explanation, p *dataplane.PeerChoice, first TraceHop, paths *admin.Paths) (ways []Way) {
	if p.Drop != "" {
		first.Reason = p.Reason
		return []Way{{VTEP: p.VTEP, Hops: []TraceHop{first}, End: endDropped, Drop: p.Drop, Reason: p.Reason}}
	}
	for i := range p.Uplinks {
		u := &p.Uplinks[i]
		if p.Uplink != nil && *p.Uplink != u.Uplink || p.Uplink == nil && !slices.Contains(p.Fresh, int(u.Uplink)) {
			continue
		}
		w := Way{VTEP: p.VTEP, Selector: p.Selector}
		for _, peer := range paths.Peers {
			for _, path := range peer.Paths {
				if peer.VTEP == p.VTEP && path.Uplink == u.Uplink {
					w.RoundTrip, w.Loss, w.State = path.RoundTrip, path.Loss, path.State
				}
			}
		}
		h := first
		h.Reason = p.Reason
		h.NextHop = u.NextHop.Gateway
		h.out(t.nodes[h.Node], u.Port)
		w.Hops = append(w.Hops, h)
		t.follow(ctx, x, p, &w, u.NextHop)
		ways = append(ways, w)
	}
	return ways
}

// out notes a hop's way out.
func (h *TraceHop) out(n *tracedNode, port string) {
	p := n.ports[port]
	h.Out, h.Load, h.QueueBytes = port, p.Utilisation, p.QueueBytes
	if p.Rate > 0 {
		h.Wait = time.Duration(float64(p.QueueBytes) * 8e9 / float64(p.Rate))
	}
}

// end ends a way.
func (w *Way) end(end, drop, format string, args ...any) {
	w.End, w.Drop, w.Reason = end, drop, fmt.Sprintf(format, args...)
}

// follow asks one node after the other, from a next hop on.
func (t *tracer) follow(ctx context.Context, x *dataplane.Explanation, p *dataplane.PeerChoice, w *Way, next dataplane.NextHop) {
	for len(w.Hops) < maxHops {
		if !next.Resolved {
			w.end(endDropped, "", "%v does not answer who it is: packets wait for a while, and are dropped", next.Gateway)
			return
		}
		at, ok := t.places[next.MAC]
		if !ok {
			w.end(endUnknown, "", "%v (%s) is none of the nodes that answer: what it does is not known", next.Gateway, next.MAC)
			return
		}
		n := t.nodes[at.node]
		if n.role == "leafd" {
			t.arrive(ctx, x, w, n, at.port)
			return
		}
		q := url.Values{
			"src": {x.VTEP.String()}, "dst": {p.VTEP.String()}, "sport": {strconv.Itoa(int(x.SourcePort))}, "in": {at.port},
			"capable": {strconv.FormatBool(p.Capable)},
		}
		if p.Selector != nil {
			q.Set("selector", strconv.Itoa(int(*p.Selector)))
		}
		r, err := get[dataplane.RouteExplanation](ctx, &n.node, "route", q)
		if err != nil {
			w.end(endUnknown, "", "%s: %v", n.name, err)
			return
		}
		h := TraceHop{Node: n.name, In: at.port, Reason: r.Reason}
		switch {
		case r.Drop != "":
			w.Hops = append(w.Hops, h)
			w.end(endDropped, r.Drop, "%s: %s", n.name, r.Reason)
			return
		case r.NextHop == nil:
			w.Hops = append(w.Hops, h)
			w.end(endUnknown, "", "%s: %s, among %s", n.name, r.Reason, gateways(r.NextHops))
			return
		}
		h.NextHop = r.NextHop.Gateway
		h.out(n, r.NextHop.Port)
		w.Hops = append(w.Hops, h)
		next = *r.NextHop
	}
	w.end(endDropped, "ttl_expired", "the routes go round in circles")
}

// arrive asks the leaf at the end.
func (t *tracer) arrive(ctx context.Context, x *dataplane.Explanation, w *Way, n *tracedNode, in string) {
	h := TraceHop{Node: n.name, In: in}
	mac := x.DstMAC
	if mac == "" {
		w.Hops = append(w.Hops, h)
		w.end(endUnknown, "", "nobody has announced the destination: --dst-mac tells where it is")
		return
	}
	a, err := get[dataplane.ArrivalExplanation](ctx, &n.node, "arrival", url.Values{
		"from": {x.VTEP.String()}, "in": {in}, "vni": {strconv.Itoa(int(x.VNI))}, "dst_mac": {mac},
	})
	if err != nil {
		w.end(endUnknown, "", "%s: %v", n.name, err)
		return
	}
	h.Reason = a.Reason
	switch {
	case a.VTEP != w.VTEP:
		w.end(endDropped, "not_local_vtep", "%s is not %v, and a leaf routes nothing", n.name, w.VTEP)
	case a.Drop != "":
		w.end(endDropped, a.Drop, "%s: %s", n.name, a.Reason)
	case a.Destination == dataplane.DestinationFlooded:
		h.Out = strings.Join(a.Ports, ",")
		w.end(endFlooded, "", "%s", a.Reason)
	default:
		h.out(n, a.Ports[0])
		w.End = endArrives
	}
	w.Hops = append(w.Hops, h)
}

func gateways(hops []dataplane.NextHop) string {
	names := make([]string, len(hops))
	for i := range hops {
		names[i] = hops[i].Gateway.String() + "@" + hops[i].Port
	}
	return strings.Join(names, ", ")
}

// ingressName is the leaf that a flow enters by.
func (t *tracer) ingressName(in place) string {
	if t.from != "" {
		return t.from
	}
	return in.node
}

// ends replaces the names of a lab's hosts, and says where the source is.
func (t *tracer) ends(ctx context.Context, q url.Values) (url.Values, place, error) {
	var in place
	var named map[string]*fabric.Host
	if t.topo != nil {
		named = namedHosts(t.topo, q)
		setVNI(q, named)
	}
	for _, end := range flowEnds {
		h := named[end]
		if h == nil {
			h = t.host(q, q.Get(end))
		}
		if h == nil {
			continue
		}
		switch end {
		case "src":
			in = place{t.topo.Leaves[h.Leaf].Name, h.Port}
		case "dst":
			if !q.Has("dst_mac") {
				q.Set("dst_mac", overlay.MAC(h.MAC).String()) // the lab has made the host, and knows it
			}
		}
	}
	if t.from != "" {
		if n := t.nodes[t.from]; n == nil || n.role != "leafd" {
			return nil, in, fmt.Errorf("--from %s is no leaf that answers", t.from)
		}
		if in.node != t.from {
			in = place{node: t.from}
		}
	}
	if in.node == "" {
		var err error
		if in, err = t.find(ctx, q); err != nil {
			return nil, in, err
		}
	}
	if t.nodes[in.node] == nil {
		return nil, in, fmt.Errorf("the flow enters by %s, which does not answer", in.node)
	}
	return q, in, nil
}

// host returns the host of a lab that has an address; nil: none has.
func (t *tracer) host(q url.Values, text string) *fabric.Host {
	if t.topo == nil {
		return nil
	}
	for i := range t.topo.Hosts {
		h := &t.topo.Hosts[i]
		if vniFits(q, h.VNI) && (text == h.Addr.Addr().String() || text == h.Addr6.Addr().String()) {
			return h
		}
	}
	return nil
}

func vniFits(q url.Values, vni uint32) bool {
	return !q.Has("vni") || q.Get("vni") == strconv.Itoa(int(vni))
}

// find looks for the leaf that the source announced itself to.
func (t *tracer) find(ctx context.Context, q url.Values) (in place, err error) {
	src, err := netip.ParseAddr(q.Get("src"))
	if err != nil {
		return in, fmt.Errorf("%s is neither an IP address nor a host of a lab: --from says by which leaf the flow enters", q.Get("src"))
	}
	newest, vni := time.Duration(-1), uint32(0)
	for name, n := range t.nodes {
		if n.role != "leafd" {
			continue
		}
		table, err := get[dataplane.HostTable](ctx, &n.node, "hosts", url.Values{"limit": {"65536"}})
		if err != nil {
			return in, fmt.Errorf("%s: %w", name, err)
		}
		for _, h := range table.Hosts {
			if h.IP == src && h.Port != "" && vniFits(q, h.VNI) && (newest < 0 || h.Age < newest) {
				in, newest, vni = place{name, h.Port}, h.Age, h.VNI
			}
		}
	}
	if newest < 0 {
		return in, fmt.Errorf("nobody has announced %v to a leaf: --from says by which leaf the flow enters", src)
	}
	q.Set("vni", strconv.Itoa(int(vni)))
	return in, nil
}
