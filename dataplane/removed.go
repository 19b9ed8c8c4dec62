package dataplane

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// moment is how long SetPorts waits for what is on its way to the wires of ports that
	// go: hardly any port has more than what its TX ring holds.
	moment = 10 * time.Millisecond
	// drainLook is how often a port that takes longer is looked at.
	drainLook = 2 * time.Millisecond
)

// removed reports whether the port has gone from the layout, and is only to be closed.
// Node.opening is held.
func (d *device) removed() bool { return !d.until.IsZero() }

// busy reports whether something is on its way to the wire of a port.
func (n *Node) busy(d *device) bool {
	busy := false
	for _, w := range n.workers {
		w.call(func() { busy = busy || w.ports[d.id].busy() })
	}
	return busy
}

// drainPorts waits until nothing is on its way to the wires of ports, or until a time.
// Workers have the layout without the ports by then: they look for a new view before they
// answer.
func (n *Node) drainPorts(going []*device, end time.Time) {
	for slices.ContainsFunc(going, n.busy) && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}

// closeRemoved closes ports that have gone from the layout, unless something waits for them
// that they may still send. It reports whether there is such a port. opening is held.
func (n *Node) closeRemoved() (more bool) {
	for _, d := range n.devices {
		switch {
		case d == nil || !d.removed():
		case time.Now().Before(d.until) && n.busy(d):
			more = true
		default:
			n.closeForGood(d)
		}
	}
	return more
}

// clearPlaces closes removed ports that somebody wants gone, when what waits for them has
// been sent. opening is held.
func (n *Node) clearPlaces(wants func(*device) bool) {
	for _, d := range n.devices {
		if d != nil && d.removed() && wants(d) {
			n.drainPorts([]*device{d}, d.until)
			n.closeForGood(d)
		}
	}
}

// wants reports whether a port of l has the place or the interface of a device.
func (l *layout) wants(d *device) bool {
	return int(d.id) < len(l.ports) && l.ports[d.id].taken() ||
		slices.ContainsFunc(l.ports, func(s seat) bool { return s.Name == d.cfg.Name })
}

// closeForGood closes a removed port, and forgets it.
func (n *Node) closeForGood(d *device) {
	if d.ifindex != 0 {
		n.closePort(d, fmt.Errorf("port %s has been removed", d.cfg.Name))
	}
	n.mu.Lock()
	n.devices[d.id] = nil
	n.mu.Unlock()
	attrs := []any{"port", d.cfg.Name, "kind", d.cfg.Kind.String()}
	if d.cfg.Kind == Access && !d.cfg.FailOpen && !n.cfg.KernelOverlay {
		attrs = append(attrs, "closed", true, "open_with", "ip link set dev "+d.cfg.Name+" xdp off")
	}
	n.log.Info("port removed", attrs...)
}

// watchRemoved closes removed ports when what waits for them has been sent.
func (n *Node) watchRemoved(ctx context.Context) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.removing:
		case <-look.C:
		}
		n.opening.Lock()
		more := !n.over() && n.closeRemoved()
		n.opening.Unlock()
		if more {
			look.Reset(drainLook)
		}
	}
}
