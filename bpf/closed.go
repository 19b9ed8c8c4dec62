package bpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachClosed puts the program on an interface such that it stays there when the
// process is gone: by netlink, since a bpf_link ends with its last descriptor. What an
// earlier process left behind is replaced in one step, so that no frame slips through.
// Since such a program does not say whether its owner lives, owners hold a claim.
func (p *Program) attachClosed(ifindex int, mode Mode) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	claim, err := claim(ifindex)
	if errors.Is(err, unix.EADDRINUSE) {
		return unix.EBUSY
	} else if err != nil {
		return fmt.Errorf("claim interface: %w", err)
	}
	p.claim, p.claimed, p.mode = claim, ifindex, mode
	if err := p.replace(l, mode); err != nil {
		return errors.Join(err, p.release())
	}
	p.note()
	return nil
}

// claim marks an interface as one that has an owner: by an abstract socket of the
// network namespace, which the kernel takes away with the process.
func claim(ifindex int) (net.Listener, error) {
	return net.Listen("unix", fmt.Sprintf("@loom/xdp/%d", ifindex))
}

// LeftBehind reports whether an interface's program keeps a closed port closed whose
// owner is gone. Attach takes its place.
func LeftBehind(ifindex int, id uint32) bool {
	if ours, err := isOurs(id, (&Config{Kind: Access}).name()); err != nil || !ours {
		return false
	}
	c, err := claim(ifindex)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// records is a directory with a file for each program that was left on a closed port,
// named by the program's ID, of which a kernel gives each to one program. Reading a
// program's name takes CAP_SYS_ADMIN, which a daemon under systemd does not have.
var records = "/run/loom/xdp"

func record(id ebpf.ProgramID) string { return filepath.Join(records, strconv.Itoa(int(id))) }

// note records that the program is ours, in a process that may not read names. Without
// a directory that it can write to, the port opens all the same.
func (p *Program) note() {
	info, err := p.prog.Info()
	if err != nil {
		return
	}
	id, ok := info.ID()
	if _, err := programName(uint32(id)); !ok || !errors.Is(err, os.ErrPermission) {
		return
	}
	if os.MkdirAll(records, 0o755) == nil {
		_ = os.WriteFile(record(id), nil, 0o644)
	}
}

// isOurs reports whether a program has a name of ours, or was recorded as ours.
func isOurs(id uint32, want string) (bool, error) {
	name, err := programName(id)
	if errors.Is(err, os.ErrPermission) {
		_, err := os.Stat(record(ebpf.ProgramID(id)))
		return err == nil, nil
	}
	return name == want, err
}

// Ours reports whether a program has the name of one of this package's, or was recorded
// as one, whoever attached it.
func Ours(id uint32) bool {
	name, err := programName(id)
	if errors.Is(err, os.ErrPermission) {
		_, err := os.Stat(record(ebpf.ProgramID(id)))
		return err == nil
	}
	for _, k := range []Kind{Access, Uplink, Spine} {
		if err == nil && name == (&Config{Kind: k}).name() {
			return true
		}
	}
	return false
}

// programName returns the name of a program of the kernel.
func programName(id uint32) (string, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// replace puts the program on l in place of none, or of one of its own kind.
func (p *Program) replace(l netlink.Link, mode Mode) error {
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		ours, err := isOurs(x.ProgId, p.cfg.name())
		if err != nil {
			return err
		}
		if !ours {
			return unix.EBUSY
		}
		defer os.Remove(record(ebpf.ProgramID(x.ProgId))) // it goes
		if was := attachedMode(x); was != mode {          // the kernel has one mode at a time
			if err := setXDP(l.Attrs().Index, nil, was); err != nil {
				return err
			}
		}
	}
	return setXDP(l.Attrs().Index, p.prog, mode)
}

// attachedMode returns the mode of an interface's program.
func attachedMode(x *netlink.LinkXdp) Mode {
	if x.AttachMode == attachedSKB {
		return Generic
	}
	return Native
}

// attachedSKB is what the kernel calls generic mode (linux/if_link.h).
const attachedSKB = 2

// setXDP puts prog on an interface, or nothing if it is nil. An interface that is gone
// has nothing on it.
func setXDP(ifindex int, prog *ebpf.Program, mode Mode) error {
	fd, flags := -1, unix.XDP_FLAGS_DRV_MODE
	if mode == Generic {
		flags = unix.XDP_FLAGS_SKB_MODE
	}
	if prog != nil {
		fd = prog.FD()
	}
	err := netlink.LinkSetXdpFdWithFlags(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, fd, flags)
	if prog == nil && errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// release ends the claim.
func (p *Program) release() error {
	err := p.claim.Close()
	p.claim = nil
	return err
}
