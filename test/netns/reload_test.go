package netns

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/testenv"
)

// reload sends SIGHUP and waits for a new line of the log that has all parts.
func (d *daemon) reload(parts ...string) {
	d.t.Helper()
	before := len(d.whole())
	if err := unix.Kill(d.pid, unix.SIGHUP); err != nil {
		d.t.Fatalf("SIGHUP to %s: %v\n%s", d.name, err, d.tail())
	}
	eventually(d.t, 5*time.Second, func() string {
	line:
		for line := range strings.Lines(d.whole()[before:]) {
			for _, p := range parts {
				if !strings.Contains(line, p) {
					continue line
				}
			}
			return ""
		}
		return fmt.Sprintf("%s does not log %q:\n%s", d.name, parts, d.whole()[before:])
	})
}

// reloaded holds the metric of the last reload, and how its time of success
// compares with that of an earlier call.
func (d *daemon) reloaded(successful bool, since uint64) (at uint64) {
	d.t.Helper()
	if got := d.metric("loom_config_last_reload_successful") == 1; got != successful {
		d.t.Errorf("%s: the last reload was successful: %v, want %v", d.name, got, successful)
	}
	at = d.metric("loom_config_last_reload_success_timestamp_seconds")
	if now := uint64(time.Now().Unix()); at < since || at > now || now-at > 3600 || !successful && at != since {
		d.t.Errorf("%s: read with success at %d, before that at %d, and now it is %d", d.name, at, since, now)
	}
	return at
}

func (d *daemon) decisions(scheme string) uint64 {
	d.t.Helper()
	return d.metric("loom_scheme_decisions_total", `scheme="`+scheme+`"`)
}

// TestReload: schemes and classes change under traffic, and no frame is lost: a
// TCP connection goes on, every datagram of many flows arrives, nothing is
// dropped, and accounts balance. What cannot change is refused whole.
func TestReload(t *testing.T) {
	f := up(t, "pair.yaml")
	d := f.daemons["L0"]
	s := startStream(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 2<<20)
	back := startStream(t, f.ns["h4"], f.ns["h1"], f.addr("h1"), 1<<20)
	if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h4"), 56, 2); !ok { // addresses are learned
		t.Fatal(out)
	}
	start := time.Now()
	p := startProbe(t, f.ns["h0"], f.ns["h4"], f.addr("h4"), 32, time.Millisecond)
	s.flows(256<<10, 5*time.Second)
	back.flows(256<<10, 5*time.Second)
	if d.decisions("ecmp") == 0 {
		t.Error("ecmp has decided nothing")
	}

	for _, scheme := range []string{"conga", "spray", "letflow", "drill", "conga-flow", "local", "ecmp"} {
		before := d.decisions(scheme)
		f.edit("L0", func(c *config.Leaf) { c.Balancing = vocab.Balancing{Scheme: scheme} })
		d.reload("configuration reloaded", "scheme="+scheme)
		s.flows(256<<10, 5*time.Second)
		back.flows(128<<10, 5*time.Second)
		if n := d.decisions(scheme); n <= before {
			t.Errorf("%s has decided nothing after the reload", scheme)
		}
	}

	// The class takes the datagrams, and what is left stays with ecmp.
	f.edit("L0", func(c *config.Leaf) {
		c.Classes = []vocab.Class{{Name: "datagrams", Match: vocab.Match{Protocol: unix.IPPROTO_UDP}, Balancing: vocab.Balancing{Scheme: "spray"}}}
	})
	d.reload("configuration reloaded", "scheme=ecmp", "classes=1")
	sprayed, hashed := d.decisions("spray"), d.decisions("ecmp")
	s.flows(256<<10, 5*time.Second)
	if d.decisions("spray") == sprayed || d.decisions("ecmp") == hashed {
		t.Error("frames of one class only were balanced")
	}
	p.end()
	if sent, lost := p.lost(start, time.Now()); lost > 0 || sent < 1000 {
		t.Errorf("%d of %d datagrams were lost", lost, sent)
	}
	for name, x := range f.daemons {
		if n := x.metric("loom_drops_total"); n > 0 {
			t.Errorf("%s dropped %d frames: %v", name, n, x.stats().Drops)
		}
		x.balanced()
	}
	refuse(f, d, s)
}

// refuse holds a daemon against files that it must not take over.
func refuse(f *fab, d *daemon, s *stream) {
	t := f.t
	good, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	decided, at := d.decisions("conga"), d.reloaded(true, 0)
	f.edit("L0", func(c *config.Leaf) { c.Scheme, c.Workers, c.Uplinks[1].Shaper.Rate = "conga", 2, 1e9 })
	d.reload("everything stays as it was", "workers of", "restart")
	if err := os.WriteFile(d.config, []byte("scheme: [conga"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.reload("everything stays as it was", "not YAML")
	d.reloaded(false, at)
	s.flows(256<<10, 5*time.Second)
	if n := d.decisions("conga"); n != decided {
		t.Errorf("conga decided %d times after a file that was refused", n-decided)
	}
	if err := os.WriteFile(d.config, good, 0o644); err != nil {
		t.Fatal(err)
	}
	d.reload("nothing has changed")
	d.reloaded(true, at)
	spine := f.daemons["S0"]
	at = spine.reloaded(true, 0)
	spine.reload("nothing has changed")
	spine.reloaded(true, at)
	if good, err = os.ReadFile(spine.config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spine.config, append(good, "workers: 2\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	spine.reload("everything stays as it was")
	spine.reloaded(false, spine.metric("loom_config_last_reload_success_timestamp_seconds"))
	if err := os.WriteFile(spine.config, good, 0o644); err != nil {
		t.Fatal(err)
	}
	s.flows(256<<10, 5*time.Second)
}
