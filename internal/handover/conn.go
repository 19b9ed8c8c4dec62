// Package handover is how a daemon's successor takes over from it, over a Unix socket:
// who may connect, the messages with the descriptors that go along, and the order of
// steps, which sees to it that never both forward and never none. It knows nothing of what
// is handed over. See docs/decisions/0031-handover.md.
package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/peercred"
)

// kind is what a message is.
type kind uint8

// The messages, in the order of a hand-over. Those of the successor are answered, each by
// the next one of the predecessor.
const (
	kindHello    kind = iota + 1 // successor: here I am, of this version of the protocol
	kindPlan                     // predecessor: what there is, with all descriptors
	kindEarly                    // predecessor: what does not change much, while it goes on
	kindTake                     // successor: stop
	kindSnapshot                 // predecessor: stopped; all that is left
	kindTaken                    // successor: it is mine; I go on
	kindLast                     // predecessor: what was not urgent; I am gone
	kindRefuse                   // either: no, and why
	kindUpgrade                  // a person's: start your successor
	kindDone                     // predecessor, to a person: it has taken over
)

// protocol is the version of the messages and of their order.
const protocol = 1

const (
	headerLen = 1 + 2 + 4 // kind, descriptors, length
	// maxBody bounds a message: a million addresses for each of 32 workers fit.
	maxBody = 1 << 30
	// maxFiles is the most descriptors that one message of the kernel's carries is 253.
	maxFiles = 200
)

// ErrRefused is what the other side's refusal wraps.
var ErrRefused = errors.New("refused")

// conn is a connection with messages and descriptors. One goroutine uses it.
type conn struct {
	c     *net.UnixConn
	files []*os.File // that came and belong to no message yet
	// process is at the other end of a server's connection.
	process int
	// keep has a server's connection outlive the end of serving.
	keep func()
}

// socketBuffer is asked for, so that a snapshot is on its way at once. A kernel that
// grants less makes the sender wait for the reader.
const socketBuffer = 4 << 20

func newConn(c *net.UnixConn) *conn {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
			}
		})
	}
	return &conn{c: c}
}

