package dataplane

import (
	"net/netip"
	"time"

	"github.com/loomfabric/loom/congestion"
)

// PeerState is what a leaf knows of the congestion between itself and a peer.
type PeerState struct {
	VTEP    netip.Addr
	Capable bool        // it proved lately that it reads the fabric's fields; else it is sent plain VXLAN
	To      []PathState // the way there, as the peer reported it (CONGA §3.3, Congestion-To-Leaf); by own uplink
	From    []PathState // the way here, as measured (Congestion-From-Leaf); by the peer's uplink
}

// PathState is one entry of those tables. A tag of which nothing was heard has
// none.
type PathState struct {
	Tag    uint8         // LBTag: the uplink of the sending leaf that the paths start on
	Metric uint8         // quantised to Q bits; of the way there as of now, aged
	Age    time.Duration // since it was confirmed, to 1/16 of the ageing time
}

// Congestion returns the state of every peer, by PeerID; nil on a spine. It
// reads atomic words and disturbs no worker.
func (n *Node) Congestion() []PeerState {
	v := n.view.Load()
	if n.shared.to == nil || v == nil {
		return nil
	}
	at := now()
	peers := make([]PeerState, len(v.tables.Peers))
	for i := range peers {
		id := uint16(i)
		p := &peers[i]
		p.VTEP, p.Capable = v.tables.Peers[i].VTEP, n.shared.capable.Capable(id, at)
		for tag := range uint8(congestion.MaxTags) {
			if m, age, ok := n.shared.to.Entry(id, tag, at); ok {
				p.To = append(p.To, PathState{tag, m, age})
			}
			if m, age, ok := n.shared.from.Entry(id, tag, at); ok {
				p.From = append(p.From, PathState{tag, m, age})
			}
		}
	}
	return peers
}
