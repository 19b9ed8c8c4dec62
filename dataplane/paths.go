package dataplane

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// PeerPaths is which of a leaf's paths to one peer deliver.
type PeerPaths struct {
	VTEP  netip.Addr `json:"vtep"`
	Paths []LivePath `json:"paths"` // those that routes lead by, by uplink
	// Arrivals are where the peer's HELLOs come in, by the uplink that it sent them by.
	Arrivals []Arrival `json:"arrivals"`
}

// LivePath is what is known of the path to a peer by one uplink.
type LivePath struct {
	_ struct{} `stat:"path"`

	Uplink    uint8         `json:"uplink" stat:"-"` // its LBTag
	Port      string        `json:"port" stat:"-"`
	State     string        `json:"state" stat:"-"` // unknown, alive, silent, lossy or narrow
	Alive     bool          `json:"-" help:"1 while the peer gets everything by this uplink; 0 while it says that it does not: nothing (silent), not all (lossy) or no long packets (narrow)."`
	Avoided   bool          `json:"avoided" help:"1 while traffic keeps off the path: it does not deliver, and there is one that does."`
	RoundTrip time.Duration `json:"round_trip_ns" help:"Smoothed time of HELLOs there by this uplink and back by any; 0: not measured."`
	Loss      float64       `json:"loss" stat:"loss_ratio" help:"Share of the packets sent by this uplink that the peer missed lately, 0 to 1."`
	GivenUp   uint64        `json:"given_up" help:"Times that traffic was taken off the path."`
}

// Paths returns which paths to each peer deliver; nothing on a spine and before the
// first tables.
func (n *Node) Paths() []PeerPaths { return n.pathsAt(now()) }

func (n *Node) pathsAt(now mono.Time) (peers []PeerPaths) {
	v := n.view.Load()
	if n.cfg.Role != Leaf || v == nil {
		return nil
	}
	seen := make(map[netip.Addr]bool)
	for i := range v.tables.Peers {
		if vtep := v.tables.Peers[i].VTEP; !vtep.IsValid() || seen[vtep] {
			continue // the place of a peer that is gone
		}
		seen[v.tables.Peers[i].VTEP] = true
		p := PeerPaths{VTEP: v.tables.Peers[i].VTEP, Paths: []LivePath{}, Arrivals: n.shared.came.of(PeerID(i), v.layout, now)}
		for u := range uint8(MaxPaths) {
			if v.paths[i].Index[u] >= 0 {
				p.Paths = append(p.Paths, n.livePath(v, PeerID(i), u, now))
			}
		}
		peers = append(peers, p)
	}
	return peers
}

func (n *Node) livePath(v *view, peer PeerID, uplink uint8, now mono.Time) LivePath {
	p := n.shared.leaf.Paths.Path(uint16(peer), uplink, now)
	return LivePath{
		Uplink: uplink, Port: v.layout.uplinkName(uplink), State: p.State.String(), Alive: p.State == liveness.Alive,
		Avoided: p.Avoided, RoundTrip: p.RoundTrip, Loss: p.Loss, GivenUp: uint64(p.GivenUp),
	}
}

// pathsEvery is how often paths are looked at for the log.
const pathsEvery = 100 * time.Millisecond

// watchPaths logs which paths cease to deliver and which deliver again, and which peers say
// goodbye, fall silent and are back, until ctx ends.
func (n *Node) watchPaths(ctx context.Context) {
	if n.cfg.Role != Leaf {
		return
	}
	tick := time.NewTicker(pathsEvery)
	defer tick.Stop()
	paths, peers := pathReporter{node: n, was: make(map[pathKey]string)}, peerReporter{node: n, gone: make(map[netip.Addr]overlay.Standing)}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			paths.report(now())
			peers.report(now())
		}
	}
}

// pathReporter knows what the log says of paths.
type pathReporter struct {
	node *Node
	seen uint32
	was  map[pathKey]string // paths that the log says do not deliver, and why
}

type pathKey struct {
	vtep   netip.Addr
	uplink uint8
}

// report logs what has changed since the last call. Of a path whose peer is silent
// nothing is said: it is not the path.
func (r *pathReporter) report(now mono.Time) {
	n := r.node
	seen := n.shared.leaf.Paths.Reports()
	if seen == r.seen {
		return
	}
	r.seen = seen
	gone := maps.Clone(r.was) // with their routes, or their peers
	for _, peer := range n.pathsAt(now) {
		carry := 0 // paths that traffic may use
		for i := range peer.Paths {
			if !peer.Paths[i].Avoided {
				carry++
			}
		}
		for i := range peer.Paths {
			p, key := &peer.Paths[i], pathKey{peer.VTEP, peer.Paths[i].Uplink}
			was := r.was[key]
			delete(gone, key)
			switch p.State {
			case was, liveness.Unknown.String():
			case liveness.Alive.String():
				if was != "" {
					n.log.Info("path delivers again", "peer", peer.VTEP, "uplink", p.Port, "was", was, "paths", carry, "of", len(peer.Paths))
					delete(r.was, key)
				}
			default:
				n.log.Warn(whyNot[p.State], "peer", peer.VTEP, "uplink", p.Port, "state", p.State, "avoided", p.Avoided, "loss", p.Loss, "paths", carry, "of", len(peer.Paths))
				r.was[key] = p.State
			}
		}
	}
	for key := range gone {
		delete(r.was, key)
	}
}

// whyNot says of each state what is wrong with a path.
var whyNot = map[string]string{
	liveness.Silent.String(): "path delivers nothing: look at the spine behind the uplink, whether it has a route to the peer",
	liveness.Lossy.String():  "path loses packets: look at the links behind the uplink, and at the spine's drops",
	liveness.Narrow.String(): "path delivers short packets only: look for a port with a small MTU behind the uplink",
}
