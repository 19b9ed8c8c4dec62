package daemon

import (
	"context"
	"errors"
	"slices"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

// auto reports whether the kernel's routes say which ports towards the fabric there are.
func (n *node) auto() bool {
	switch f := n.file.(type) {
	case *config.Leaf:
		return f.Uplinks.Auto()
	case *config.Spine:
		return f.Ports.Auto()
	}
	return false
}

// finder returns who finds the ports of a node; nil: the file lists them.
func (n *node) finder() *control.Finder {
	if !n.auto() {
		return nil
	}
	most, never := dataplane.MaxPorts, make(map[string]string)
	if n.dp.Role == dataplane.Leaf {
		most = dataplane.MaxPaths
	}
	for _, p := range n.dp.Ports {
		if p.Kind == dataplane.Access {
			never[p.Name] = "it is an access port"
		}
	}
	return control.NewFinder(most, never)
}

// with returns the node with ports towards the fabric that were found.
func (n *node) with(found []string) *node {
	c := *n
	c.dp.Ports = nil
	listed := func(name string) bool {
		return slices.ContainsFunc(n.dp.Ports, func(p dataplane.PortConfig) bool { return p.Kind == dataplane.Access && p.Name == name })
	}
	for _, name := range found {
		switch {
		case n.dp.Role == dataplane.Spine:
			c.dp.Ports = append(c.dp.Ports, config.FoundSpinePort(name))
		case !listed(name):
			c.dp.Ports = append(c.dp.Ports, config.FoundUplink(name))
		}
	}
	for _, p := range n.dp.Ports {
		if p.Kind == dataplane.Access {
			c.dp.Ports = append(c.dp.Ports, p)
		}
	}
	return &c
}

// found returns the ports towards the fabric.
func (n *node) found() (names []string) {
	for _, p := range n.dp.Ports {
		if p.Kind != dataplane.Access {
			names = append(names, p.Name)
		}
	}
	return names
}

// look gives a node whose ports are found those that routes lead over now.
func (n *node) look(s *control.State) *node {
	f := n.finder()
	if f == nil {
		return n
	}
	return n.with(f.Look(s, n.overlay()).Ports)
}

// offer hands the ports that were found to the reloader, which takes the newest.
func (r *reloader) offer(ports []string) {
	for {
		select {
		case r.found <- ports:
			return
		case <-r.found:
		}
	}
}

// takeFound puts ports in force that were found.
func (r *reloader) takeFound(ctx context.Context, ports []string) {
	r.applying.Lock()
	defer r.applying.Unlock()
	now := r.now.Load()
	if !now.auto() {
		return
	}
	next := now.with(ports)
	if slices.Equal(now.dp.Ports, next.dp.Ports) {
		return
	}
	if err := r.plane.CheckPorts(next.dp.Ports); err != nil {
		r.log.Error("ports that routes lead over are not taken", "interfaces", ports, "err", err)
		return
	}
	if err := r.exchange(ctx, now, next); err != nil && !errors.Is(err, dataplane.ErrOver) {
		r.log.Error("ports that routes lead over are not taken", "interfaces", ports, "err", err)
	}
}
