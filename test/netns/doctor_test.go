package netns

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/doctor"
)

// doctor examines nodes of the fabric with loomctl, and returns what it says and its exit code.
func (f *fab) doctor(nodes string) (r doctor.Report, code int) {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(daemons, "loomctl"), "doctor", "--lab", filepath.Base(f.dir), "--node", nodes, "--interval", "100ms", "-o", "json")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || len(out) == 0) {
		f.t.Fatalf("loomctl doctor: %v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		f.t.Fatalf("loomctl doctor: %v\n%s", err, out)
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(x doctor.Finding) bool { return x.Severity == doctor.Note })
	return r, cmd.ProcessState.ExitCode()
}

// finds waits until doctor finds one thing and nothing else, and returns it.
func (f *fab) finds(probe, node, nodes string) (found doctor.Finding) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, func() string {
		r, code := f.doctor(nodes)
		if len(r.Findings) != 1 || r.Findings[0].Probe != probe || r.Findings[0].Node != node || code != 2 {
			return fmt.Sprintf("exit code %d, findings %+v, %d behind; want %s on %s alone", code, r.Findings, r.Behind, probe, node)
		}
		found = r.Findings[0]
		return ""
	})
	return found
}

// healthy waits until doctor finds nothing.
func (f *fab) healthy(nodes string) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, func() string {
		if r, code := f.doctor(nodes); code != 0 || len(r.Findings) > 0 || len(r.Failed) > 0 || len(r.Blind) > 0 {
			return fmt.Sprintf("exit code %d: %+v", code, r)
		}
		return ""
	})
}

