package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/overlay"
)

// changeBatch is how many addresses a worker changes between two bursts. Each takes up to
// some 300 ns, as hardly any is in a cache.
const changeBatch = 256

// AddressChange says where an address is from now on, or that it is nowhere.
type AddressChange struct {
	StaticMAC
	Gone bool // the address is nowhere; Peer, Port and VLAN mean nothing
}

func (s *StaticMAC) key() overlay.FDBKey { return overlay.MakeFDBKey(uint16(s.VNI), s.MAC) }

func (s *StaticMAC) dest() overlay.Dest {
	if s.Port == NoPort {
		return overlay.DestRemote(uint16(s.Peer))
	}
	return overlay.DestLocal(uint16(s.Port), s.VLAN)
}

// ChangeAddresses tells a node with [Config.KernelOverlay] where addresses are; nothing
// else does. A change names VNIs, peers and ports of the tables that were published last;
// addresses of one that is withdrawn from the tables are nowhere. Of several changes of an address the last one counts.
//
// The XDP programs forget an address before the workers change it, and know it after they
// did (decision 0025): meanwhile its frames are the kernel's. Changes are made in small
// batches, between which the workers forward. The call returns when all are made.
//
// Addresses are best changed once [Node.Run] runs the workers: before, frames that the XDP
// programs know how to forward wait in the sockets' rings.
//
// It returns the changes for which there was no room, in the workers' tables or in that of
// the XDP programs, or that no table takes, as of a group address: their addresses are
// known nowhere, so their frames stay the kernel's. They are counted, and may be tried
// again when others are gone. An error is of the kernel, or about a change that names what
// the tables do not have: then the batches before it are made.
func (n *Node) ChangeAddresses(changes []AddressChange) (refused []AddressChange, err error) {
	if n.rule == nil {
		return nil, errors.New("change addresses: the node's overlay is its own, and learns addresses")
	}
	for part := range slices.Chunk(changes, changeBatch) {
		r, err := n.changeSome(part)
		refused = append(refused, r...)
		if err != nil {
			return refused, fmt.Errorf("change %d addresses: %w", len(changes), err)
		}
	}
	return refused, nil
}

// changeSome makes a batch of changes.
func (n *Node) changeSome(changes []AddressChange) (refused []AddressChange, err error) {
	n.publishing.Lock() // the tables stay what they are
	defer n.publishing.Unlock()
	if n.tables == nil {
		return nil, errors.New("no tables are published")
	}
	for i := range changes {
		if err := n.tables.checkAddress(&changes[i].StaticMAC, changes[i].Gone); err != nil {
			return nil, err
		}
	}
	changes = lastOfEach(changes)
	keys := make([]overlay.FDBKey, len(changes))
	for i := range changes {
		keys[i] = changes[i].key()
	}
	if err := n.rule.DeleteAddresses(keys); err != nil {
		return nil, err
	}
	refused = applyAddresses(n.workers, changes)
	gone := make(map[overlay.FDBKey]bool, len(refused))
	for i := range refused {
		gone[refused[i].key()] = true
	}
	var placed []AddressChange
	places := make([]overlay.Dest, 0, len(changes))
	keys = keys[:0]
	for _, c := range changes {
		if key := c.key(); !c.Gone && !gone[key] {
			placed, keys, places = append(placed, c), append(keys, key), append(places, c.dest())
		}
	}
	set, err := n.rule.SetAddresses(keys, places)
	if errors.Is(err, bpf.ErrRuleFull) {
		refused, err = append(refused, n.withdrawAddresses(placed[set:])...), nil
	}
	return refused, err
}

// withdrawAddresses takes addresses for which the XDP programs have no room from the
// workers again, and returns them.
func (n *Node) withdrawAddresses(changes []AddressChange) []AddressChange {
	w := n.workers[0]
	w.call(func() { w.leaf.stats.FDBRefused += uint64(len(changes)) })
	applyAddresses(n.workers, asGone(changes))
	return changes
}

// asGone returns changes by which the same addresses are nowhere.
func asGone(changes []AddressChange) []AddressChange {
	gone := slices.Clone(changes)
	for i := range gone {
		gone[i].Gone = true
	}
	return gone
}

