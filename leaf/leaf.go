package leaf

import (
	"cmp"
	"fmt"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	// MaxClasses is how many traffic classes a leaf can have, the default one
	// included.
	MaxClasses = 16
	// Burst is the largest vector that [Leaf.Choose] and [Leaf.Arrive] take without
	// allocating.
	Burst = 64
)

// Config is what one worker of a leaf is told. [New] checks it.
type Config struct {
	Worker int    // counts the workers of a leaf from 0
	Seed   uint64 // of the schemes; one for all workers of a leaf
	// Classes are the schemes of the traffic classes; the last one is that of what
	// no other class takes.
	Classes []ClassConfig
	// Congestion are CONGA's parameters; the zero value stands for
	// congestion.Datacenter().
	Congestion congestion.Params
	// Sections are the schemes' sections of the configuration, by name. A section
	// that is left out has its datacenter values.
	Sections map[string]balance.Params
	// Senders are the schemes that other leaves send by, if the driver knows: this leaf
	// has the receiving sides of these, and of its own classes' schemes. Nil: of all.
	Senders []string
	Leaves  int // bounds the numbers of leaves
	Ports   int // egress ports that packets may wait for
	Uplinks int // at most balance.MaxPaths; see SetUplinks
	// Answers bounds what receivers answer each peer.
	Answers Budget
	// Links brings Local and Queue of the leaf's View up to now; nil: the driver
	// keeps them so.
	Links balance.Links
	// Node is what the driver knows of its ports, uplinks by their numbers; nil: schemes
	// do without.
	Node balance.Node
	// Rows, if not 0, is how often tables are made by which flowlets begin in place of the
	// schemes, all of which have to be balance.Tabular.
	Rows time.Duration
}

// ClassConfig is the scheme of a traffic class. Of its options Keys, Shadow, and Section if
// it differs from the leaf's, count.
type ClassConfig struct {
	Scheme  string // "": ecmp
	Options balance.Options
}

// Leaf is one worker's part of a leaf. T is what the driver holds a packet by. It
// is not safe for concurrent use; after [New] only [Leaf.SetClasses] allocates.
type Leaf[T any] struct {
	// Local and Queue are what policies are shown of links: the metric of each
	// uplink's own meter, and the bytes in its queue.
	Local [balance.MaxPaths]uint8
	Queue [balance.MaxPaths]uint32
	// ByteTime is how long a byte takes on each uplink's link, see balance.ByteTime. It
	// is that of links of unknown rate until the driver sets it.
	ByteTime [balance.MaxPaths]uint32
	// Room is how many bytes each uplink's queue can hold; 0: no limit of its own. The
	// driver sets it.
	Room [balance.MaxPaths]uint32

	cfg      Config
	shared   *Shared
	exchange *congestion.Exchange
	view     balance.View
	paths    []balance.Paths // the driver's; view has what schemes are shown of them
	judge    *liveness.Judge // the first worker's, as the next
	watch    *liveness.Watch
	traffic  *liveness.Traffic
	half     uint8 // the CE of a link that is in use for more than half: its queue may run over
	quarantine
	classes []*Class
	retired []SchemeStats
	trips   reorder.Histogram // that policies which are no more have measured

	receivers [overlay.NumSchemes]*receiver[T] // by wire number; nil: there is none
	active    []*receiver[T]
	wires     uint16 // wire numbers that schemes have, a bit each
	exact     uint16 // and those whose receivers want exact keys
	timed     bool   // a class's policy is a balance.Timed, or it has a switch
	numbers          // of leaves, for switches
	hello     hello
	gate      gate[T]
	budgets   budgets

	out  Output[T]
	said []overlay.Message     // scratch of Tick
	told []balance.PortMessage // likewise

	counted
}

// Class is the scheme of a traffic class at work.
type Class struct {
	Scheme *balance.Scheme
	Policy balance.Policy
	Switch balance.Switch // nil: the scheme has none

	shadow    *shadow           // nil: there is none
	messenger balance.Messenger // Policy, if it is one; likewise the next
	timed     balance.Timed
}

