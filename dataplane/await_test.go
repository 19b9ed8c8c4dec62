package dataplane

import (
	"testing"
	"time"
)

// TestAwait: a worker that makes no round keeps Await waiting, and its next one ends that.
func TestAwait(t *testing.T) {
	rigs := newRigs(t, leafConfig(), leafTables(), 2)
	n := &Node{}
	for _, r := range rigs {
		r.w.begin()
		n.workers = append(n.workers, r.w)
	}
	done := make(chan struct{})
	go func() {
		n.Await()
		close(done)
	}()
	stuck := rigs[1]
	for deadline := time.Now().Add(5 * time.Second); !stuck.w.mail.waiting.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second worker is not asked")
		}
		rigs[0].w.round(rigs[0].now)
	}
	select {
	case <-done:
		t.Fatal("Await has returned before the second worker made a round")
	case <-time.After(20 * time.Millisecond):
	}
	stuck.w.round(stuck.now)
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("Await has not returned")
	}
}
