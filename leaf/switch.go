package leaf

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// numbers are what all nodes of the fabric know leaves by, for the schemes that have a
// balance.Switch.
type numbers struct {
	self   uint16
	leaves []uint16 // by leaf; those behind them have their index
	routed bool     // switches have the routes in force
}

// Number says what all nodes of the fabric know this leaf and the others by, in the order
// of paths. The slice stays the driver's.
func (l *Leaf[T]) Number(self uint16, leaves []uint16) {
	l.numbers = numbers{self: self, leaves: leaves}
}

// route gives switches the routes in force, if they have not got them.
func (l *Leaf[T]) route() {
	if l.routed || !l.timed {
		return
	}
	l.routed = true
	var ports [balance.MaxPaths]int
	for _, c := range l.classes {
		if c.Switch == nil {
			continue
		}
		for i := range l.view.Paths {
			p, number := &l.view.Paths[i], uint16(i)
			if i < len(l.leaves) {
				number = l.leaves[i]
			}
			if number == l.self {
				continue
			}
			for j, u := range p.Uplink[:p.N] {
				ports[j] = int(u)
			}
			c.Switch.SetRoute(number, ports[:p.N], false)
		}
		c.Switch.SetRoute(l.self, nil, true)
	}
}

// tickSwitch has a class's switch do what is due, and says to neighbours what it has to
// say.
func (l *Leaf[T]) tickSwitch(now mono.Time, c *Class) {
	l.route()
	l.told = c.Switch.Tick(now, l.told[:0])
	for i := range l.told {
		m := &l.told[i]
		m.Link, m.Fabric.Scheme = uint8(m.Port), c.Scheme.Wire
		var none T
		l.say(now, m.Message, none, overlay.AnyLink)
	}
}
