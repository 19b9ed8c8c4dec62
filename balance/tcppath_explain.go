package balance

import (
	"fmt"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Explain looks at the tables as Choose does, for a packet that begins nothing.
func (t *tcpPath) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	hashed := paths.byHash(p.Hash, t.seed)
	byHash := func(why string) Explanation {
		x.take(paths, hashed, why+", so its hash decides")
		return x
	}
	switch {
	case v.Exact == nil:
		return byHash("its exact headers are not known")
	case v.Capable != nil && !v.Capable.Capable(p.Leaf, now):
		return byHash("the leaf does not read the fabric's fields")
	}
	k := &v.Exact[0].Key
	why := "the scheme is not for it"
	if t.isFor(k) {
		path, reason := t.known(now, paths, k, p.Leaf)
		if path >= 0 {
			x.Path, x.Reason = path, reason
			return x // and if it started now, whichever path is fastest
		}
		why = reason
	}
	if t.arpPath {
		pair := k.Pair()
		path, reason := t.known(now, paths, &pair, p.Leaf)
		if path >= 0 {
			x.Path, x.Reason = path, why+", and for its hosts "+reason
			return x
		}
	}
	return byHash(why)
}

// known returns the path of a flow that has one, or -1, and why.
func (t *tcpPath) known(now mono.Time, paths *Paths, k *overlay.FlowKey, leaf uint16) (path int, why string) {
	w := t.shared.flows.Find(tcpPathTag(k.Hash(t.hashSeed), leaf))
	f := tcpPathFlow(w.Value)
	switch {
	case !w.Found():
		return -1, "no path is known"
	case !t.shared.flows.Live(now, w):
		return -1, "its path was not used for long"
	case f.source() && !f.confirmed():
		return -1, "the answer to its exploration is still to come"
	case t.broken(leaf, paths, f, w.Last):
		return -1, "its path is broken"
	case f.source():
		return int(paths.Index[f.uplink()]), fmt.Sprintf("the first copy of its exploration arrived by this path, selector %d", f.selector())
	}
	return int(paths.Index[f.uplink()]), fmt.Sprintf("the first copy of the other leaf's exploration came by this path, selector %d", f.selector())
}
