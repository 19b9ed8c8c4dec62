package leaf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
)

// shadow is a scheme that sees what a class's scheme sees, and whose choices are only
// counted. It has state and randomness of its own, and looks at links into memory of its
// own, so that nothing which leaves the node depends on it.
type shadow struct {
	scheme *balance.Scheme
	policy balance.Policy
	links  balance.Links // nil: the driver keeps its View up to now
	view   balance.View
	local  [balance.MaxPaths]uint8
	queue  [balance.MaxPaths]uint32
	took   [Burst]uint8 // paths that the class's scheme has chosen
	counts ShadowCounts
}

// Glancer is balance.Links that can say what it knows without a trace in its View.
type Glancer interface {
	balance.Links
	// Glance writes what Look would.
	Glance(now mono.Time, local *[balance.MaxPaths]uint8, queue *[balance.MaxPaths]uint32)
}

// ShadowStats is what a class's shadow would have done.
type ShadowStats struct {
	class  int
	Scheme string // of the class
	Shadow string
	ShadowCounts
}

// Class returns the index of the class.
func (s *ShadowStats) Class() int { return s.class }

// ShadowCounts counts choices of two schemes that saw the same packets.
type ShadowCounts struct {
	_ struct{} `stat:"shadow"`

	Frames uint64  `stat:"frames" unit:"frames" help:"Frames about which a class's shadow was asked, too."`
	Agreed uint64  `stat:"agreed_frames" unit:"frames" help:"Frames that the shadow would have sent by the uplink that they took."`
	Sent   Uplinks `stat:"class_bytes" unit:"bytes" help:"Bytes of frames that the class's scheme sent by each uplink."`
	Would  Uplinks `stat:"bytes" unit:"bytes" help:"Bytes of frames that the shadow would have sent by each uplink."`
	// Flowlets of the shadow; zero if it keeps none.
	Started uint64 `stat:"flowlets_started" help:"Flowlets that the shadow has started."`
	Moved   uint64 `stat:"flowlets_moved" help:"Flowlets that the shadow has started on another uplink than the flow's last one."`
}

// Uplinks has a number for each uplink.
type Uplinks [balance.MaxPaths]uint64

// Index returns the number of an uplink.
func (Uplinks) Index(i int) (label, value string) { return "uplink", strconv.Itoa(i) }

// Imbalance returns by how much the largest number differs from the smallest one, as a
// part of their mean (CONGA §5.2.2's throughput imbalance), over uplinks that one of the two
// schemes has used.
func (c *ShadowCounts) Imbalance() (sent, would float64) {
	var a, b []uint64
	for u := range c.Sent {
		if c.Sent[u]+c.Would[u] > 0 {
			a, b = append(a, c.Sent[u]), append(b, c.Would[u])
		}
	}
	return imbalance(a), imbalance(b)
}

func imbalance(n []uint64) float64 {
	sum := uint64(0)
	for _, x := range n {
		sum += x
	}
	if sum == 0 {
		return 0
	}
	return float64(slices.Max(n)-slices.Min(n)) * float64(len(n)) / float64(sum)
}

// CanShadow reports whether a scheme can be a shadow. One that goes by answers to its own
// packets cannot, nor one that has packets wait or sends copies: what it would see follows
// from what it would have done.
func CanShadow(s *balance.Scheme) bool {
	return s.Wire == 0 && !s.Waits && !s.Copies && !s.Exact && s.Switch == nil && s.Shared == nil
}

// Shadows returns the names of the schemes that can be shadows.
func Shadows() (names []string) {
	for _, s := range balance.Schemes() {
		if CanShadow(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// makeShadow makes the shadow of a class; nil: it has none.
func (l *Leaf[T]) makeShadow(name string) (*shadow, error) {
	if name == "" {
		return nil, nil
	}
	s, err := balance.Named(name)
	if err != nil {
		return nil, err
	}
	if !CanShadow(s) {
		return nil, fmt.Errorf("scheme %s cannot be a shadow: it goes by what its own packets bring about; use one of %s", name, strings.Join(Shadows(), ", "))
	}
	o := l.cfg.options(s, balance.Options{})
	if err := s.Complete(&o); err != nil {
		return nil, fmt.Errorf("shadow %s: %w", name, err)
	}
	return &shadow{scheme: s, policy: s.New(&o), links: l.cfg.Links}, nil
}

// Look fills what the shadow sees of links.
func (s *shadow) Look(now mono.Time) {
	if g, ok := s.links.(Glancer); ok {
		g.Glance(now, &s.local, &s.queue)
	}
}

// choose has the shadow choose for packets whose paths have been chosen, and compares.
func (s *shadow) choose(now mono.Time, v *balance.View, pkts []balance.Packet) {
	for len(pkts) > Burst {
		s.choose(now, v, pkts[:Burst])
		pkts = pkts[Burst:]
	}
	s.view = *v
	s.view.Exact, s.view.Local, s.view.Queue = nil, &s.local, &s.queue
	if s.links != nil {
		s.view.Links = s
	} else {
		s.local, s.queue = *v.Local, *v.Queue
	}
	for i := range pkts {
		s.took[i] = pkts[i].Path
	}
	// A scheme that can be a shadow writes nothing but paths.
	s.policy.Choose(now, &s.view, pkts)
	c := &s.counts
	agreed, none := 0, 0
	for i := range pkts {
		p := &pkts[i]
		paths, n := &v.Paths[p.Leaf], uint64(p.Len)
		took, would := paths.Uplink[s.took[i]%balance.MaxPaths]%balance.MaxPaths, paths.Uplink[p.Path%balance.MaxPaths]%balance.MaxPaths
		p.Path = s.took[i]
		if paths.N == 0 {
			none++
			continue
		}
		if took == would {
			agreed++
		}
		c.Sent[took] += n
		c.Would[would] += n
	}
	c.Frames += uint64(len(pkts) - none)
	c.Agreed += uint64(agreed)
}

// ShadowStats returns what the shadows of the classes in force have counted.
func (l *Leaf[T]) ShadowStats() (all []ShadowStats) {
	for i, c := range l.classes {
		if s := c.shadow; s != nil {
			x := ShadowStats{i, c.Scheme.Name, s.scheme.Name, s.counts}
			f := s.policy.Stats().Flowlets
			x.Started, x.Moved = f.Started, f.Moved
			all = append(all, x)
		}
	}
	return all
}

// AddShadows adds what another worker's shadows have counted.
func AddShadows(sums, add []ShadowStats) []ShadowStats {
	for i := range add {
		at := slices.IndexFunc(sums, func(s ShadowStats) bool {
			return s.class == add[i].class && s.Shadow == add[i].Shadow && s.Scheme == add[i].Scheme
		})
		if at < 0 {
			sums = append(sums, add[i])
			continue
		}
		stat.Add(&sums[at].ShadowCounts, &add[i].ShadowCounts)
	}
	return sums
}
