package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// ErrAlone says that there is nobody to take over from.
var ErrAlone = errors.New("no daemon runs that could hand over")

// Successor is a daemon that is about to take over. Its methods are called in their
// order, by one goroutine.
type Successor struct {
	conn *conn
	// Plan is what the predecessor has, and Files are its descriptors, which are the
	// caller's.
	Plan  []byte
	Files []*os.File
	// Early is what the predecessor knew a moment ago.
	Early []byte
}

// Meet connects to the daemon that listens at a path, and gets its plan. The error matches
// [ErrAlone] if none does. Another user's process, but for root's, is refused unheard.
func Meet(path string) (*Successor, error) {
	c, err := dial(path)
	if err != nil {
		return nil, err
	}
	s := &Successor{conn: c}
	if err := s.meet(); err != nil {
		closeAll(s.Files)
		return nil, errors.Join(fmt.Errorf("take over at %s: %w", path, err), c.close())
	}
	return s, nil
}

func dial(path string) (*conn, error) {
	c, err := net.DialTimeout("unix", path, stepTime)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: nobody listens at %s", ErrAlone, path)
	}
	if err != nil {
		return nil, err
	}
	return newConn(c.(*net.UnixConn)), nil
}

func (s *Successor) meet() (err error) {
	if err := mayHandOver(s.conn.c); err != nil {
		return err
	}
	if err := s.conn.c.SetWriteDeadline(time.Now().Add(stepTime)); err != nil {
		return err
	}
	if err := s.conn.send(kindHello, binary.LittleEndian.AppendUint16(nil, protocol)); err != nil {
		return err
	}
	if s.Plan, s.Files, err = s.conn.expect(kindPlan, stepTime); err != nil {
		return err
	}
	var files []*os.File
	s.Early, files, err = s.conn.expect(kindEarly, stepTime)
	closeAll(files)
	return err
}

// Take has the predecessor stop, and returns what it leaves. From now on nobody forwards:
// be quick.
func (s *Successor) Take() ([]byte, error) {
	if err := s.conn.c.SetWriteDeadline(time.Now().Add(stepTime)); err != nil {
		return nil, err
	}
	if err := s.conn.send(kindTake, nil); err != nil {
		return nil, err
	}
	snapshot, files, err := s.conn.expect(kindSnapshot, stepTime)
	closeAll(files)
	return snapshot, err
}

// Taken says that this daemon goes on. With an error it must not: the predecessor has given
// it up, and goes on itself.
func (s *Successor) Taken() error {
	if err := s.conn.c.SetWriteDeadline(time.Now().Add(stepTime)); err != nil {
		return err
	}
	return s.conn.send(kindTaken, nil)
}

// Last waits for the predecessor's last word, and for its end.
func (s *Successor) Last() ([]byte, error) {
	last, files, err := s.conn.expect(kindLast, stepTime)
	closeAll(files)
	return last, err
}

// Refuse tells the predecessor that this daemon does not take over, and ends the
// connection. After Taken it only does the latter.
func (s *Successor) Refuse(why error) {
	_ = s.conn.c.SetWriteDeadline(time.Now().Add(time.Second))
	_ = s.conn.send(kindRefuse, []byte(why.Error()))
	_ = s.conn.close()
}

// Close ends the connection.
func (s *Successor) Close() error { return s.conn.close() }

// Upgrade asks the daemon that listens at a path to start its successor, and waits until
// that one has taken over.
func Upgrade(path string, within time.Duration) error {
	c, err := dial(path)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.send(kindUpgrade, nil); err != nil {
		return err
	}
	_, files, err := c.expect(kindDone, within)
	closeAll(files)
	return err
}
