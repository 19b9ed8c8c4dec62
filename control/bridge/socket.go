package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveSize is the room for one read from a socket. The kernel fills up to 32 KiB of it
// when it lists.
const receiveSize = 64 << 10

// errInterrupted says that something changed while it was listed.
var errInterrupted = errors.New("the kernel's list changed while it was read")

// socket is a netlink socket. It stays in the network namespace that it was opened in.
type socket struct {
	f   *os.File
	raw syscall.RawConn
	buf []byte
	seq uint32
}

func openSocket(protocol int, groups ...int) (s *socket, err error) {
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
	s = &socket{f: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, receiveSize)}
	if s.raw, err = s.f.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.f.Close())
	}
	return s, nil
}

func (s *socket) close() error { return s.f.Close() }

// setBuffer sets the receive buffer, beyond the system's limit if that is allowed.
func (s *socket) setBuffer(size int) error {
	var err error
	control := s.raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size); err != nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}
	})
	if err := errors.Join(control, err); err != nil {
		return fmt.Errorf("set the netlink receive buffer to %d bytes: %w", size, err)
	}
	return nil
}

// onlyBridges has the kernel leave out the events of neighbours that are not about
// forwarding entries: of ARP's there may be many.
func (s *socket) onlyBridges() error {
	// The filter sees the message. Words are read as big-endian, so single bytes are.
	low, high := uint32(4), uint32(5) // nlmsg_type
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low, high = high, low
	}
	const load, equal, less, give = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{
		{Code: load, K: high},
		{Code: equal, Jt: 0, Jf: 5, K: 0},
		{Code: load, K: low},
		{Code: less, Jt: 0, Jf: 3, K: unix.RTM_NEWNEIGH},
		{Code: less, Jt: 2, Jf: 0, K: unix.RTM_GETNEIGH},
		{Code: load, K: unix.SizeofNlMsghdr}, // ndm_family
		{Code: equal, Jt: 0, Jf: 1, K: unix.AF_BRIDGE},
		{Code: give, K: 1 << 30},
		{Code: give, K: 0},
	}
	var err error
	control := s.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(control, err)
}

// receive reads what has come, and waits for it. It calls empty whenever there is
// nothing to read. What does not come from the kernel is left out: n is 0.
func (s *socket) receive(empty func()) (n int, err error) {
	var from unix.Sockaddr
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
	if err = errors.Join(wait, err); err != nil {
		return 0, err
	}
	if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
		return 0, nil
	}
	return n, nil
}

// messages yields the type and the payload of each message of b, until yield returns
// false.
func messages(b []byte, yield func(kind uint16, flags uint16, seq uint32, payload []byte) bool) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return
		}
		if !yield(binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]), b[unix.SizeofNlMsghdr:size]) {
			return
		}
		b = b[min((size+3)&^3, len(b)):]
	}
}

// dump sends a request for a list, and calls each with the payload of every answer, which
// is good until each returns. afterRead, which may be nil, is called after every read. An
// interrupted list is complete but for what changed meanwhile.
func (s *socket) dump(kind uint16, payload []byte, each func(kind uint16, b []byte), afterRead func() error) error {
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
	if err := errors.Join(write, err); err != nil {
		return err
	}
	done, interrupted := false, false
	for !done {
		n, err := s.receive(nil)
		if err != nil {
			return err
		}
		var answer error
		messages(s.buf[:n], func(kind, flags uint16, seq uint32, b []byte) bool {
			interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case seq != s.seq: // of a list that was given up
			case kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR:
				done = true
				if len(b) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(b)); code < 0 {
						answer = syscall.Errno(-code)
					}
				}
			default:
				each(kind, b)
			}
			return !done
		})
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
		return errInterrupted
	}
	return nil
}
