package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// command runs a daemon's program in a node to its end.
func (f *fab) command(node, program string, args ...string) (output string, code int) {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(daemons, program), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	f.ns[node].Do(f.t, func() { err = cmd.Start() })
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		err = <-done
		f.t.Fatalf("%s %v runs although it should have refused (killed: %v):\n%s", program, args, err, out.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestRefusals: a configuration that cannot work is refused by check and by
// run, with place and remedy, before anything is touched.
func TestRefusals(t *testing.T) {
	f := up(t, "trio.yaml")
	f.daemons["L0"].stop() // its interfaces are free
	f.detached("L0")
	programs := f.programs("L0")
	good := f.goodLeaf()
	up0 := f.ns["L0"].Link(t, "up-s0-0")
	for _, c := range []struct {
		name, old, new string
		line           int // 0: not a mistake of the file
		want           []string
		before, after  func()
	}{
		{name: "unknown key", old: "vtep:", new: "vtap: 1\nvtep:", line: 3, want: []string{"vtap"}},
		{name: "duplicate VNI", old: "  - vni: 10\n", new: "  - vni: 10\n  - vni: 10\n", line: 11, want: []string{"10"}},
		{name: "missing interface", old: "interface: up-s0-0", new: "required: true, interface: up-s9-0", line: 6, want: []string{"up-s9-0"}},
		{name: "VTEP that is a peer's", old: "peers: [10.255.0.2]", new: "peers: [10.255.0.1]", line: 4, want: []string{"10.255.0.1"}},
		{name: "VTEP twice among the peers", old: "[10.255.0.2]", new: "[10.255.0.2, 10.255.0.2]", line: 4, want: []string{"10.255.0.2"}},
		{name: "VNI of an access port that does not exist", old: "acc-h0, vni: 10", new: "acc-h0, vni: 11", line: 8, want: []string{"11"}},
		{
			name: "MTU too small for the overhead", want: []string{"up-s0-0", "1500", "1550", "ip link set"},
			before: func() { setMTU(t, f.ns["L0"], up0, 1500) }, after: func() { setMTU(t, f.ns["L0"], up0, 1600) },
		},
		{name: "queues", old: "vtep:", new: "workers: 3\nvtep:", want: []string{"receive queues", "ethtool"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before()
				defer c.after()
			}
			file := filepath.Join(t.TempDir(), "leafd.yaml")
			text := strings.Replace(good, c.old, c.new, 1)
			if c.old != "" && text == good {
				t.Fatalf("%q is not in the file", c.old)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			want := append([]string{"fix:"}, c.want...)
			if c.line > 0 {
				want = append(want, fmt.Sprintf("%s:%d:", file, c.line))
			}
			for _, verb := range []string{"check", "run"} {
				out, code := f.command("L0", "leafd", verb, "-c", file)
				if code == 0 {
					t.Errorf("%s: exit code 0", verb)
				}
				for _, w := range want {
					if !strings.Contains(out, w) {
						t.Errorf("%s does not say %q:\n%s", verb, w, out)
					}
				}
				if now := f.programs("L0"); !maps.Equal(now, programs) {
					t.Errorf("%s touched XDP programs: %v were there, %v are", verb, programs, now)
				}
			}
			if _, err := os.Stat(filepath.Join(f.dir, "refused.sock")); err == nil {
				t.Error("a telemetry socket was opened")
			}
		})
	}
}

// goodLeaf is a configuration for L0 with which nothing is wrong.
func (f *fab) goodLeaf() string {
	return fmt.Sprintf(`name: L0
telemetry: {listen: "unix:%s/refused.sock"}
vtep: 10.255.0.1
peers: [10.255.0.2]
uplinks:
  - interface: up-s0-0
access:
  - {interface: acc-h0, vni: 10}
vnis:
  - vni: 10
`, f.dir)
}

// TestMissingVTEP: a VTEP that the machine lacks is worth a warning with a
// remedy; frames are forwarded all the same.
func TestMissingVTEP(t *testing.T) {
	f := up(t, "trio.yaml")
	f.daemons["L0"].stop()
	programs := f.programs("L0")
	good := f.goodLeaf()
	file := filepath.Join(t.TempDir(), "leafd.yaml")
	if err := os.WriteFile(file, []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := f.command("L0", "leafd", "check", "-c", file); code != 0 || strings.Contains(out, "warning") {
		t.Errorf("the good file: exit code %d\n%s", code, out)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(good, "vtep: 10.255.0.1", "vtep: 10.255.0.9", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, code := f.command("L0", "leafd", "check", "-c", file)
	if code != 0 || !strings.Contains(out, "warning") || !strings.Contains(out, "ip addr add 10.255.0.9/32") {
		t.Errorf("a VTEP that is not on the machine: exit code %d\n%s", code, out)
	}
	if now := f.programs("L0"); !maps.Equal(now, programs) {
		t.Errorf("check touched XDP programs: %v were there, %v are", programs, now)
	}
}

// TestSpineRefusals is TestRefusals for spined.
func TestSpineRefusals(t *testing.T) {
	f := up(t, "trio.yaml")
	f.daemons["S0"].stop()
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"overlapping VTEPs": {"vteps: [10.255.0.0/24, 10.255.0.1/32]\nports: [{interface: dn-l0-0}]\n", 1},
		"unknown key":       {"vteps: [10.255.0.0/24]\nports:\n  - {interface: dn-l0-0, vni: 5}\n", 3},
		"missing interface": {"vteps: [10.255.0.0/24]\nports:\n  - {interface: dn-l9-0, required: true}\n", 3},
	} {
		file := filepath.Join(t.TempDir(), "spined.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"check", "run"} {
			out, code := f.command("S0", "spined", verb, "-c", file)
			if code == 0 || !strings.Contains(out, fmt.Sprintf("%s:%d:", file, c.line)) || !strings.Contains(out, "fix:") {
				t.Errorf("%s: %s: exit code %d\n%s", name, verb, code, out)
			}
		}
		f.detached("S0")
	}
}

// TestSecondDaemon: a second leafd on a first one's interfaces refuses and says
// why, and the first does not notice.
func TestSecondDaemon(t *testing.T) {
	f := up(t, "trio.yaml")
	d := f.daemons["L0"]
	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), d.socket, filepath.Join(f.dir, "second.sock"), 1)
	if other == string(text) {
		t.Fatalf("no %s in %s", d.socket, text)
	}
	file := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(file, []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	programs := map[string]uint32{}
	for _, p := range f.ports("L0") {
		programs[p] = xdp(t, f.ns["L0"], p)
	}
	for _, verb := range []string{"check", "run"} {
		out, code := f.command("L0", "leafd", verb, "-c", file)
		if code == 0 || !strings.Contains(out, "up-s0-0 already") || !strings.Contains(out, "stop the other daemon") {
			t.Errorf("%s: exit code %d\n%s", verb, code, out)
		}
	}
	for p, id := range programs {
		if got := xdp(t, f.ns["L0"], p); got != id || id == 0 {
			t.Errorf("%s has XDP program %d, had %d", p, got, id)
		}
	}
	// Also with the same telemetry address, and without any, nothing happens to
	// the first one.
	if out, code := f.command("L0", "leafd", "run", "-c", d.config); code == 0 {
		t.Errorf("a second leafd with the first one's file ends with exit code 0:\n%s", out)
	}
	d.ready()
	w := openWire(t, f.ns["h2"], "eth0")
	b := frame(broadcast, overlay.MAC(f.host("h0").MAC), 0, "unharmed")
	openWire(t, f.ns["h0"], "eth0").send(b)
	w.expect(b, "h2")
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 1<<20)
}
