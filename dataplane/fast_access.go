package dataplane

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// fastRules are traffic classes as the fast path knows them. They have half of the tables of
// flowlets, and those that come after them the other half, as the workers use both for a
// moment. What rows know changes under fastPath.choosing; the rest never does.
type fastRules struct {
	rules   []Class
	classes []fastClass
	half    int
	rows    *leaf.Rows
}

// fastClass is what the fast path does with a class.
type fastClass struct {
	decider uint8  // bpf.FastBy…
	table   int    // of flowlets, if it is FastByFlowlet
	size    int    // of that table
	why     string // why its frames are the workers'; "": they need not be
}

// newFastRules finds out what XDP can do with classes.
func newFastRules(cfg *Config, rules []Class, half int, shared *leaf.Shared) (*fastRules, error) {
	rows, err := leaf.NewRows(leaf.Config{
		Seed: cfg.Seed, Classes: schemes(rules), Congestion: cfg.Congestion, Sections: cfg.sections(), Leaves: MaxPeers,
	}, shared)
	if err != nil {
		return nil, err
	}
	f := &fastRules{rules: rules, half: half, rows: rows}
	const tables = bpf.FastTables / 2
	next := half * tables
	for i := range rules {
		c := fastClass{decider: bpf.FastByFlow}
		scheme := cmp.Or(rules[i].Scheme, "ecmp")
		tabled, flowlets := rows.Tabled(i)
		switch {
		case !tabled:
			c.why = fmt.Sprintf("scheme %s sees each frame", scheme)
		case rules[i].Options.Shadow != "":
			c.why = fmt.Sprintf("scheme %s is a shadow, and sees each frame", rules[i].Options.Shadow)
		case !flowlets:
		default:
			c.decider, c.table, c.size = bpf.FastByFlowlet, next, flowletEntries(&rules[i])
			switch next++; {
			case next > (half+1)*tables:
				c.why = fmt.Sprintf("%d classes with flowlets have their tables in XDP already", tables)
			case c.size > bpf.FastFlowlets:
				c.why = fmt.Sprintf("a table of %d flowlets is larger than XDP's, of %d", c.size, bpf.FastFlowlets)
			}
		}
		if c.why != "" {
			c.decider = bpf.FastByWorker
		}
		f.classes = append(f.classes, c)
	}
	return f, nil
}

// flowletEntries returns how many flowlets a class has asked for.
func flowletEntries(c *Class) int {
	if k, ok := c.Options.Keys.(*balance.FlowletKeys); ok {
		return k.Flowlets
	}
	return congestion.DefaultFlowlets
}

// why says why all hosts' frames are the workers'; "": some need not be.
func (f *fastRules) why() (reason string) {
	for i := range f.classes {
		if f.classes[i].why == "" {
			return ""
		}
		reason = f.classes[i].why
	}
	return reason
}

// why says why all hosts' frames are the workers'; "": some need not be.
func (f *fastPath) why() string {
	f.choosing.Lock()
	defer f.choosing.Unlock()
	return f.node.shared.rules.why()
}

// schemes returns the schemes of the rules for a worker, whose flowlets are where XDP finds
// them. The memory is wiped: it must be nobody's.
func (f *fastRules) schemes(tables *bpf.Fast, worker int) []leaf.ClassConfig {
	configs := schemes(f.rules)
	for i := range configs {
		if c := &f.classes[i]; c.decider == bpf.FastByFlowlet {
			memory := tables.Flowlets(worker, c.table)[:c.size]
			clear(memory)
			configs[i].Options.Memory = memory
		}
	}
	return configs
}

// fastSchemes returns the schemes of rules for a worker, and is schemes where there is no fast
// path.
func (s *shared) fastSchemes(rules []Class, made *fastRules, worker int) []leaf.ClassConfig {
	if s.fast == nil || made == nil {
		return schemes(rules)
	}
	return made.schemes(s.fast, worker)
}

// fastAccess writes what a view says of hosts' frames into a copy of the XDP programs' tables
// that is not in force. choosing is held.
func (f *fastPath) fastAccess(v *view, to int, ports []fastPort, terms *[leaf.MaxClasses]flowletTerms) {
	classes, rows, tunnels := f.tables.AccessCopy(to)
	r := f.node.shared.rules
	r.rows.SetPaths(v.paths)
	f.choosingFor = v
	r.fastClasses(v, classes)
	for i := range classes.Of[:classes.Count] {
		if c := &classes.Of[i]; c.Decider == bpf.FastByFlowlet {
			c.Limit, c.Period = uint64(terms[i].limit), terms[i].period
		}
	}
	clear(rows)
	clear(tunnels)
	at := now()
	for class := range r.classes {
		if r.classes[class].decider == bpf.FastByWorker {
			continue
		}
		for peer := range v.paths {
			fastRow(r.rows, &rows[bpf.FastRowOf(class, peer)], at, class, uint16(peer))
		}
	}
	for peer := range v.paths {
		for path := range v.paths[peer].N {
			v.fastTunnel(ports, &v.tunnels[peer*MaxPaths+int(path)], tunnels, peer, int(path))
		}
	}
}

