package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/namespace"
)

const loaded = small + `workloads:
  - {type: bulk, from: [L0], to: [L1], duration: 60s}
`

// victim starts the test binary as a loomlab of its own.
func victim(t *testing.T, role, file string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, role, file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestKillUp: whatever instant of `up` a kill -9 hits, `down` removes all.
func TestKillUp(t *testing.T) {
	for _, after := range []time.Duration{5, 20, 40, 70, 110, 160} {
		l, file := newLab(t, small)
		cmd := victim(t, "victim-up", file)
		time.Sleep(after * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := l.Down(); err != nil {
			t.Fatalf("killed after %d ms: %v", after, err)
		}
		gone(t, l, 0)
		up(t, l) // and the name can be used again
		if err := l.Down(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKillRun: a run that dies by kill -9 in the middle of its load is cleaned
// up after by its guard.
func TestKillRun(t *testing.T) {
	l, file := newLab(t, loaded)
	cmd := victim(t, "victim-run", file)
	waitLoad(t, l)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, l, 10*time.Second)
}

// waitLoad waits until a run's load is there: 1 MB from h0.
func waitLoad(t *testing.T, l *Lab) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		sent := uint64(0)
		_ = l.in("h0", func() error { // not yet, if it fails
			dev, err := netlink.LinkByName("eth0")
			if err == nil {
				sent = dev.Attrs().Statistics.TxBytes
			}
			return err
		})
		if sent > 1e6 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("no load after 20 s")
}

// TestInterruptRun: a run whose context ends takes the lab down before it
// returns.
func TestInterruptRun(t *testing.T) {
	l, _ := newLab(t, loaded)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := make(chan error, 1)
	go func() {
		_, err := l.Run(ctx, RunOptions{})
		errs <- err
	}()
	// Only the name is shared with the running goroutine.
	waitLoad(t, New(l.File))
	cancel()
	select {
	case err := <-errs:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("run returned %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("run goes on after it was interrupted")
	}
	gone(t, l, 0)
}

// TestFailedUp: an up that cannot finish leaves nothing.
func TestFailedUp(t *testing.T) {
	l, _ := newLab(t, small)
	l.File.TCP = "no_such_control"
	if err := l.Up(context.Background()); err == nil {
		t.Fatal("up worked with a congestion control that does not exist")
	}
	gone(t, l, 0)
}

// TestLeftBehind: what a killed `up` left is neither used nor built upon.
func TestLeftBehind(t *testing.T) {
	l, _ := newLab(t, small)
	if err := namespace.Create(l.ns("L0")); err != nil {
		t.Fatal(err)
	}
	if err := l.Up(context.Background()); !errors.Is(err, errLeft) {
		t.Errorf("up: %v", err)
	}
	if _, err := os.Stat(namespace.Dir + "/" + l.ns("L0")); err != nil {
		t.Errorf("up removed what another command may be using: %v", err)
	}
	if _, err := New(l.File).Run(context.Background(), RunOptions{}); !errors.Is(err, errLeft) {
		t.Errorf("run: %v", err)
	}
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	gone(t, l, 0)
}