// sh runs a command line as somebody would who types it.
func (f *fab) sh(format string, args ...any) {
	f.t.Helper()
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// hup has a leafd read its changed configuration.
func (f *fab) hup(leaf string, change func(*config.Leaf)) {
	f.t.Helper()
	f.edit(leaf, change)
	if err := unix.Kill(f.daemons[leaf].pid, unix.SIGHUP); err != nil {
		f.t.Fatal(err)
	}
}

// restartWith starts a daemon again with another text in its file.
func (f *fab) restartWith(node, old, text string) {
	f.t.Helper()
	d := f.daemons[node]
	b, err := os.ReadFile(d.config)
	if err != nil || !strings.Contains(string(b), old) {
		f.t.Fatalf("%s has no %q: %v", d.config, old, err)
	}
	if err := os.WriteFile(d.config, []byte(strings.Replace(string(b), old, text, 1)), 0o644); err != nil {
		f.t.Fatal(err)
	}
	d.stop()
	d.start()
	d.ready()
}

// TestDoctor breaks a fabric in one way after the other. Each time doctor finds that, and
// nothing else, and what it says mends it: the command is typed as it stands.
func TestDoctor(t *testing.T) {
	_, err := exec.LookPath("sysctl")
	if _, cerr := exec.LookPath("chmod"); err != nil || cerr != nil {
		t.Fatal("what is typed here needs:", errors.Join(err, cerr))
	}
	f := up(t, "doctor.yaml")
	begun := time.Now()
	f.healthy("all")
	t.Logf("healthy %v after the start", time.Since(begun))
	in := func(node, format string, args ...any) func() {
		return func() {
			f.sh("ip netns exec loom-%s-%s %s", filepath.Base(f.dir), node, fmt.Sprintf(format, args...))
		}
	}
	vtep := func(leaf int) netip.Addr { return f.topo.Leaves[leaf].VTEP }
	var found doctor.Finding // the last
	type breaking struct {
		probe, node, about string
		breaks             func()
		mends              func() // nil: the finding's command does
	}
	withScheme := func(name string) func(*config.Leaf) { return func(c *config.Leaf) { c.Scheme = name } }
	for _, b := range []breaking{
		{"mtu", "L0", "up-s0-0", in("L0", "ip link set dev up-s0-0 mtu 1500"), nil},
		{"link_down", "L0", "up-s0-0", in("L0", "ip link set dev up-s0-0 down"), nil},
		{"rp_filter", "L0", "net.ipv4.conf.all.rp_filter", in("L0", "sysctl -qw net.ipv4.conf.all.rp_filter=1"), nil},
		{"forwarding", "S0", "net.ipv4.ip_forward", in("S0", "sysctl -qw net.ipv4.ip_forward=0"), nil},
		{"hash_policy", "S1", "net.ipv4.fib_multipath_hash_policy", in("S1", "sysctl -qw net.ipv4.fib_multipath_hash_policy=0"), nil},
		{"files", "L1", f.dir + "/L1.admin.sock", func() { f.sh("chmod 666 %s/L1.admin.sock", f.dir) }, nil},
		{"vxlan_device", "L0", "vx100", in("L0", "ip link add vx100 up type vxlan id 100 dstport 4789 local %v", vtep(0)), nil},
		{"config", "L0", f.dir + "/L0.yaml", func() { f.edit("L0", func(c *config.Leaf) { c.Log.Level = "warn" }) }, nil},
		{"scheme", "L1", "scheme", func() { f.hup("L1", withScheme("letflow")) }, func() { f.hup("L1", withScheme("conga")) }},
		{
			"unequal_ends", "L0", "up-s0-0",
			func() { f.hup("L0", func(c *config.Leaf) { c.Uplinks[0].LinkRate = 1e9 }) },
			func() { f.hup("L0", func(c *config.Leaf) { c.Uplinks[0].LinkRate = 0 }) },
		},
		{
			"neighbour", "L0", "up-s0-0",
			func() {
				in("S0", "ip link set dev dn-l0-0 arp off")()
				in("L0", "ip neigh flush dev up-s0-0")()
			},
			func() {
				in("S0", "ip link set dev dn-l0-0 arp on")()
				f.sh("%s", found.Mend)
			},
		},
		{
			"fewer_routes", "L0", vtep(1).String(), func() { f.routesWithout("L0", "up-s0-1") },
			in("L0", "ip route replace %v proto bgp nexthop via 10.254.0.1 nexthop via 10.254.0.3 nexthop via 10.254.0.5 nexthop via 10.254.0.7", vtep(1)),
		},
		{
			"spine_fewer_routes", "S0", vtep(1).String(), func() { f.routesWithout("S0", "dn-l1-1") },
			in("S0", "ip route replace %v proto bgp nexthop via %v nexthop via %v", vtep(1), f.link("L1-S0.0").LeafAddr, f.link("L1-S0.1").LeafAddr),
		},
		{
			"parameters", "L1", "congestion.tau",
			func() { f.restartWith("L1", "tau: 2ms", "tau: 3ms") },
			func() { f.restartWith("L1", "tau: 3ms", "tau: 2ms") },
		},
		{
			"membership", "L1", vtep(0).String(),
			func() {
				f.hup("L1", func(c *config.Leaf) {
					c.Peers, c.VNIs[0].Flood = []netip.Addr{}, []netip.Addr{}
				})
			},
			func() {
				f.hup("L1", func(c *config.Leaf) {
					c.Peers, c.VNIs[0].Flood = []netip.Addr{vtep(0)}, []netip.Addr{vtep(0)}
				})
			},
		},
		{probe: "spine_no_route", node: "S1", about: vtep(1).String()},
	} {
		ok := t.Run(b.probe, func(t *testing.T) {
			old := f.t
			defer func() { f.t = old }()
			f.t = t
			if b.breaks == nil { // what a test of liveness does
				restore := f.dropRoute("S1", 1)
				b.breaks, b.mends = func() {}, restore
			}
			b.breaks()
			found = f.finds(b.probe, b.node, "all")
			if found.About != b.about {
				t.Errorf("it is about %q, want %q: %+v", found.About, b.about, found)
			}
			if b.mends == nil {
				b.mends = func() { f.sh("%s", found.Mend) }
			}
			b.mends()
			f.healthy("all")
		})
		if !ok {
			t.FailNow() // what is broken now would be found again
		}
	}
	f.silentNode()
	f.polarised()
}

// polarised has a spine's kernel forward, which takes one of two links for all that two
// leaves send each other. The leaf at the other end sees it in what arrives.
func (f *fab) polarised() {
	set := func(policy int) {
		f.sh("ip netns exec loom-%s-S0 sysctl -qw net.ipv4.fib_multipath_hash_policy=%d", filepath.Base(f.dir), policy)
	}
	set(0)
	f.daemons["S0"].stop()
	found := f.finds("polarisation", "L1", "L1")
	if !strings.Contains(found.Text, "by 3 of 4 uplinks: nothing comes by up-s0-") {
		f.t.Errorf("polarisation: %+v", found)
	}
	set(1)
	f.healthy("L1")
	f.daemons["S0"].start()
	f.daemons["S0"].ready()
	f.healthy("all")
}

// silentNode has a daemon killed: doctor says who does not answer.
func (f *fab) silentNode() {
	t := f.t
	_ = f.daemons["S1"].signal(unix.SIGKILL) // it ends by that
	r, code := f.doctor("all")
	if code != 3 || len(r.Failed) != 1 || r.Failed[0].Node != "S1" || !strings.Contains(r.Failed[0].Error, "nobody listens") {
		t.Errorf("with S1 stopped: exit code %d, failed %+v", code, r.Failed)
	}
	f.daemons["S1"].start()
	f.daemons["S1"].ready()
	f.healthy("all")
	if err := exec.Command(filepath.Join(daemons, "loomctl"), "doctor", "--socket", filepath.Join(f.dir, "none.sock")).Run(); err == nil || err.(*exec.ExitError).ExitCode() != 1 {
		t.Errorf("without a daemon: %v, want exit code 1", err)
	}
}

// TestDoctorOfAPair bounds what a look at a healthy fabric takes, and has all that is known
// of it put into an archive.
func TestDoctorOfAPair(t *testing.T) {
	f := up(t, "pair.yaml")
	secrets := f.plantSecrets()
	f.healthy("all")
	begun := time.Now()
	out, err := exec.Command(filepath.Join(daemons, "loomctl"), "doctor", "--lab", filepath.Base(f.dir)).CombinedOutput()
	took := time.Since(begun)
	t.Logf("%v:\n%s", took, out)
	if err != nil || took > 30*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	f.support(secrets)
}

// plantSecrets puts secrets where an archive might take them from, and returns them.
func (f *fab) plantSecrets() []string {
	f.t.Helper()
	const key = "0123456789abcdef0123456789abcdef"
	keys := filepath.Join(f.dir, "keys")
	if err := os.WriteFile(keys, []byte(key+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	for _, leaf := range []string{"L0", "L1"} {
		f.reconfigure(leaf, func(c *config.Leaf) { c.ControlKeyFile = keys })
	}
	f.sh("echo '# password: planted-in-config' >> %s/L0.yaml", f.dir)
	f.sh("echo 'debug token=planted-in-log, and the key %s' >> %s/L0.log", key, f.dir)
	f.sh("ip -n loom-%s-L0 link set dev acc-h0 alias 'secret=planted-in-alias'", filepath.Base(f.dir))
	return []string{key, "planted-in-config", "planted-in-log", "planted-in-alias"}
}

// support writes an archive, and looks for what has to be in it, and what must not.
func (f *fab) support(secrets []string) {
	t := f.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "support.tar.gz")
	if out, err := exec.Command(filepath.Join(daemons, "loomctl"), "support", "--lab", filepath.Base(f.dir), "--interval", "50ms", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("loomctl support: %v\n%s", err, out)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: only its owner may read it", st.Mode(), err)
	}
	members := untar(t, file)
	for name, part := range map[string]string{
		"doctor.txt": "looked at 4 nodes", "doctor.json": `"probes"`, "missing.txt": "", "host/uname.txt": "Linux",
		"nodes/L0/status.json": `"leafd"`, "nodes/L0/fdb.json": "entries", "nodes/L0/parameters.json": "congestion.tau", "nodes/S1/ports.json": "dn-l0-0",
		"nodes/L0/config.yaml": "control_key_file: " + f.dir + "/keys", "nodes/L0/metrics.txt": "loom_drops_total", "nodes/L0/log.txt": "debug token=REMOVED",
		"nodes/L0/machine/ip.txt": "secret=REMOVED", "nodes/S0/machine/sysctl.txt": "net.ipv4.fib_multipath_hash_policy = 1", "nodes/S0/machine/process-status.txt": "CapEff",
	} {
		if text, ok := members[name]; !ok || !strings.Contains(text, part) {
			t.Errorf("the archive lacks %s with %q (it is there: %v)", name, part, ok)
		}
	}
	for name, text := range members {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s has the secret %q", name, s)
			}
		}
	}
}

// untar returns the texts of an archive by their names below its folder.
func untar(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	members := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		members[name] = string(text)
	}
}
