package control

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
)

// change is what a running mirror is told anew.
type change struct {
	ports   []dataplane.PortConfig
	overlay *config.Leaf
	done    chan<- error
}

// Configure has the mirror make tables of other ports, by PortID, and of another overlay.
// It returns when these have been published, or with the error of the data plane that
// refuses them, or when ctx ends. It is for one goroutine at a time.
func (m *Mirror) Configure(ctx context.Context, ports []dataplane.PortConfig, overlay *config.Leaf) error {
	done := make(chan error, 1)
	m.next.Store(&change{ports, overlay, done})
	m.changedAll()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changedAll has everything listed: of ports more is known than of other links.
func (m *Mirror) changedAll() {
	for k := range numKinds {
		m.changed[k].Store(true)
	}
}

// configured takes over what Configure was given; nil: nothing.
func (m *Mirror) configured() *change {
	c := m.next.Swap(nil)
	if c == nil {
		return nil
	}
	m.Ports, m.Overlay, m.builder.ports, m.builder.prev = c.ports, c.overlay, c.ports, nil
	return c
}

// names are those of interfaces, which any goroutine may read and set.
type names struct{ p atomic.Pointer[[]string] }

func (n *names) get() []string {
	if p := n.p.Load(); p != nil {
		return *p
	}
	return nil
}

func (n *names) set(to []string) { n.p.Store(&to) }

func (n *names) has(name string) bool { return slices.Contains(n.get(), name) }

// SetPorts names the ports whose carriers are polled, and of whose links the speed is
// asked for.
func (k *Netlink) SetPorts(ports ...string) { k.ports.set(ports) }
