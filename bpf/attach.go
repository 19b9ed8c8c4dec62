package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Attach puts the program on an interface of the calling thread's network
// namespace and returns the mode in use. Auto tries Native and falls back to
// Generic. Errors use the interface's name. Detach, Close and the end of the
// process end the attachment. Nothing is pinned: after a crash the kernel has the
// interface back. A closed port is different, see [Config.Closed]: only Detach ends
// its attachment, and Attach takes the place of a program that was left behind.
func (p *Program) Attach(ifindex int, name string, mode Mode) (Mode, error) {
	if p.prog == nil {
		return 0, fmt.Errorf("attach %s to %s: %w", p.cfg.name(), name, os.ErrClosed)
	}
	if p.link != nil || p.claim != nil {
		return 0, fmt.Errorf("attach %s to %s: it is attached already; detach it first", p.cfg.name(), name)
	}
	var err error
	switch mode {
	case Native, Generic:
		err = p.attach(ifindex, mode)
	case Auto:
		mode = Native
		if err = p.attach(ifindex, mode); errors.Is(err, unix.EOPNOTSUPP) {
			mode = Generic
			err = p.attach(ifindex, mode)
		}
	default:
		return 0, fmt.Errorf("attach %s to %s: unknown mode %v", p.cfg.name(), name, mode)
	}
	if err != nil {
		return 0, explain(err, p.cfg.name(), name, ifindex, mode)
	}
	return mode, nil
}

func (p *Program) attach(ifindex int, mode Mode) error {
	if p.cfg.Closed {
		return p.attachClosed(ifindex, mode)
	}
	flags := link.XDPDriverMode
	if mode == Generic {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: p.prog, Interface: ifindex, Flags: flags})
	if err != nil {
		return err
	}
	p.link, p.mode = l, mode
	return nil
}

// Detach takes the program off its interface. The program keeps its sockets and can
// be attached again. Detach succeeds if the program was not attached, or if the
// interface is gone.
func (p *Program) Detach() error {
	if p.claim != nil {
		return p.detached(errors.Join(setXDP(p.claimed, nil, p.mode), p.release()))
	}
	if p.link == nil {
		return nil
	}
	err := p.link.Close()
	p.link = nil
	return p.detached(err)
}

func (p *Program) detached(err error) error {
	if err != nil {
		return fmt.Errorf("detach %s: %w", p.cfg.name(), err)
	}
	return nil
}

// explain turns the kernel's error number into a cause and a remedy.
func explain(err error, prog, name string, ifindex int, mode Mode) error {
	var gone netlink.LinkNotFoundError
	if _, lookup := netlink.LinkByIndex(ifindex); errors.As(lookup, &gone) {
		// The kernel returns EINVAL, which has many causes.
		return fmt.Errorf("attach %s to %s: no interface has index %d here: %w", prog, name, ifindex, unix.ENODEV)
	}
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("interface %s already has %s: is another leafd or spined running on it? Stop it, or remove the program with `ip link set dev %s xdp off`: %w",
			name, attached(ifindex), name, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("attach %s to %s: %w (needs root, or CAP_BPF and CAP_NET_ADMIN)", prog, name, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("attach %s to %s: the driver has no %v XDP: %w; choose generic", prog, name, mode, err)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("attach %s to %s in %v mode: %w; most drivers (veth looks at its peer's too) want an MTU that fits one page, some 3500 bytes: lower it, or choose generic",
			prog, name, mode, err)
	}
	return fmt.Errorf("attach %s to %s in %v mode: %w", prog, name, mode, err)
}

// attached describes the XDP program on an interface.
func attached(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached {
		return "an XDP program"
	}
	id := l.Attrs().Xdp.ProgId
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return fmt.Sprintf("XDP program %d", id)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil || info.Name == "" {
		return fmt.Sprintf("XDP program %d", id)
	}
	return fmt.Sprintf("XDP program %d (%s)", id, info.Name)
}
