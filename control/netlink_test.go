package control

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
)

// socket is one whose errors a test sets.
type socket struct {
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (s *socket) receive() ([]byte, error) {
	s.calls.Add(1)
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	time.Sleep(time.Millisecond)
	b := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWNEIGH)
	return b, nil
}

func anything(rtnl.Message) bool { return true }

// TestFollowPauses: an error that lasts is reported once, and does not keep a core
// busy; nor does it keep the watch from ending.
func TestFollowPauses(t *testing.T) {
	broken := errors.New("no such socket")
	s, end, done := &socket{}, make(chan struct{}), make(chan struct{})
	s.err.Store(&broken)
	var kinds [numKinds]atomic.Int64
	reports := make(chan error, 100)
	go func() {
		defer close(done)
		follow(s.receive, end, anything, func(k Kind) { kinds[k].Add(1) }, func(err error) { reports <- err })
	}()
	time.Sleep(400 * time.Millisecond)
	if n := s.calls.Load(); n < 3 || n > 7 { // at 0, 10, 30, 70, 150, 310 ms
		t.Errorf("%d reads in 400 ms", n)
	}
	if n, m := kinds[Routes].Load(), s.calls.Load(); n < m-1 || n > m {
		t.Errorf("routes are listed %d times after %d errors", n, m)
	}
	s.err.Store(nil)
	for _, want := range []error{broken, nil} {
		select {
		case got := <-reports:
			if !errors.Is(got, want) {
				t.Errorf("reported %v, want %v", got, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%v was not reported", want)
		}
	}
	s.err.Store(&broken)
	close(end)
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the watch does not end")
	}
	if len(reports) != 0 {
		t.Errorf("%d reports too many", len(reports))
	}
}

// Lost events are nothing to wait for, nor to report.
func TestFollowAfterLostEvents(t *testing.T) {
	lost, calls := false, 0
	var changed []Kind
	receive := func() ([]byte, error) {
		switch calls++; {
		case calls <= 3:
			return nil, unix.ENOBUFS
		case calls == 4:
			return nil, nil
		}
		return nil, os.ErrClosed
	}
	start := time.Now()
	follow(receive, nil, anything, func(k Kind) { changed = append(changed, k) }, func(error) { lost = true })
	if lost || len(changed) != 3*int(numKinds) || !slices.Contains(changed, Neighbours) || time.Since(start) > time.Second {
		t.Errorf("reported: %v, changed %v, took %v", lost, changed, time.Since(start))
	}
}
