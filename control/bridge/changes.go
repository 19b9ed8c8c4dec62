package bridge

import (
	"maps"

	"github.com/loomfabric/loom/overlay"
)

// changes returns at most most changes that the sink has to be told of, in buf, and
// takes them off the queue. With only deletions, every place that is not right any more
// becomes a deletion, and what is to be added stays for the next call without.
func (a *addresses) changes(buf []Change, most int, deletions bool) []Change {
	buf = buf[:0]
	if deletions {
		return a.deletions(buf)
	}
	n := 0
	for _, r := range a.queue {
		if len(buf) >= most-1 { // a VNI that has changed takes two
			break
		}
		n++
		x := a.near[r.place][r.mac]
		x.queued = false
		now := a.find(r, x)
		if now != x.said {
			if x.said != (spot{}) && (now.vni != x.said.vni || now == (spot{})) {
				buf = append(buf, Change{VNI: overlay.VNI(x.said.vni), MAC: r.mac})
			}
			if now != (spot{}) {
				buf = append(buf, Change{overlay.VNI(now.vni), r.mac, now.place()})
			}
			a.count(x.said, now)
			x.said = now
		}
		if !x.present && !a.dumping {
			a.forget(r)
		}
	}
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil // what it took in a storm is given back
	}
	return buf
}

// deletions returns a deletion for each address that is queued and is not where the
// sink thinks. The addresses stay in the queue.
func (a *addresses) deletions(buf []Change) []Change {
	for _, r := range a.queue {
		x := a.near[r.place][r.mac]
		if x.said != (spot{}) && x.said != a.find(r, x) {
			buf = append(buf, Change{VNI: overlay.VNI(x.said.vni), MAC: r.mac})
			a.count(x.said, spot{})
			x.said = spot{}
		}
	}
	return buf
}

// count keeps the number of addresses that the sink knows.
func (a *addresses) count(was, now spot) { a.said += one(now != (spot{})) - one(was != (spot{})) }

func (a *addresses) forget(r ref) {
	macs := a.near[r.place]
	if delete(macs, r.mac); len(macs) == 0 {
		delete(a.near, r.place)
	}
}

// setModel takes a new model, and queues the addresses that it may move.
func (a *addresses) setModel(m *Model) {
	old := a.model
	a.model = m
	for p := range old.domains {
		if m.domains[p] == nil {
			a.enqueueAll(p)
		}
	}
	clear(a.users)
	for p, d := range m.domains {
		a.users[tunnel{d.device, d.src}] = p
		if was := old.domains[p]; was == nil || !was.equal(d) {
			a.enqueueAll(p)
		}
	}
	if !maps.Equal(old.devices, m.devices) {
		a.recount()
	}
}

func (d *domain) equal(o *domain) bool {
	return d.vni == o.vni && d.device == o.device && d.src == o.src && d.udpPort == o.udpPort && d.vtep == o.vtep &&
		maps.Equal(d.gateways, o.gateways) && maps.Equal(d.ports, o.ports)
}

func (a *addresses) enqueueAll(p place) {
	for mac, x := range a.near[p] {
		a.enqueue(ref{p, mac}, x)
	}
}

// recount counts anew which VTEPs the entries of the model's devices name.
func (a *addresses) recount() {
	clear(a.refs)
	for t, macs := range a.far {
		for _, x := range macs {
			a.refer(t, x.dst, 1)
		}
	}
	for t, dsts := range a.floods {
		for dst, x := range dsts {
			if x.present {
				a.refer(t, dst, 1)
			}
		}
	}
	a.moved = true
}

// begin starts a dump of all entries. Events that the kernel sent before must have been
// taken, or be taken later; none of them may have been lost since.
func (a *addresses) begin() {
	a.dump++
	a.dumping, a.deletes = true, 0
}

// end takes out what the dump does not have, unless an event spoke of it meanwhile. With
// complete false, the dump has failed, and nothing is taken out.
func (a *addresses) end(complete bool) {
	a.dumping = false
	stale := func(m *mark) bool { return complete && m.present && m.seen != a.dump && m.touched != a.dump }
	for p, macs := range a.near {
		for mac, x := range macs {
			if stale(&x.mark) {
				x.present = false
				a.enqueue(ref{p, mac}, x)
			}
			if !x.present && !x.queued {
				a.forget(ref{p, mac})
			}
		}
	}
	for t, macs := range a.far {
		for mac, x := range macs {
			if stale(&x.mark) {
				a.setFar(t, mac, x, far{}, false)
			}
			if !x.present {
				delete(macs, mac)
			}
		}
		if len(macs) == 0 {
			delete(a.far, t)
		}
	}
	for t, dsts := range a.floods {
		for dst, x := range dsts {
			if stale(x) {
				a.setFlood(t, dst, x, false)
			}
			if !x.present {
				delete(dsts, dst)
			}
		}
		if len(dsts) == 0 {
			delete(a.floods, t)
		}
	}
}

// removeLink takes out what a link had, which is gone.
func (a *addresses) removeLink(ifindex int) {
	for p, macs := range a.near {
		if p.bridge != ifindex {
			continue
		}
		for mac, x := range macs {
			x.present, x.touched = false, a.dump
			a.enqueue(ref{p, mac}, x)
		}
	}
	for t, macs := range a.far {
		if t.device != ifindex {
			continue
		}
		for mac, x := range macs {
			x.touched = a.dump
			a.setFar(t, mac, x, far{}, false)
		}
		if !a.dumping {
			delete(a.far, t)
		}
	}
	for t, dsts := range a.floods {
		if t.device != ifindex {
			continue
		}
		for dst, x := range dsts {
			x.touched = a.dump
			a.setFlood(t, dst, x, false)
		}
		if !a.dumping {
			delete(a.floods, t)
		}
	}
}
