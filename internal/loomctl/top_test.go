package loomctl

import (
	"bytes"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

// Rates are what counters grew by; one that fell, or a port that came, has grown by
// nothing. A worker's rates are over the time between its own two rounds.
func TestTop(t *testing.T) {
	worker := func(n int, received uint64, l admin.Load) admin.Worker {
		l.At += 1e9 // a daemon's clock is never 0
		return admin.Worker{Worker: n, Account: dataplane.Account{Received: received, Dropped: received / 100}, Load: l}
	}
	before, after := &look{at: time.Unix(100, 0)}, &look{at: time.Unix(102, 0)}
	before.stats.Workers = []admin.Worker{worker(0, 1000, admin.Load{Busy: time.Second, Rounds: 50, Bursts: 40, Sleeps: 7}), worker(1, 500, admin.Load{})}
	after.stats.Workers = []admin.Worker{
		worker(0, 2001000, admin.Load{At: 2e9, Busy: 2 * time.Second, Rounds: 150050, Bursts: 100040, Sleeps: 207}), worker(1, 400, admin.Load{At: 2e9}), {Worker: 2, Account: dataplane.Account{Received: 24690000}, Fast: true},
	}
	before.ports.Ports = []admin.Port{{Port: "eth1", RxFrames: 10, RxBytes: 1000, Dropped: 5}}
	after.ports.Ports = []admin.Port{{Port: "eth1", RxFrames: 2000010, RxBytes: 2500001000, TxFrames: 30, TxBytes: 3000, Dropped: 7, Rate: 48000, Utilisation: 0.5, QueueBytes: 9000}, {Port: "eth2", RxFrames: 77, Utilisation: 0.1}}
	top := between(before, after)
	if w := top.Workers[0]; w.Busy != 0.5 || w.Frames != 1e6 || w.PerBurst != 20 || w.PerFrame != 500 || w.Sleeps != 100 || w.Dropped != 10000 {
		t.Errorf("worker 0: %+v", w)
	}
	if w := top.Workers[1]; w.Frames != 0 || w.Busy != 0 {
		t.Errorf("worker 1: %+v", w)
	}
	if p := top.Ports[0]; p.Load != 0.25 { // 12 kbit/s of 48, whatever the meter's last milliseconds were
		t.Errorf("port eth1: %+v", p)
	}
	if p := top.Ports[1]; p.RxFrames != 0 {
		t.Errorf("a port that has come: %+v", p)
	}
	var out bytes.Buffer
	printTop(&out, top)
	golden(t, "top", out.String())
}

func TestQuantity(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 7.6: "8", 9999: "9999", 10000: "10.0k", 1.2345e6: "1234.5k", 12345678: "12.3M", 9.4e9: "9400.0M", 1e11: "100.0G"} {
		if got := quantity(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

// The command looks twice and prints what the daemon is called by nobody.
func TestTopCommand(t *testing.T) {
	out, err := run("--socket", daemon(t), "top", "--over", "100ms", "-o", "json")
	if err != nil || !bytes.Contains([]byte(out), []byte(`"workers": [`)) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := run("--socket", daemon(t), "top", "--over", "1ms"); err == nil {
		t.Error("1ms is long enough")
	}
}