// lastOfEach returns the last change of each address, in their order.
func lastOfEach(changes []AddressChange) []AddressChange {
	last := make(map[overlay.FDBKey]int, len(changes))
	for i := range changes {
		last[changes[i].key()] = i
	}
	if len(last) == len(changes) {
		return changes
	}
	kept := make([]AddressChange, 0, len(last))
	for i := range changes {
		if last[changes[i].key()] == i {
			kept = append(kept, changes[i])
		}
	}
	return kept
}

// checkAddress reports an address that names what the tables do not have.
func (t *Tables) checkAddress(s *StaticMAC, gone bool) error {
	if int(s.VNI) >= len(t.VNIs) || !gone && (s.Port == NoPort && int(s.Peer) >= len(t.Peers) || s.Port != NoPort && int(s.Port) >= len(t.Ports)) {
		return fmt.Errorf("address %v names VNI %d of %d, peer %d of %d or port %d of %d",
			s.MAC, s.VNI, len(t.VNIs), s.Peer, len(t.Peers), s.Port, len(t.Ports))
	}
	return nil
}

// applyAddresses makes changes in the tables of all workers, in batches. What one has no
// room for none of them knows: it returns those.
func applyAddresses(workers []*worker, changes []AddressChange) (refused []AddressChange) {
	full := make([]bool, min(len(changes), changeBatch))
	for part := range slices.Chunk(changes, changeBatch) {
		clear(full)
		for _, w := range workers {
			w.call(func() { w.leaf.changeAddresses(part, full) })
		}
		var none []AddressChange
		for i := range part {
			if full[i] {
				none = append(none, part[i])
			}
		}
		if len(none) == 0 {
			continue
		}
		refused = append(refused, none...)
		for _, w := range workers {
			w.call(func() { w.leaf.changeAddresses(asGone(none), full) })
		}
	}
	return refused
}

// changeAddresses makes changes in the worker's table, but for those that are in full. It
// adds to these what the table has no room for.
func (l *leafWorker) changeAddresses(changes []AddressChange, full []bool) {
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Gone:
			l.fdb.DeleteStatic(uint16(c.VNI), c.MAC)
		case full[i]:
		case !l.fdb.SetStatic(uint16(c.VNI), c.MAC, c.dest()):
			l.stats.FDBRefused++
			full[i] = true
		}
	}
}

// staticChanges returns what makes the addresses of one list those of another. Most lists
// are the same: tables change for other reasons.
func staticChanges(old, statics []StaticMAC) (changes []AddressChange) {
	if slices.Equal(old, statics) {
		return nil
	}
	was := make(map[overlay.FDBKey]StaticMAC, len(old))
	for _, s := range old {
		was[s.key()] = s
	}
	now := make(map[overlay.FDBKey]bool, len(statics))
	for _, s := range statics {
		now[s.key()] = true
	}
	for _, s := range old {
		if !now[s.key()] {
			changes = append(changes, AddressChange{StaticMAC: s, Gone: true})
		}
	}
	for _, s := range statics {
		if had, ok := was[s.key()]; !ok || had != s {
			changes = append(changes, AddressChange{StaticMAC: s})
			was[s.key()] = s // of several of an address the last one counts
		}
	}
	return changes
}

// setStatics puts configured addresses in the place of others, and logs which of them have
// no room. The next other list tries them again.
func (n *Node) setStatics(statics []StaticMAC) {
	if n.tables != nil && slices.Equal(n.tables.Static, statics) {
		return
	}
	refused := applyAddresses(n.workers, staticChanges(n.statics, statics))
	n.statics = statics
	if len(refused) == 0 {
		return
	}
	without := make(map[overlay.FDBKey]bool, len(refused))
	for i := range refused {
		without[refused[i].key()] = true
	}
	n.statics = slices.DeleteFunc(slices.Clone(statics), func(s StaticMAC) bool { return without[s.key()] })
	first := &refused[0]
	n.log.Error("the address table has no room for static addresses; raise `fdb.size`, their frames are flooded or learned",
		"addresses", len(refused), "first", first.MAC, "vni", n.view.Load().tables.VNIs[first.VNI].VNI)
}