// New returns a worker's part of a leaf over what the leaf's workers share. It
// reports configurations that make no sense.
func New[T any](cfg Config, shared *Shared) (*Leaf[T], error) {
	if cfg.Congestion == (congestion.Params{}) {
		cfg.Congestion = congestion.Datacenter()
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Leaf[T]{cfg: cfg, shared: shared, budgets: newBudgets(cfg.Answers, cfg.Leaves)}
	for u := range l.ByteTime {
		l.ByteTime[u] = balance.ByteTime(0)
	}
	l.half = 1 << (cfg.Congestion.Q - 1)
	l.traffic = liveness.NewTraffic(shared.Paths, cfg.Worker)
	if cfg.Worker == 0 {
		l.judge, l.watch = liveness.NewJudge(shared.Paths, l.traffic), liveness.NewWatch(shared.Paths, l.traffic)
	}
	l.exchange = congestion.NewExchange(shared.To, shared.From, shared.Capable, cfg.Uplinks)
	l.view = balance.View{Links: cfg.Links, Local: &l.Local, Queue: &l.Queue, ByteTime: &l.ByteTime, Room: &l.Room, Remote: shared.To, Capable: shared.Capable, Trips: shared.Paths}
	if err := l.makeReceivers(); err != nil {
		return nil, err
	}
	classes, err := l.MakeClasses(cfg.Classes)
	if err != nil {
		return nil, err
	}
	l.SetClasses(classes)
	return l, nil
}

func (c *Config) check() error {
	if err := c.Congestion.Validate(); err != nil {
		return fmt.Errorf("congestion: %w", err)
	}
	switch {
	case c.Congestion.Q > congestion.WireQ:
		return fmt.Errorf("congestion: Q is %d: at most %d bits fit the fabric's header", c.Congestion.Q, congestion.WireQ)
	case c.Uplinks > balance.MaxPaths:
		return fmt.Errorf("%d uplinks: at most %d are possible, an LBTag has 4 bits", c.Uplinks, balance.MaxPaths)
	}
	return nil
}

// options completes a class's options with the leaf's.
func (c *Config) options(s *balance.Scheme, o balance.Options) balance.Options {
	o.Seed, o.Worker, o.Congestion = c.Seed, c.Worker, c.Congestion
	o.Leaves, o.Ports = c.Leaves, c.Ports
	if o.Section == nil && s.Section != nil {
		o.Section = c.Sections[s.Section.Name]
	}
	return o
}

// SetUplinks says which uplinks there are, as bits by LBTag. At first they are those from 0
// to Config.Uplinks-1.
func (l *Leaf[T]) SetUplinks(tags uint16) { l.exchange.SetTags(tags) }

// MakeClasses makes the schemes of other traffic classes, for SetClasses. It
// changes nothing, and may be called from any goroutine.
func (l *Leaf[T]) MakeClasses(rules []ClassConfig) ([]*Class, error) {
	if len(rules) == 0 || len(rules) > MaxClasses {
		return nil, fmt.Errorf("%d traffic classes: at most %d, besides the default one", len(rules)-1, MaxClasses-1)
	}
	classes := make([]*Class, len(rules))
	for i, r := range rules {
		c, err := l.makeClass(r)
		if err != nil {
			return nil, fmt.Errorf("traffic class %d: %w", i, err)
		}
		classes[i] = c
	}
	return classes, nil
}

func (l *Leaf[T]) makeClass(r ClassConfig) (*Class, error) {
	c, err := l.makeScheme(r)
	if err == nil {
		c.shadow, err = l.makeShadow(r.Options.Shadow)
	}
	return c, err
}

// makeScheme makes a class without a shadow.
func (l *Leaf[T]) makeScheme(r ClassConfig) (*Class, error) {
	s, err := balance.Named(cmp.Or(r.Scheme, "ecmp"))
	if err != nil {
		return nil, err
	}
	o := l.cfg.options(s, r.Options)
	if rx := l.receivers[s.Wire]; rx != nil {
		o.Receiver = rx.r
	}
	o.Shared = l.shared.states[s.Wire]
	c, err := newClass(s, o, l.cfg.Node)
	if err != nil || l.cfg.Rows == 0 {
		return c, err
	}
	p, ok := balance.Table(c.Policy, &o, l.cfg.Rows)
	if !ok {
		return nil, fmt.Errorf("scheme %s: no table can stand for it", s.Name)
	}
	return NewClass(s, p), nil
}

// newClass returns the class of a scheme, with a switch if it has one.
func newClass(s *balance.Scheme, o balance.Options, n balance.Node) (*Class, error) {
	if err := s.Complete(&o); err != nil {
		return nil, fmt.Errorf("scheme %s: %w", s.Name, err)
	}
	if s.Switch != nil && o.Switch == nil && n != nil {
		o.Switch = s.Switch(&o, n)
	}
	c := NewClass(s, s.New(&o))
	c.Switch = o.Switch
	return c, nil
}

// NewClass returns the class of a scheme's policy.
func NewClass(s *balance.Scheme, p balance.Policy) *Class {
	c := &Class{Scheme: s, Policy: p}
	c.messenger, _ = p.(balance.Messenger)
	c.timed, _ = p.(balance.Timed)
	return c
}

// SetClasses puts classes in force. Flowlets and connections start anew.
func (l *Leaf[T]) SetClasses(classes []*Class) {
	for _, c := range l.classes {
		l.retired = addScheme(l.retired, c.stats())
		if t, ok := c.Policy.(balance.RoundTripper); ok {
			t.RoundTrips(&l.trips)
		}
	}
	l.classes, l.timed = classes, false
	for _, c := range classes {
		l.timed = l.timed || c.timed != nil || c.Switch != nil
	}
	l.routed = false
}

// Classes returns the classes in force. The caller must not change them.
func (l *Leaf[T]) Classes() []*Class { return l.classes }

// View returns what policies are shown, for those who explain decisions.
func (l *Leaf[T]) View() *balance.View { return &l.view }

// Choose gives every packet of a vector of one class its path. exact is nil unless
// the class's scheme has Scheme.Exact.
func (l *Leaf[T]) Choose(now mono.Time, c *Class, pkts []balance.Packet, exact []balance.Exact) {
	l.follow()
	l.view.Exact = exact
	c.choose(now, &l.view, pkts)
	if c.shadow != nil {
		c.shadow.choose(now, &l.view, pkts)
	}
	if l.on {
		l.translate(pkts, c.Scheme.Copies)
	}
}

// choose has the policy choose paths. What the packets add to queues is seen by what is
// chosen at the same time, where the scheme decides by queues.
func (c *Class) choose(now mono.Time, v *balance.View, pkts []balance.Packet) {
	c.Policy.Choose(now, v, pkts)
	if !c.Scheme.Queues {
		return
	}
	for i := range pkts {
		p := &pkts[i]
		if paths := &v.Paths[p.Leaf]; paths.N > 0 {
			v.Queue[paths.Uplink[p.Path&(balance.MaxPaths-1)]&(balance.MaxPaths-1)] += uint32(p.Len)
		}
	}
}

// Overhead returns how much longer a packet is in its tunnel than plain VXLAN makes
// it, bytes.
func (c *Class) Overhead(p *balance.Packet) uint16 {
	if c.Scheme.Wire != 0 && p.Shim {
		return overlay.ShimLen
	}
	return 0
}

// Depart fills the fabric's header of a packet that goes by an uplink: LBTag and
// feedback (CONGA §3.3, steps 1 and 4), and the scheme's marks. It reports false if
// the leaf is to be sent plain VXLAN; the header is then of no use. now is what
// Choose was given, since waiting in the uplink's queue is part of a path's delay
// (ConWeave Appendix A).
func (l *Leaf[T]) Depart(now mono.Time, c *Class, p *balance.Packet, uplink uint8, f *overlay.Fabric) bool {
	if !l.exchange.Depart(p.Leaf, uplink, overlay.MakePathID(uplink, uint8(p.Hash)), now, f) {
		return false
	}
	if c.Scheme.Wire != 0 {
		p.Stamp(now, c.Scheme.Wire, uplink, f)
	}
	return true
}

// Sent notes that a tenant's packet with the fabric's fields has left for a leaf by an
// uplink: the driver did not drop it for want of room.
func (l *Leaf[T]) Sent(leaf uint16, uplink uint8) { l.traffic.Send(leaf, uplink) }

// Kind is what a packet from the fabric is.
type Kind uint8

// The kinds.
const (
	Plain    Kind = iota // a tenant's packet: send it on
	Marked               // a tenant's packet for Arrive
	Message              // for Handle
	Greeting             // for Hello
	Unknown              // a message of a scheme that there is not
	Forged               // a tenant's packet with marks that no source makes
)

// Accept reads the fabric's header of a packet from a peer: CE and feedback (CONGA
// §3.3, steps 3 and 5). Tenants' packets are counted by path.
func (l *Leaf[T]) Accept(now mono.Time, peer uint16, f *overlay.Fabric) Kind {
	l.exchange.Arrive(peer, now, f)
	if f.Opcode >= overlay.OpRTTReply {
		return l.acceptControl(f)
	}
	if f.Capable {
		l.traffic.Arrive(peer, f.LBTag)
		if f.CE >= l.half {
			l.traffic.ArriveHot(peer, f.LBTag)
		}
	}
	if !f.Shim || l.receivers[f.Scheme&(overlay.NumSchemes-1)] == nil {
		return Plain
	}
	if reorder.Forged(f) {
		return Forged
	}
	return Marked
}

func (l *Leaf[T]) acceptControl(f *overlay.Fabric) Kind {
	switch {
	case f.Opcode == overlay.OpHello:
		return Greeting
	case l.wires>>(f.Scheme&(overlay.NumSchemes-1))&1 == 0:
		return Unknown
	}
	return Message
}

// Handle gives a message to the policy of a class, or with class below 0 to those of
// all classes. It reports false if no scheme among these handles messages of that
// kind. first says that the message came to this worker, and not by way of another
// one of the leaf.
func (l *Leaf[T]) Handle(now mono.Time, class int, m *overlay.Message, first bool) (ok bool) {
	known := false
	for i, c := range l.classes {
		if (class < 0 || class == i) && c.messenger != nil && c.Scheme.Wire == m.Fabric.Scheme {
			ok = true
			known = c.messenger.Handle(now, &l.view, m) || known
		}
		if (class < 0 || class == i) && c.Switch != nil && c.Scheme.Wire == m.Fabric.Scheme && m.Link != overlay.AnyLink {
			ok = true
			l.route()
			known = c.Switch.Handle(now, int(m.Link), m) || known
		}
	}
	if !ok {
		return false
	}
	switch {
	case m.Link != overlay.AnyLink: // it is for all workers
		known = known && first
	case m.Fabric.Opcode == overlay.OpExplore: // and that: it is about paths
		known = known && first
	case m.Fabric.Opcode == overlay.OpNotify: // so is that
		known = first && (known || l.leads(m.Leaf, m.Fabric.Path.Uplink()))
	}
	l.handled(m.Fabric.Opcode, first, known)
	return true
}

// leads reports whether an uplink leads to a leaf.
func (l *Leaf[T]) leads(leaf uint16, uplink uint8) bool {
	return int(leaf) < len(l.paths) && l.paths[leaf].Index[uplink&(balance.MaxPaths-1)] >= 0
}