// flowletTerms are by what the flowlets of a class end.
type flowletTerms struct {
	limit  int64
	period uint64
}

// terms returns by what flowlets end, by class.
func (f *fastPath) terms() (all [leaf.MaxClasses]flowletTerms) {
	w := f.node.workers[0]
	w.call(func() {
		for i, c := range w.leaf.classes {
			if p, ok := c.Policy.(balance.FlowletPolicy); ok {
				all[i].limit, all[i].period = p.Flowlets().Terms()
			}
		}
	})
	return all
}

// fastClasses writes the classes as the XDP programs read them.
func (f *fastRules) fastClasses(v *view, to *bpf.FastClasses) {
	*to = bpf.FastClasses{Count: uint32(len(f.classes))}
	for i := range f.classes {
		c, r, x := &f.classes[i], &f.rules[i], &to.Of[i]
		x.Network, x.First, x.Last, x.Proto, x.Dscp = bpf.FastAnyNetwork, r.Port.First, r.Port.Last, r.Protocol, r.DSCP
		if r.VNI != 0 {
			x.Network = noNetwork
			if index, ok := v.vniNumber.get(r.VNI, r.VNI.Hash()); ok {
				x.Network = int32(index)
			}
		}
		x.Decider = c.decider
		if c.decider == bpf.FastByFlowlet {
			x.Table, x.Mask = uint8(c.table), uint32(c.size-1)
		}
	}
}

// noNetwork is the network of a class whose VNI the view does not have.
const noNetwork = -2

// fastRow writes the row of a class and a peer as the XDP programs read it.
func fastRow(rows *leaf.Rows, to *bpf.FastRow, at mono.Time, class int, peer uint16) {
	var row balance.Row
	path, ok := rows.Row(at, class, peer, &row)
	if !ok || row.N == 0 {
		return
	}
	t := row.Table()
	to.Seed, to.Places, to.Vacant, to.Choice = row.Seed, t.N, t.Vacant, t.Choice
	to.Weighted = uint8(flag(t.Weighted))
	to.Shares.Keep, to.Shares.Other = t.Shares.Table()
	to.Chosen = uint8(flag(row.Keep != 0))
	for u, i := range path {
		if i >= 0 {
			to.Path[u] = uint8(i) + 1
			to.Uplinks |= 1 << u
		}
	}
}

// fastTunnel writes a path to a peer as the XDP programs read it.
func (v *view) fastTunnel(ports []fastPort, t *tunnel, tunnels []bpf.FastTunnels, peer, path int) {
	to := &tunnels[peer].Of[path]
	to.Sum = t.header.Template(&to.Head)
	to.MaxFrame, to.Port, to.Hop, to.Uplink = t.maxFrame, uint16(t.port), uint16(t.hop), t.uplink
	to.On = uint8(flag(t.resolved && v.fastEgress(ports, t.port) == ""))
}

const (
	// chooseAtOnce is how many peers are looked at in one go.
	chooseAtOnce = 64
	// freshFor is how much longer than planned what was chosen for flowlets counts. Beyond
	// that they begin on any path, which is better than a path that was good once.
	freshFor = mono.Time(time.Millisecond)
)

// withdraw takes the worker's tables out of the memory that it has in common with XDP.
func (l *leafWorker) withdraw() {
	l.fdb.Withdraw()
	for _, c := range l.classes {
		if p, ok := c.Policy.(balance.FlowletPolicy); ok {
			p.Flowlets().Withdraw()
		}
	}
}

// fastVoice says what changes with time of peers and of uplinks: where flowlets begin, who
// reads the fabric's fields, and what is fed back (CONGA §3.3, step 4). Its owner is
// fastPath.pulse.
type fastVoice struct {
	at      int    // the next peer
	changes uint32 // of capabilities that are known
	fed     [MaxPaths]uint8

	busy bool      // flowlets keep off an uplink since the last look
	last mono.Time // of it
	ages reorder.Histogram
}

// speak says what is to be said of some peers, or of all of them if some have begun or ceased
// to read the fabric's fields. It reports whether flowlets keep off an uplink.
func (f *fastPath) speak(at mono.Time) (busy bool) {
	f.choosing.Lock()
	defer f.choosing.Unlock()
	v := f.choosingFor
	if v == nil || v != f.node.view.Load() {
		return false // fill is about to put another one in force
	}
	r, local := f.node.shared.rules, f.node.shared.rules.rows.Local()
	if r.rows.Behind() {
		f.changed() // rows keep off other paths, or take those that deliver again
	}
	for tag, id := range v.layout.uplinks {
		if id != NoPort && int(id) < len(f.meters) {
			local[tag] = f.meters[id].metric
		}
	}
	if f.voice.busy {
		f.voice.ages.Add(time.Duration(at - f.voice.last))
	}
	f.voice.last = at
	n, peers := min(len(v.paths), chooseAtOnce), len(v.paths)
	if c := f.node.shared.leaf.Capable.Changes(); c != f.voice.changes {
		f.voice.changes, n = c, peers
	}
	for range n {
		f.voice.at = (f.voice.at + 1) % peers
		f.tell(f.voice.at, at)
		busy = f.choose(r, v, f.voice.at, at) || busy
	}
	f.voice.busy = busy
	return busy
}

