package lab

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// daemons finds or builds leafd and spined, once for all tests. TestMain calls removeDaemons.
var daemons = sync.OnceValues(func() (dir string, err error) {
	dir, removeDaemons, err = testenv.Daemons(false)
	return dir, err
})

var removeDaemons = func() error { return nil }

// withDaemons gives a lab leafd and spined, and makes its data plane loom.
func withDaemons(t *testing.T, text string) (l *Lab, file string) {
	t.Helper()
	l, file = newLab(t, strings.Replace(text, "dataplane: kernel", "dataplane: loom", 1))
	var err error
	if l.Binaries, err = daemons(); err != nil {
		t.Fatal(err)
	}
	return l, file
}

// TestRunLoom is TestRun over leafd and spined: the same work through AF_XDP,
// on every uplink, with accounts that balance.
func TestRunLoom(t *testing.T) {
	l, _ := withDaemons(t, busy)
	rep, err := l.Run(context.Background(), RunOptions{Sample: 100 * time.Millisecond, Page: true, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, rep)
	checkLook(t, l)
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	gone(t, l, 0)
	if err := rep.Failure(); err != nil || rep.Reachability.Reachable != 30 {
		t.Errorf("reachable %d of 30, failure %v", rep.Reachability.Reachable, err)
	}
	if len(rep.Daemons) != 4 {
		t.Fatalf("accounts of %d daemons, want 4", len(rep.Daemons))
	}
	for _, d := range rep.Daemons {
		if d.Account.Received == 0 || d.Account.Sent == 0 || len(d.Closed) > 0 {
			t.Errorf("%s: %+v", d.Node, d)
		}
	}
	for _, w := range rep.Result.Workloads {
		if w.ReceivedBytes == 0 || w.Failed > 0 {
			t.Errorf("workload %+v", w)
		}
	}
	if len(rep.Phases) != 3 {
		t.Fatalf("%d phases, want 3", len(rep.Phases))
	}
	// A daemon has 50 ms to notice that a link went down; until then it hands
	// frames to a port that loses them: 50 Mbit/s and the bucket.
	const late = 50e6/8*0.05 + 16*1024
	for i, p := range rep.Phases {
		for _, u := range p.Leaves[0].Uplinks {
			down := i == 1 && u.Link == "L0-S1.0"
			if down == u.Up || down && u.Bytes > late || i == 0 && u.Bytes == 0 {
				t.Errorf("phase %d: %+v", i, u)
			}
		}
	}
	if f := rep.Faults[0]; f.AfterBits <= 0 || f.LongestGap > time.Second {
		t.Errorf("traffic did not go on after the failure: %+v", f)
	}
}

// TestDeadDaemon: a daemon that dies during a run ends the run with its name,
// and nothing stays behind.
func TestDeadDaemon(t *testing.T) {
	l, _ := withDaemons(t, loaded)
	errs := make(chan error, 1)
	go func() {
		_, err := l.Run(context.Background(), RunOptions{})
		errs <- err
	}()
	watch := New(l.File)
	waitLoad(t, watch)
	record, err := os.ReadFile(watch.path("L0.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var l0 struct{ PID int }
	if err := json.Unmarshal(record, &l0); err != nil {
		t.Fatal(err)
	}
	if procs := inside(t, watch); len(procs) != 4 || !slices.ContainsFunc(procs, func(p process) bool { return p.pid == l0.PID }) {
		t.Fatalf("processes %v, want 4 daemons, with %s of L0", procs, record)
	}
	if err := unix.Kill(l0.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-errs:
		if err == nil || !strings.Contains(err.Error(), "L0") {
			t.Errorf("run returned %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("run goes on without L0's daemon")
	}
	gone(t, l, 0)
	if _, err := os.Stat(l.dir()); err == nil {
		t.Error("state is left")
	}
}
