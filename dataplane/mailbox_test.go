package dataplane

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLateNudge: nudges may come while a mailbox is closed and after it; none
// reaches a file that has got the descriptor's number since.
func TestLateNudge(t *testing.T) {
	for range 100 {
		var m mailbox
		m.init()
		if err := m.open(); err != nil {
			t.Fatal(err)
		}
		number := m.wake
		var nudgers sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			nudgers.Go(func() {
				<-start
				for range 100 {
					m.nudge()
				}
			})
		}
		close(start)
		m.close()
		other, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		nudgers.Wait()
		var n [8]byte
		if _, err := unix.Read(other, n[:]); err != unix.EAGAIN {
			t.Errorf("descriptor %d, formerly %d, was written to: %v, %v", other, number, n, err)
		}
		unix.Close(other)
	}
}