// close ends the connection and closes what nobody took.
func (c *conn) close() error {
	closeAll(c.files)
	c.files = nil
	return c.c.Close()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// send writes a message. The files stay the caller's.
func (c *conn) send(k kind, body []byte, files ...*os.File) error {
	if len(body) > maxBody || len(files) > 1<<16-1 {
		return fmt.Errorf("message of %d bytes with %d descriptors is too large", len(body), len(files))
	}
	h := make([]byte, headerLen, headerLen+min(len(body), 4096))
	h[0] = byte(k)
	binary.LittleEndian.PutUint16(h[1:], uint16(len(files)))
	binary.LittleEndian.PutUint32(h[3:], uint32(len(body)))
	// Descriptors travel with bytes: the first ones with the header, the others with a
	// byte each of their own, behind it.
	for first := true; first || len(files) > 0; first = false {
		n := min(len(files), maxFiles)
		var oob []byte
		if n > 0 {
			fds := make([]int, n)
			for i := range fds {
				var err error
				if fds[i], err = number(files[i]); err != nil {
					return err
				}
			}
			oob = unix.UnixRights(fds...)
		}
		b := []byte{0}
		if first {
			b = h
		}
		sent, _, err := c.c.WriteMsgUnix(b, oob, nil)
		if err == nil && sent < len(b) {
			_, err = c.c.Write(b[sent:])
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		files = files[n:]
	}
	if len(body) == 0 {
		return nil // not even an empty write: the reader may have had enough, and gone
	}
	if _, err := c.c.Write(body); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// number returns the descriptor of a file, which stays what it is: Fd would make it
// blocking, also in other processes and in the listener that it is a copy of.
func number(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		return -1, fmt.Errorf("send descriptor %s: %w", f.Name(), err)
	}
	return fd, nil
}

// Copy returns another descriptor of a listener's socket, for a plan.
func Copy(l net.Listener) (*os.File, error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("listener at %v has no descriptor", l.Addr())
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	n, cerr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { n, cerr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if cerr != nil {
		return nil, cerr
	}
	return os.NewFile(uintptr(n), l.Addr().String()), nil
}

// receive reads a message. The files are the caller's.
func (c *conn) receive() (k kind, body []byte, files []*os.File, err error) {
	var h [headerLen]byte
	if err := c.read(h[:]); err != nil {
		return 0, nil, nil, err
	}
	n, size := int(binary.LittleEndian.Uint16(h[1:])), binary.LittleEndian.Uint32(h[3:])
	if size > maxBody {
		return 0, nil, nil, fmt.Errorf("a message says that it has %d bytes", size)
	}
	for left := n - maxFiles; left > 0; left -= maxFiles {
		if err := c.read(make([]byte, 1)); err != nil {
			return 0, nil, nil, err
		}
	}
	if len(c.files) != n {
		return 0, nil, nil, fmt.Errorf("a message says that it has %d descriptors, and %d came", n, len(c.files))
	}
	// A sender that dies must not make the reader want all that it announced.
	body = make([]byte, 0, min(size, socketBuffer))
	for len(body) < int(size) {
		at := len(body)
		body = append(body, make([]byte, min(int(size)-at, socketBuffer))...)
		if err := c.read(body[at:]); err != nil {
			return 0, nil, nil, err
		}
	}
	files, c.files = c.files, nil
	return kind(h[0]), body, files, nil
}

// read fills b, and keeps what descriptors come with it.
func (c *conn) read(b []byte) error {
	oob := make([]byte, unix.CmsgSpace(4*253))
	for len(b) > 0 {
		n, on, flags, _, err := c.c.ReadMsgUnix(b, oob)
		if on > 0 {
			if err := c.take(oob[:on]); err != nil {
				return err
			}
		}
		switch {
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("descriptors were cut off: raise the limit of open files (LimitNOFILE)")
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		case n == 0:
			return fmt.Errorf("receive: %w", io.EOF)
		}
		b = b[n:]
	}
	return nil
}

// take keeps the descriptors of a control message.
func (c *conn) take(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("receive descriptors: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fmt.Errorf("receive descriptors: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			c.files = append(c.files, os.NewFile(uintptr(fd), "inherited"))
		}
	}
	return nil
}

// expect reads a message that must be of a kind. A refusal is an error with its words.
func (c *conn) expect(want kind, within time.Duration) (body []byte, files []*os.File, err error) {
	if err := c.c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, nil, err
	}
	k, body, files, err := c.receive()
	switch {
	case err != nil:
		return nil, nil, err
	case k == want:
		return body, files, nil
	}
	closeAll(files)
	if k == kindRefuse {
		return nil, nil, fmt.Errorf("%w: %s", ErrRefused, body)
	}
	return nil, nil, fmt.Errorf("message %d came where %d should", k, want)
}

// mayConnect returns the process at the other end of a server's connection. An error says
// that it may not have everything: see trusted.
func mayConnect(c *net.UnixConn) (process int, err error) {
	cred, err := peercred.Of(c)
	if err != nil {
		return 0, err
	}
	if !peercred.Trusted(cred) {
		return 0, fmt.Errorf("process %d of user %d may not: only root and user %d may", cred.Pid, cred.Uid, os.Geteuid())
	}
	return int(cred.Pid), nil
}

// mayHandOver reports who listens at the other end of a client's connection, if that is
// nobody to take descriptors and frames from: whoever may write to the socket's directory
// can listen there.
func mayHandOver(c *net.UnixConn) error {
	cred, err := peercred.Of(c)
	if err != nil {
		return err
	}
	if !peercred.Trusted(cred) {
		return fmt.Errorf("process %d of user %d listens there, and only one of root or of user %d may hand over: remove the socket if the process is no daemon of yours, or take over as user %d",
			cred.Pid, cred.Uid, os.Geteuid(), cred.Uid)
	}
	return nil
}
