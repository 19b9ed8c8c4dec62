package dataplane

import (
	"math"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

const (
	// grace is how long packets may come by a way on which the routes to their source
	// were until now. They were under way when the routes changed: in the queue and on
	// the ring of a link that has failed, or from a leaf that has yet to hear of it.
	grace = mono.Time(100 * time.Millisecond)
	// returning is how long packets may come by a port that was down on the ways that it
	// led on before. Its other end may send as soon as the link is up, and the routes
	// follow on both ends, each in its own time.
	returning = mono.Time(2 * time.Second)
)

// graceViews is how many views may be in their grace. A link that fails changes ports,
// then routes.
const graceViews = 8

// passed is what views before a worker's present one said. It is only looked at for
// packets that the present one would have dropped.
type passed struct {
	views [graceViews]lastView // the last ones
	next  int                  // in views
	ports []lastView           // by PortID: of ports that are or were down, one with it up
}

// lastView is a view that counts until some time.
type lastView struct {
	*view
	until mono.Time
}

// replace notes that v takes the place of old.
func (p *passed) replace(old, v *view, now mono.Time) {
	p.ports = grow(p.ports, len(v.ports))
	if old == nil {
		return
	}
	p.views[p.next] = lastView{old, now + grace}
	p.next = (p.next + 1) % graceViews
	for i := range old.ports {
		was, is := &old.tables.Ports[i], &v.tables.Ports[i]
		switch {
		case was.Ifindex != is.Ifindex:
			p.ports[i] = lastView{} // it may lead elsewhere
		case was.Up && !is.Up:
			p.ports[i] = lastView{p.before(i, now), math.MaxInt64}
		case !was.Up && is.Up && p.ports[i].view != nil:
			p.ports[i].until = now + returning
		}
	}
}

// before returns the oldest of the views in their grace that had a port up: the routes
// may have gone before its link was seen to.
func (p *passed) before(port int, now mono.Time) *view {
	for i := range p.views {
		v := &p.views[(p.next+i)%graceViews]
		if now < v.until && port < len(v.ports) && v.tables.Ports[port].Up {
			return v.view
		}
	}
	return nil
}

// spine reports whether a spine's packet from src may come by a port after all.
func (p *passed) spine(src overlay.Addr, port PortID, now mono.Time) bool {
	for i := range p.views {
		if v := &p.views[i]; now < v.until && v.leadsTo(src, port) {
			return true
		}
	}
	v := &p.ports[port]
	return now < v.until && v.leadsTo(src, port)
}

// leaf reports whether a leaf's packet from a VTEP may come by an uplink after all.
func (p *passed) leaf(vtep overlay.Addr, port *port, now mono.Time) bool {
	for i := range p.views {
		if v := &p.views[i]; now < v.until && v.reaches(vtep, port.uplink) {
			return true
		}
	}
	v := &p.ports[port.id]
	return now < v.until && v.reaches(vtep, port.uplink)
}

// leadsTo reports whether a spine's route to an address leads out of a port.
func (v *view) leadsTo(dst overlay.Addr, port PortID) bool {
	if v.routes == nil {
		return false
	}
	g, ok := v.routes.Lookup(dst.Netip())
	return ok && int(g) < len(v.groups) && v.groups[g].leadsTo(port)
}

// reaches reports whether a leaf's way to a VTEP leads out of an uplink.
func (v *view) reaches(vtep overlay.Addr, uplink uint8) bool {
	peer, ok := v.vtepNumber.get(vtep, vtep.Hash())
	return ok && v.from[peer]>>uplink&1 != 0
}

// leadsTo reports whether packets of the group's destinations may come by a port.
func (g *viewGroup) leadsTo(port PortID) bool { return g.from[port/64]>>(port%64)&1 != 0 }
