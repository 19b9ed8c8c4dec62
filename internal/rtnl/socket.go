// Package rtnl talks to the kernel by netlink (RFC 3549): sockets, lists, messages and
// their attributes. It must not know what a message is about.
//
// Package github.com/vishvananda/netlink/nl has such readers, too. Its reader of attributes
// is a goroutine that logs, or one that gives up a message for one bad attribute; its
// sockets block a thread each. What it makes of links and addresses is used elsewhere.
package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// receiveSize is the room for one read from a socket. The kernel fills up to 32 KiB of
	// it when it lists.
	receiveSize = 64 << 10
	// answerTimeout is how long the kernel may take for the next part of a list.
	answerTimeout = 60 * time.Second
)

// ErrInterrupted says that something changed while it was listed (NLM_F_DUMP_INTR).
var ErrInterrupted = errors.New("the kernel's list changed while it was read")

// Socket is a netlink socket. It stays in the network namespace that it was opened in.
// All but Close is for one goroutine at a time.
type Socket struct {
	f      *os.File
	raw    syscall.RawConn
	closed atomic.Bool
	buf    []byte
	seq    uint32
}

// Open opens a socket of a protocol (NETLINK_*) in the calling thread's network namespace,
// and subscribes to groups (RTNLGRP_*).
func Open(protocol int, groups ...int) (s *Socket, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind a netlink socket: %w", err), unix.Close(fd))
	}
	for _, g := range groups { // after bind, which sets the first 32 of them
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to netlink group %d: %w", g, err), unix.Close(fd))
		}
	}
	s = &Socket{f: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, receiveSize)}
	if s.raw, err = s.f.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.f.Close())
	}
	return s, nil
}

// Close closes the socket. A goroutine that waits for messages gets [os.ErrClosed].
func (s *Socket) Close() error {
	s.closed.Store(true) // before: the error of a wait that a close ends has no name
	return s.f.Close()
}

// SetBuffer sets the receive buffer in bytes, beyond the system's limit if that is allowed.
func (s *Socket) SetBuffer(size int) error {
	err := s.control(func(fd int) error {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
			return nil
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	})
	if err != nil {
		return fmt.Errorf("set the netlink receive buffer to %d bytes: %w", size, err)
	}
	return nil
}

// SetFilter has the kernel leave out messages that a program (classic BPF) returns 0 for.
// The program sees the message from its header on.
func (s *Socket) SetFilter(program []unix.SockFilter) error {
	err := s.control(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	if err != nil {
		return fmt.Errorf("attach a filter to a netlink socket: %w", err)
	}
	return nil
}

// SetStrict has the kernel filter lists by what the request says (Linux 4.20). An older
// kernel does not know the option, and lists more.
func (s *Socket) SetStrict() error {
	err := s.control(func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	})
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("set NETLINK_GET_STRICT_CHK: %w", err)
	}
	return nil
}

func (s *Socket) control(f func(fd int) error) error {
	var err error
	control := s.raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(control, err)
}

// Receive reads the messages that have come, and waits for some. They are good until the
// next call. It calls empty, which may be nil, whenever there is nothing to read. What does
// not come from the kernel is left out: the result is empty then. ENOBUFS says that the
// kernel had more to say than the buffer takes.
func (s *Socket) Receive(empty func()) ([]byte, error) {
	var n int
	var from unix.Sockaddr
	var err error
	wait := s.raw.Read(func(fd uintptr) bool {
		for {
			n, from, err = unix.Recvfrom(int(fd), s.buf, 0)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			if empty != nil {
				empty()
			}
			return false
		}
		return true
	})
	switch {
	case s.closed.Load():
		return nil, os.ErrClosed
	case wait != nil: // too long, see Dump
		return nil, wait
	case err != nil:
		return nil, err
	}
	if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
		return nil, nil
	}
	return s.buf[:n], nil
}

// Dump sends a request for a list (RTM_GET*), and calls each with the payload of every
// message of the wanted kind (RTM_NEW*), which is good until each returns. afterRead, which
// may be nil, is called after every read; its error ends the list. A list that ends with
// [ErrInterrupted] is complete but for what changed meanwhile.
func (s *Socket) Dump(request, wanted uint16, payload []byte, each func(payload []byte), afterRead func() error) error {
	if err := s.ask(request, payload); err != nil {
		return err
	}
	defer func() { _ = s.f.SetReadDeadline(time.Time{}) }() // it fails if the socket is closed
	done, interrupted := false, false
	for !done {
		if err := s.f.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		b, err := s.Receive(nil)
		if err != nil {
			return err
		}
		var answer error
		for m := range Messages(b) {
			if m.Seq != s.seq {
				continue // of a list that was given up
			}
			interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				done, answer = true, m.errno()
			case wanted:
				each(m.Payload)
			}
			if done {
				break
			}
		}
		if answer != nil {
			return answer
		}
		if afterRead != nil {
			if err := afterRead(); err != nil {
				return err
			}
		}
	}
	if interrupted {
		return ErrInterrupted
	}
	return nil
}

// ask sends a request for a list.
func (s *Socket) ask(kind uint16, payload []byte) error {
	s.seq++
	req := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(payload))
	binary.NativeEndian.PutUint32(req, uint32(cap(req)))
	binary.NativeEndian.PutUint16(req[4:], kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(req[8:], s.seq)
	req = append(req, payload...)
	var err error
	write := s.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(write, err)
}
