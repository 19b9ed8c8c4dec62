package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/telemetry"
	"github.com/loomfabric/loom/internal/testenv"
)

// A daemon is one leafd or spined.
type daemon struct {
	t                   *testing.T
	program, name       string
	ns                  *testenv.Namespace
	config, socket, log string
	pid                 int       // 0: does not run
	cmd                 *exec.Cmd // nil: package lab started it, and reaps it
	done                chan error
}

// start runs the daemon with its configuration. Package lab ends it, with
// everything else in its namespace.
func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close() // the child has its own descriptor
	d.cmd = exec.Command(filepath.Join(daemons, d.program), "run", "-c", d.config)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.ns.Do(d.t, func() { err = d.cmd.Start() })
	if err != nil {
		d.t.Fatalf("start %s in %s: %v", d.program, d.ns.Name, err)
	}
	d.pid = d.cmd.Process.Pid
	done, cmd := make(chan error, 1), d.cmd
	d.done = done
	go func() { done <- cmd.Wait() }()
}

// signal sends a signal and waits until the process is gone. It returns how it
// ended, nil for exit code 0; of a process that package lab started that cannot
// be told.
func (d *daemon) signal(s unix.Signal) error {
	d.t.Helper()
	fd, err := unix.PidfdOpen(d.pid, 0)
	if err != nil {
		d.t.Fatalf("%s (process %d) has ended: %v\n%s", d.name, d.pid, err, d.tail())
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
		d.t.Fatalf("send %v to %s: %v", s, d.name, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err == nil && n > 0 {
			break
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s survives %v for 10 s\n%s", d.name, s, d.tail())
		}
	}
	d.pid = 0
	if d.cmd == nil {
		return nil
	}
	return <-d.done
}

// stop ends the daemon in order.
func (d *daemon) stop() {
	d.t.Helper()
	d.balanced()
	if err := d.signal(unix.SIGTERM); err != nil {
		d.t.Errorf("%s: after SIGTERM: %v\n%s", d.name, err, d.tail())
	}
}

// ready waits until the daemon says so.
func (d *daemon) ready() {
	d.t.Helper()
	eventually(d.t, 15*time.Second, func() string {
		if _, err := d.get("/readyz"); err != nil {
			return fmt.Sprintf("%s is not ready: %v\n%s", d.name, err, d.tail())
		}
		return ""
	})
}

// get asks the daemon's telemetry.
func (d *daemon) get(path string) ([]byte, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		},
	}}
	resp, err := client.Get("http://daemon" + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// stats reads /debug/stats.
func (d *daemon) stats() *telemetry.Debug {
	d.t.Helper()
	body, err := d.get("/debug/stats")
	if err != nil {
		d.t.Fatalf("statistics of %s: %v\n%s", d.name, err, d.tail())
	}
	s := new(telemetry.Debug)
	if err := json.Unmarshal(body, s); err != nil {
		d.t.Fatalf("statistics of %s: %v", d.name, err)
	}
	return s
}

// metric reads /metrics and sums a metric's samples that have all the labels,
// each written as name="value".
func (d *daemon) metric(name string, labels ...string) uint64 {
	d.t.Helper()
	body, err := d.get("/metrics")
	if err != nil {
		d.t.Fatalf("metrics of %s: %v\n%s", d.name, err, d.tail())
	}
	sum := 0.0
samples:
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue samples
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			d.t.Fatalf("metrics of %s: %q: %v", d.name, line, err)
		}
		sum += v
	}
	return uint64(sum)
}

// drops is loom_drops_total of a reason.
func (d *daemon) drops(reason string) uint64 {
	d.t.Helper()
	return d.metric("loom_drops_total", `reason="`+reason+`"`)
}

// sent is the number of frames that left by a port.
func (d *daemon) sent(port string) uint64 {
	d.t.Helper()
	return d.metric("loom_port_sent_frames_total", `port="`+port+`"`)
}

// balanced holds every worker's account: what came in or was made here has left,
// was dropped for a reason, or is held.
func (d *daemon) balanced() {
	d.t.Helper()
	if d.pid == 0 {
		return
	}
	for _, b := range d.stats().Balance {
		if b.Received+b.Made != b.Sent+b.Dropped+b.Consumed+b.Held || !b.OK {
			d.t.Errorf("%s, worker %d: received %d + made %d != sent %d + dropped %d + consumed %d + held %d",
				d.name, b.Worker, b.Received, b.Made, b.Sent, b.Dropped, b.Consumed, b.Held)
		}
	}
}

// verify is what holds for every daemon at the end of a test.
func (d *daemon) verify() {
	d.t.Helper()
	if d.pid != 0 {
		if err := unix.Kill(d.pid, 0); err != nil {
			d.t.Errorf("%s has ended by itself\n%s", d.name, d.tail())
			return
		}
		d.balanced()
	}
	if bad := lines(d.whole(), "panic:", "DATA RACE", "fatal error:"); len(bad) > 0 {
		d.t.Errorf("log of %s: %s\n%s", d.name, bad[0], d.whole())
	}
}

// whole is the daemon's log.
func (d *daemon) whole() string {
	log, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// tail is the end of the daemon's log.
func (d *daemon) tail() string {
	l := strings.Split(strings.TrimSpace(d.whole()), "\n")
	return strings.Join(l[max(0, len(l)-15):], "\n")
}

// xdp returns the ID of the XDP program on an interface, 0 for none.
func xdp(t *testing.T, ns *testenv.Namespace, dev string) uint32 {
	t.Helper()
	x := ns.Link(t, dev).Attrs().Xdp
	if x == nil || !x.Attached {
		return 0
	}
	return x.ProgId
}
