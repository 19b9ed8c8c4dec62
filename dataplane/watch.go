package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// reopenAfter is how long a port that could not be opened is left alone.
	reopenAfter = 200 * time.Millisecond
	// lookEvery is how often ports are held against their interfaces. Nobody tells of
	// queues, of a veth's peer, or of an XDP program that was taken off.
	lookEvery = time.Second
)

// unfit is an error that lasts until somebody changes the interface.
type unfit string

func (e unfit) Error() string { return string(e) }

// taken is the error of a queue that the kernel keeps for a socket of before. Of a veth
// pair's it does so as long as the other end keeps packets that were sent to it, which may
// be for ever: such a port is its host's affair, and none of the others'.
type taken struct{ error }

func (e taken) Unwrap() error { return e.error }

// watchDevices follows interfaces that vanish, return and change.
func (n *Node) watchDevices(ctx context.Context) {
	retry, look := time.NewTimer(reopenAfter), time.NewTicker(lookEvery)
	defer retry.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-retry.C:
		case <-look.C:
			n.lookAtDevices()
		}
		if n.followDevices() {
			retry.Reset(reopenAfter)
		}
	}
}

// followDevices closes and opens ports so that they match the newest tables.
// It reports whether one of them is to be tried again soon.
func (n *Node) followDevices() (again bool) {
	n.opening.Lock()
	defer n.opening.Unlock()
	v := n.view.Load()
	if v == nil || n.over() {
		return false
	}
	for i, d := range n.devices {
		if d == nil || d.removed() {
			continue
		}
		want := v.tables.Ports[i].Ifindex
		if d.ifindex == want {
			continue
		}
		if d.ifindex != 0 {
			n.log.Warn("interface is gone: port closed", "port", d.cfg.Name, "ifindex", d.ifindex)
			n.closePort(d, fmt.Errorf("interface %s is gone; the port opens again when it returns", d.cfg.Name))
		}
		if want == 0 {
			continue
		}
		first := d.err
		if err := n.openDevice(d, want); err != nil {
			again = again || !errors.As(err, new(unfit))
			if first == nil || first.Error() != err.Error() {
				n.log.Error("cannot open port; trying again", "error", err)
			}
		}
	}
	return again
}

// closePort closes an open port and notes why. The workers know before the sockets go.
func (n *Node) closePort(d *device, why error) {
	n.setOpened(d.id, 0)
	if err := n.closeDevice(d); err != nil {
		n.log.Warn("close port", "port", d.cfg.Name, "error", err)
	}
	n.note(d, why)
}

// lookAtDevices closes ports whose interfaces have become unfit. They open again, as
// after a start, when they are fit.
func (n *Node) lookAtDevices() {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.over() {
		return
	}
	for _, d := range n.devices {
		if d == nil || d.ifindex == 0 || d.removed() {
			continue
		}
		if err := n.fits(d, &d.binding); errors.As(err, new(unfit)) {
			err = fmt.Errorf("port %s: %w", d.cfg.Name, err)
			n.log.Error("port closed", "error", err)
			n.closePort(d, err)
		}
	}
}

// Interface is what the machine says of an interface.
type Interface struct {
	Name               string
	RXQueues, TXQueues int    // in use
	XDP                bool   // it has an XDP program
	Program            uint32 // its ID; 0: the kernel does not name one, as where there are two
	// TagsHidden says why an XDP program that its driver tells nothing may not see all
	// VLAN tags, and TagsFix what to do; "": it sees them.
	TagsHidden, TagsFix string
}

// fits reports, as unfit, what keeps a port with a binding that has a program from forwarding as it was
// told: what the start-up checks refuse. An interface that is gone is not its business.
func (n *Node) fits(d *device, b *binding) error {
	if n.cfg.Look == nil {
		return nil
	}
	i, err := n.cfg.Look(b.ifindex)
	if err != nil || i.Name != d.cfg.Name {
		return err
	}
	if problem, fix := n.cfg.WrongQueues(i.Name, i.RXQueues, i.TXQueues); problem != "" {
		return unfit(problem + "; fix: " + fix)
	}
	if !i.XDP || i.Program != 0 && !b.program.Is(i.Program) {
		return unfit("its XDP program was taken off the interface")
	}
	if d.cfg.Kind != Access || b.program.ReadsTags() {
		return nil
	}
	v := n.view.Load()
	if v == nil {
		return nil // it is in no network yet
	}
	in := v.networks(d.id)
	if problem, fatal := in.WithoutTags(d.cfg.Name, i.TagsHidden); fatal {
		return unfit(problem + "; fix: " + i.TagsFix)
	}
	return nil
}
