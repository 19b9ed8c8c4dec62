package node

import (
	"fmt"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// peer is what a leaf knows of another one besides what the tables hold.
type peer struct {
	greets bool  // it sends HELLOs
	heard  int64 // greetings of it that were taken note of
}

// Join makes leaves, given in the order of their indices, know each other. It
// comes after their uplinks, and before the first packet.
//
// HELLOs are not packets here: every leaf that is not plain is heard by all
// others at time 0 and each overlay.HelloInterval after, whatever has become of
// the links. What a leaf would have heard since it last looked is made up for when it
// next talks to that peer, so that no timer keeps a finished run going.
func Join(leaves []*Leaf) error {
	for i, l := range leaves {
		if int(l.Index) != i || len(leaves) != len(l.peers) {
			return fmt.Errorf("leaf %s has index %d of %d: it stands at %d of %d", l.Name, l.Index, len(l.peers), i, len(leaves))
		}
		if l.cfg.Plain {
			continue
		}
		for j, other := range leaves {
			l.peers[j].greets = i != j && !other.cfg.Plain
		}
		p := &l.cfg.Congestion
		to, from := congestion.NewToLeaf(len(leaves), p), congestion.NewFromLeaf(len(leaves), p)
		l.capable = overlay.NewCapability(len(leaves))
		l.exchange = congestion.NewExchange(to, from, l.capable, len(l.uplinks))
		l.view.Remote, l.view.Capable = to, l.capable
		l.from = from
		if l.signals() {
			var err error
			if l.order, err = newOrder(l, len(leaves)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hear takes note of the greetings of a leaf up to now. It must come before
// anything that came from the leaf at now, to keep the order of time.
func (l *Leaf) hear(leaf uint16, now mono.Time) {
	p := &l.peers[leaf]
	if !p.greets {
		return
	}
	if due := int64(now)/int64(overlay.HelloInterval) + 1; due > p.heard {
		p.heard = due
		l.capable.Heard(leaf, mono.Time((due-1)*int64(overlay.HelloInterval)))
	}
}

// capableNow reports whether a leaf is to be sent the fabric's fields.
func (l *Leaf) capableNow(leaf uint16, now mono.Time) bool {
	l.hear(leaf, now)
	return l.capable.Capable(leaf, now)
}
