package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrOver says that the ports of a node are not its own to change any more.
var ErrOver = errors.New("the node is closed, or its ports are a successor's")

// Ports returns the node's ports by PortID. A place that nobody has is without a name.
func (n *Node) Ports() []PortConfig { return n.layout.Load().configs() }

// CheckPorts reports why SetPorts would refuse these ports. The error matches
// [NoRoomError] if there is no room for one of them.
func (n *Node) CheckPorts(ports []PortConfig) error {
	n.opening.Lock()
	defer n.opening.Unlock()
	trial := n.seats.clone()
	_, err := trial.arrange(n.cfg.Role, ports, time.Now())
	return err
}

// SetPorts has the node have these ports and no others, while it forwards. A port is known
// by its name and its kind: one that stays keeps PortID, LBTag, counters and socket, and
// its other settings are put in force. A new one opens when tables name its interface. One
// that goes gets no new frames; what waits for it is sent within [Config.Drain], and then
// it is closed. SetPorts does not wait for that for longer than a moment, unless a port is
// to have the place or the interface of one that is still to be closed. The numbers of a
// port that goes are others' after a rest, so that it has them again if it comes back soon.
// SetPorts changes nothing if it returns an error, which is [ErrOver] if the node has ended
// or was handed over meanwhile.
//
// The tables that were published last stay in force, without what they say of ports that
// go. Others with the new PortIDs are due, even if they say the same.
func (n *Node) SetPorts(ports []PortConfig) error {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.over() {
		return ErrOver
	}
	seats := n.seats.clone()
	next, err := seats.arrange(n.cfg.Role, ports, time.Now())
	if err != nil {
		return err
	}
	n.clearPlaces(next.wants)
	old := n.layout.Load()
	reopen := n.takePlaces(old, next, &seats)
	if err := n.setLayout(old, next); err != nil {
		return err
	}
	n.seats = seats
	n.closePlaces(old, next)
	n.closeToOpen(reopen)
	err = n.renameUplinks(old, next)
	select {
	case n.changed <- struct{}{}:
	default:
	}
	return err
}

// takePlaces prepares workers and devices for the ports of next. It returns the devices
// of ports that have to be opened anew for what has changed. Nothing that it does counts
// before the layout is in force, but for settings of ports that stay.
func (n *Node) takePlaces(old, next *layout, seats *seats) (reopen []*device) {
	n.mu.Lock()
	for len(n.devices) < len(next.ports) {
		n.devices = append(n.devices, nil)
	}
	n.mu.Unlock()
	for i := range next.ports {
		id, s := PortID(i), &next.ports[i]
		switch {
		case !s.taken():
		case old.has(id, s.Kind) && old.ports[i].Name == s.Name:
			if n.change(id, &old.ports[i].PortConfig, &s.PortConfig) {
				reopen = append(reopen, n.devices[i])
			}
		default:
			n.takePlace(id, s, seats)
		}
	}
	return reopen
}

// takePlace gives a new port its place.
func (n *Node) takePlace(id PortID, s *seat, seats *seats) {
	for _, w := range n.workers {
		e := w.newEgress(id, &s.Egress)
		w.call(func() { w.seat(id, &s.PortConfig, e) })
	}
	if tag := int(s.tag); s.Kind == Uplink && tag < n.seats.tags.Len() && seats.tags.Key(tag) != n.seats.tags.Key(tag) {
		n.shared.leaf.ForgetUplink(s.tag)
	}
	n.fast.seat(id, s.Name)
	cfg := s.PortConfig
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices[id] = &device{id: id, cfg: &cfg, since: time.Now(), err: fmt.Errorf("port %s has been added and opens when the tables name its interface", s.Name)}
}

// change puts other settings of a port in force, and reports whether it has to be opened
// anew for them.
func (n *Node) change(id PortID, was, is *PortConfig) (reopen bool) {
	if *was == *is {
		return false
	}
	if was.Egress != is.Egress {
		for _, w := range n.workers {
			w.call(func() { w.ports[id].egress.change(&is.Egress) })
		}
	}
	cfg := *is
	n.mu.Lock()
	n.devices[id].cfg = &cfg
	n.mu.Unlock()
	return was.FailOpen != is.FailOpen
}

// setLayout puts a layout in force, with the tables that were published last.
func (n *Node) setLayout(old, next *layout) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	opened, tables := n.opened, n.tables
	n.opened = grow(slices.Clone(opened), len(next.ports))
	n.layout.Store(next)
	if tables == nil {
		return nil
	}
	if err := n.publish(tables.keep(func(id PortID) bool {
		return int(id) < len(old.ports) && next.has(id, old.ports[id].Kind) && next.ports[id].Name == old.ports[id].Name
	})); err != nil {
		n.layout.Store(old)
		n.opened = opened
		return err
	}
	return nil
}

// keep returns t without what it says of ports that do not stay. Next hops there remain,
// as they have numbers, too: the ports are down.
func (t *Tables) keep(stays func(PortID) bool) *Tables {
	c := *t
	c.Ports = slices.Clone(t.Ports)
	for i := range c.Ports {
		if !stays(PortID(i)) {
			c.Ports[i] = PortState{}
		}
	}
	c.Bindings = slices.DeleteFunc(slices.Clone(t.Bindings), func(b Binding) bool { return !stays(b.Port) })
	c.Static = slices.DeleteFunc(slices.Clone(t.Static), func(s StaticMAC) bool { return s.Port != NoPort && !stays(s.Port) })
	return &c
}

// closePlaces closes the ports of old that are not in next, when what waits for them has
// been sent. Those that take longer than a moment for that watchRemoved closes.
func (n *Node) closePlaces(old, next *layout) {
	now := time.Now()
	var going []*device
	for i := range old.ports {
		s := &old.ports[i]
		if s.taken() && !(next.has(PortID(i), s.Kind) && next.ports[i].Name == s.Name) {
			d := n.devices[i]
			d.until = now.Add(n.cfg.Drain)
			going = append(going, d)
		}
	}
	n.drainPorts(going, now.Add(min(moment, n.cfg.Drain)))
	if n.closeRemoved() {
		select {
		case n.removing <- struct{}{}:
		default: // the watcher has yet to look at all
		}
	}
}

// closeToOpen closes ports for a moment, when what waits for them has been sent. A program
// that would stay on a closed port goes, too: it could not be replaced by one that would not.
func (n *Node) closeToOpen(reopen []*device) {
	reopen = slices.DeleteFunc(reopen, func(d *device) bool { return d.ifindex == 0 })
	for _, d := range reopen {
		n.setOpened(d.id, 0) // nothing more is sent there
	}
	n.drainPorts(reopen, time.Now().Add(n.cfg.Drain))
	for _, d := range reopen {
		if err := d.program.Detach(); err != nil {
			n.log.Warn("close port", "port", d.cfg.Name, "error", err)
		}
		n.closePort(d, fmt.Errorf("port %s is opened again, as its settings have changed", d.cfg.Name))
	}
}

// renameUplinks has schemes that know uplinks by their order know them by the LBTags that
// they have now.
func (n *Node) renameUplinks(old, next *layout) error {
	if slices.Equal(old.order, next.order) {
		return nil
	}
	n.scheming.Lock()
	defer n.scheming.Unlock()
	if !slices.ContainsFunc(n.rules, func(c Class) bool { return ofUplinks(&c) != nil }) {
		return nil
	}
	return n.install(n.rules)
}