// tell says what a peer is to be told.
func (f *fastPath) tell(peer int, at mono.Time) {
	s, n := f.node.shared, 0
	capable := s.leaf.Capable.Capable(uint16(peer), at)
	for tag := range uint8(MaxPaths) {
		if !capable {
			break
		}
		if metric, age, ok := s.leaf.From.Entry(uint16(peer), tag, at); ok && age < s.params.Ageing {
			f.voice.fed[n] = bpf.FastFeedback(tag, metric)
			n++
		}
	}
	f.tables.Tell(peer, capable, f.voice.fed[:n])
}

// choose says where flowlets to a peer begin. It reports whether they keep off an uplink.
func (f *fastPath) choose(r *fastRules, v *view, peer int, at mono.Time) (busy bool) {
	for class := range r.classes {
		if r.classes[class].decider != bpf.FastByFlowlet || v.paths[peer].N == 0 {
			continue
		}
		var row balance.Row
		if _, ok := r.rows.Row(at, class, uint16(peer), &row); !ok || row.Keep == 0 {
			continue
		}
		uplinks := uint16(0)
		for _, path := range row.Path[:row.N] {
			uplinks |= 1 << v.paths[peer].Uplink[path%MaxPaths]
		}
		f.tables.SetBest(class, peer, uplinks, row.Keep)
		busy = busy || row.N < v.paths[peer].N
	}
	return busy
}

// ages returns how old what XDP goes by had become when it was made anew.
func (f *fastPath) ages() (a FastAges) {
	f.choosing.Lock()
	defer f.choosing.Unlock()
	h := &f.voice.ages
	return FastAges{Count: h.N, P50: h.Quantile(0.5), P99: h.Quantile(0.99), P999: h.Quantile(0.999)}
}

// countAccess adds what the programs of a leaf's access ports have counted, beside what
// countLeaf has.
func (f *fastPath) countAccess(v *view, s *WorkerStats) {
	for i := range s.VNIs {
		s.VNIs[i].Encapsulated.Frames, s.VNIs[i].Encapsulated.Bytes = f.tables.Wrapped(i)
		s.VNIs[i].Local.Frames, s.VNIs[i].Local.Bytes = f.tables.Switched(i)
	}
	s.HopSent = make([]Traffic, len(v.hops))
	for i := range s.HopSent {
		s.HopSent[i].Frames, s.HopSent[i].Bytes = f.tables.Hopped(i)
	}
	s.PeerSent = make([]Traffic, len(v.tables.Peers))
	for peer := range s.PeerSent {
		to := &s.PeerSent[peer]
		for cpu := range f.tables.CPUs() {
			w := f.tables.Went(cpu, peer)
			stamped, frames := atomic.LoadUint64(&w.Stamped), atomic.LoadUint64(&w.Frames)
			to.Frames += frames
			to.Bytes += atomic.LoadUint64(&w.Bytes)
			s.Exchange.Stamped += stamped
			s.Exchange.Plain += frames - min(stamped, frames)
			s.Exchange.FeedbackSent += atomic.LoadUint64(&w.Fed)
		}
	}
	f.choosing.Lock()
	defer f.choosing.Unlock()
	s.Schemes = leaf.AddSchemes(s.Schemes, f.retired)
	s.Schemes = leaf.AddSchemes(s.Schemes, f.decided())
}

// decided returns what the classes in force have decided. choosing is held.
func (f *fastPath) decided() (all []leaf.SchemeStats) {
	for i, r := range f.node.shared.rules.rules {
		is, was := f.tables.Begun(i), &f.begun[i]
		all = append(all, leaf.SchemeStats{Scheme: cmp.Or(r.Scheme, "ecmp"), Stats: balance.Stats{
			Decisions: is.Decided - was.Decided,
			Flowlets: congestion.FlowletStats{
				Started: is.Started - was.Started, Moved: is.Moved - was.Moved, Kept: is.Kept - was.Kept, Expired: is.Expired - was.Expired,
			},
		}})
	}
	return all
}

// rules finds out what XDP can do with classes that are to take the place of those in force.
func (f *fastPath) rules(rules []Class) (*fastRules, error) {
	if f == nil {
		return nil, nil
	}
	return newFastRules(&f.node.cfg, rules, 1-f.node.shared.rules.half, f.node.shared.leaf)
}

// reclass has the fast path go by other classes. It is paused.
func (f *fastPath) reclass(made *fastRules) {
	if f == nil {
		return
	}
	f.choosing.Lock()
	defer f.choosing.Unlock()
	f.retired = leaf.AddSchemes(f.retired, f.decided())
	for i := range f.begun {
		f.begun[i] = f.tables.Begun(i)
	}
	f.node.shared.rules, f.choosingFor = made, nil
}
