package frr

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const page = "../../docs/evpn.md"

// A block is one of the page's, between two fences.
type block struct {
	kind, text string
	line       int
}

// blocks reads those of the page.
func blocks(t *testing.T) (out []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for i, line := range strings.Split(string(text), "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !in:
			out = append(out, block{kind: kind, line: i + 1})
			in = true
		case fence:
			in = false
		case in:
			out[len(out)-1].text += line + "\n"
		}
	}
	return out
}

// TestPage has an operator's leaf be made by the commands and the configuration of
// docs/evpn.md, in place of a leaf of the lab.
func TestPage(t *testing.T) {
	t.Parallel()
	plane := "dataplane: kernel"
	if overlayKernel {
		plane = "overlay: kernel\nkernel_leaves: [L0]"
	}
	b := up(t, plane+`
control: frr
frr: {evpn: true, gateway: true}
leaves: 2
spines: 2
hosts: {per_leaf: 1}
vnis: [{vni: 100, subnet: 10.100.0.0/16}]
`)
	for _, d := range []string{"bgpd", "zebra"} {
		b.stopRouting("L0", d, unix.SIGTERM)
	}
	b.ip("L0", "link", "del", "vx-100")
	b.ip("L0", "link", "del", "br-100")
	b.ip("L0", "addr", "flush", "dev", "lo", "scope", "global")
	for name, swp := range map[string]string{"up-s0-0": "swp1", "up-s1-0": "swp2", b.host("h0").Port: "swp3"} {
		b.ip("L0", "link", "set", name, "down")
		b.ip("L0", "link", "set", name, "name", swp)
		if swp != "swp3" {
			b.ip("L0", "link", "set", swp, "up")
		}
	}
	var conf string
	for _, k := range blocks(t) {
		if k.kind == "frr" {
			conf = k.text
		}
	}
	file := filepath.Join(b.frr("L0"), "frr.conf")
	if err := os.WriteFile(file, []byte(conf), 0o640); err != nil {
		t.Fatal(err)
	}
	var said, wants []string
	yaml := filepath.Join(b.dir, "L0.yaml")
	for _, k := range blocks(t) {
		if !overlayKernel && slices.Contains([]string{"yaml", "check", "run", "loom"}, k.kind) {
			continue
		}
		k.text = strings.ReplaceAll(k.text, "/etc/loom/leafd.yaml", yaml)
		k.text = strings.ReplaceAll(k.text, "loomctl", "loomctl --socket "+filepath.Join(b.dir, "L0.admin.sock"))
		switch k.kind {
		case "yaml":
			if strings.Contains(k.text, "overlay: kernel") {
				text := k.text + fmt.Sprintf("admin: {listen: \"unix:%s/L0.admin.sock\"}\ntelemetry: {listen: \"unix:%[1]s/L0.sock\"}\n", b.dir)
				if err := os.WriteFile(yaml, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		case "check", "loom":
			said = append(said, b.sh(k))
			t.Logf("%s%s", k.text, said[len(said)-1])
		case "run":
			b.daemon(k.text)
			b.reaches("h0", "h1")
			b.mirroredPage()
		case "sh":
			said = append(said, b.sh(k))
		case "frr":
			b.startRouting("L0", "zebra", "bgpd")
			b.swpHops()
			b.reaches("h0", "h1")
			eventually(t, late, func() string {
				if list := b.bridge("L0", "fdb", "show", "dev", "vx100"); !strings.Contains(list, b.mac("h1")+" dst") {
					return "L0 knows " + list
				}
				return ""
			})
		}
	}
	if overlayKernel {
		wants = append(wants, "VTEP 10.255.0.1", "port swp3: untagged in VNI 100", "up     1600", "10.255.0.2  fabric", b.mac("h0")+"  swp3", b.mac("h1")+"  10.255.0.2")
	}
	for _, want := range append(wants, []string{"dev swp1", "dev swp2", "00:00:00:00:00:00 dst 10.255.0.2", b.mac("h1") + " dst 10.255.0.2 self extern_learn"}...) {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("the page's commands print %q, without %q", said, want)
		}
	}
}

// sh runs a block of commands on L0, as root does there.
func (b *bed) sh(k block) string {
	b.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", b.ns["L0"].Name, "sh", "-e")
	cmd.Stdin = strings.NewReader(k.text)
	cmd.Env = append(os.Environ(), "PATH="+daemons+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("%s:%d: %v\n%s", page, k.line, err, &out)
	}
	return out.String()
}

// swpHops waits until L0 sends to L1 by both uplinks and floods to it.
func (b *bed) swpHops() {
	b.t.Helper()
	eventually(b.t, 3*late, func() string {
		hops := b.routeGet("L0", b.vtep(1))
		if list := b.bridge("L0", "fdb", "show", "dev", "vx100"); len(hops) != 2 || !strings.Contains(list, "00:00:00:00:00:00 dst "+b.vtep(1).String()) {
			return fmt.Sprintf("L0 sends by %q and floods by %s", hops, list)
		}
		return ""
	})
}

// daemon runs the page's command that does not end, on L0, until the test ends.
func (b *bed) daemon(command string) {
	b.t.Helper()
	words := strings.Fields(command)
	cmd := exec.Command(filepath.Join(daemons, words[0]), words[1:]...)
	log, err := os.Create(filepath.Join(b.dir, "L0.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	b.ns["L0"].Do(b.t, func() { err = cmd.Start() })
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("leafd of the page: %v", err)
		}
	})
	eventually(b.t, late, func() string {
		if _, err := b.get("L0", ".sock", "/readyz"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// mirroredPage waits until the page's leafd knows both hosts, and that its peer speaks
// the fabric's header.
func (b *bed) mirroredPage() {
	b.t.Helper()
	eventually(b.t, late, func() string {
		if got := b.fdbOfLeafd("L0"); len(got) != 2 {
			return fmt.Sprintf("leafd knows %q", got)
		}
		if body, err := b.get("L0", ".admin.sock", "/v1/peers"); err != nil || !strings.Contains(string(body), `"capable":true`) {
			return fmt.Sprintf("leafd's peers: %s, %v", body, err)
		}
		return ""
	})
}
