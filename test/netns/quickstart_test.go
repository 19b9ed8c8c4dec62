package netns

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/testenv"
)

const quickstart = "../../docs/quickstart.md"

// block returns a block of the quickstart that is to be run, as it stands.
func block(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- run: " + name + " -->\n```sh\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatalf("%s has no block %q", quickstart, name)
	}
	return string(m[1])
}

// A machine is a namespace in which the quickstart's commands run, with places of its own
// for what they write outside of the working directory.
type machine struct {
	t   *testing.T
	ns  *testenv.Namespace
	dir string
	cmd *exec.Cmd
	log bytes.Buffer
}

// newMachines returns two machines that so many links join: eth1, eth2, …
func newMachines(t *testing.T, links int) (m [2]*machine) {
	t.Helper()
	testenv.NeedRoot(t)
	if _, err := exec.LookPath("ping"); err != nil {
		t.Fatal(err) // the page's commands need it
	}
	for i := range m {
		m[i] = &machine{t: t, ns: testenv.NewNamespace(t, "quick"), dir: t.TempDir()}
		m[i].ns.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "0")
		if err := os.Symlink(daemons, filepath.Join(m[i].dir, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range links {
		name := fmt.Sprintf("eth%d", i+1)
		testenv.VethPair(t, m[0].ns, name, m[1].ns, name, testenv.VethOptions{KeepTXCsum: true})
		for _, x := range m {
			link := x.ns.Link(t, name)
			x.ns.Do(t, func() {
				if err := netlink.LinkSetDown(link); err != nil { // the commands set it up
					t.Fatal(err)
				}
			})
		}
	}
	return m
}

// places gives a machine folders of its own, /etc/frr with what this one has there, and a
// systemctl that does what FRR's unit does.
const places = `set -e
cp -a /etc/frr frr
for d in /run/netns /run/loom /run/frr /var/log/frr /etc/frr; do
	mkdir -p $d
	mount -t tmpfs -o mode=755 none $d
done
chown frr:frr /run/frr /var/log/frr /etc/frr
cp -a frr/. /etc/frr
systemctl() { [ "$*" = "restart frr" ] && /usr/lib/frr/frrinit.sh restart > frr.log 2>&1; }
`

// start runs a block on the machine, with the commands behind it in the foreground. When
// the test ends all that it started ends.
func (m *machine) start(script string) {
	m.t.Helper()
	m.cmd = exec.Command("ip", "netns", "exec", m.ns.Name, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", places+script)
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = m.dir, &m.log, &m.log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.cmd.Wait() }()
	m.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-ended
		if m.t.Failed() {
			m.t.Logf("%s:\n%s", m.ns.Name, m.log.String())
		}
	})
}

// run runs a block beside what was started, as in another terminal.
func (m *machine) run(script string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(m.cmd.Process.Pid), "-m", "-n", "--wd="+m.dir, "sh", "-ec", script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// second is a block as the second machine has it.
func second(t *testing.T, script string) string {
	t.Helper()
	out := strings.Replace(script, "N=1 PEER=2", "N=2 PEER=1", 1)
	if out == script {
		t.Fatalf("a block does not begin with N=1 PEER=2:\n%s", script)
	}
	return out
}

// bothSee waits until the look at the first machine shows what the page says.
func bothSee(t *testing.T, m *machine, script string, want ...string) {
	t.Helper()
	eventually(t, 40*time.Second, func() string {
		out, err := m.run(script)
		for _, w := range want {
			if err == nil && !regexp.MustCompile(w).MatchString(out) {
				err = fmt.Errorf("no %q", w)
			}
		}
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
}

// TestQuickstart: two machines back to back, by the fifteen lines of docs/quickstart.md.
func TestQuickstart(t *testing.T) {
	script := block(t, "back-to-back")
	if n := strings.Count(script, "\n"); n != 15 {
		t.Errorf("the quickstart has %d lines, and promises fifteen", n)
	}
	if readme, err := os.ReadFile("../../README.md"); err != nil || !strings.Contains(string(readme), "```sh\n"+script+"```") {
		t.Errorf("README.md has other lines than %s (%v)", quickstart, err)
	}
	m := newMachines(t, 1)
	m[0].start(script)
	m[1].start(second(t, script))
	bothSee(t, m[0], block(t, "look"), "3 received", `10\.0\.0\.2 +fabric +capable`, `10\.0\.0\.2 +0 +eth1 +alive`)
	// The longest packets of the hosts fit, and none is fragmented.
	if out, err := m[1].run("ip netns exec host ping -c 1 -M do -s 1472 10.1.0.1"); err != nil {
		t.Errorf("a packet of 1500 bytes: %v\n%s", err, out)
	}
}

// TestQuickstartFRR: two cables, and BGP that finds the neighbour on each.
func TestQuickstartFRR(t *testing.T) {
	script, m := block(t, "frr"), newMachines(t, 2)
	m[0].start(script)
	m[1].start(second(t, script))
	bothSee(t, m[0], "ip netns exec host ping -c 1 -W 1 10.1.0.2; bin/loomctl paths", "1 received", `eth1 +alive`, `eth2 +alive`)
	if out, err := m[0].run("ip link set eth1 down; sleep 0.5; ip netns exec host ping -c 2 -W 1 10.1.0.2"); err != nil {
		t.Errorf("with one cable left: %v\n%s", err, out)
	}
}

// TestQuickstartTaps: a tap is an access port that leafd finds no fault with, before a
// virtual machine is behind it.
func TestQuickstartTaps(t *testing.T) {
	m := newMachines(t, 1)[0]
	m.start("ip link set eth1 up mtu 1600; ip address add 10.0.0.1/24 dev eth1; touch up; sleep 600")
	eventually(t, 10*time.Second, func() string {
		if _, err := os.Stat(filepath.Join(m.dir, "up")); err != nil {
			return err.Error()
		}
		return ""
	})
	out, err := m.run(block(t, "taps"))
	if err != nil || !strings.Contains(out, "leafd.yaml: OK") {
		t.Errorf("%v\n%s", err, out)
	}
}
