package dataplane

import (
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// farewell says goodbye to a leaf's peers, and waits while they change over to plain VXLAN.
// Meanwhile everything goes on. Spines remember nothing of whose headers they read, and
// have nobody to say goodbye to.
func (n *Node) farewell() {
	if n.cfg.Role != Leaf {
		return
	}
	w, last := n.workers[0], time.Duration(0)
	w.call(func() {
		if w.view != nil && !w.handed.Load() {
			last = w.leaf.brain.Leave(now())
		}
	})
	time.Sleep(last)
}

// yield leaves all ports to the kernel, or closes them to hosts (access.fail): frames that
// come from now on are not received any more.
func (n *Node) yield() error {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.isHanded() { // while this waited for the hand-over's end
		return nil
	}
	n.fast.pause()
	var errs []error
	for _, d := range n.devices {
		if d != nil && d.program != nil {
			errs = append(errs, d.program.ClearSockets())
		}
	}
	return errors.Join(errs...)
}

// peerReporter knows what the log says of peers.
type peerReporter struct {
	node *Node
	seen uint32
	gone map[netip.Addr]overlay.Standing // peers that the log says are plain, and why
}

// report logs what has changed since the last call.
func (r *peerReporter) report(now mono.Time) {
	n := r.node
	capable, v := n.shared.leaf.Capable, n.view.Load()
	if seen := capable.Changes(); v == nil || seen == r.seen {
		return
	} else {
		r.seen = seen
	}
	maps.DeleteFunc(r.gone, func(vtep netip.Addr, _ overlay.Standing) bool {
		_, known := v.numberOfPeer(vtep)
		return !known
	})
	for i := range v.tables.Peers {
		vtep := v.tables.Peers[i].VTEP
		was, is := r.gone[vtep], capable.Standing(uint16(i), now)
		switch {
		case !vtep.IsValid() || is == was:
			continue
		case is == overlay.Left:
			n.log.Info("peer said goodbye: it gets plain VXLAN", "peer", vtep)
		case is == overlay.Silent:
			n.log.Warn("nothing comes from peer: it gets plain VXLAN; look whether its leafd runs, and at the links between", "peer", vtep)
		case is == overlay.Proved && was != overlay.Unproved:
			n.log.Info("peer is back: it gets the fabric's header", "peer", vtep, "was", was)
			delete(r.gone, vtep)
			continue
		default:
			continue
		}
		r.gone[vtep] = is
	}
}
