//go:build packages

package packages

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var dist = flag.String("dist", root+"dist", "what make packages has made")

// made returns the one file of dist that a pattern is for.
func made(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(*dist, pattern))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s in %s: %v, %v; run make packages", pattern, *dist, all, err)
	}
	return all[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestDebContents: the deb has what its description says, with the modes that it says.
func TestDebContents(t *testing.T) {
	have := make(map[string]string) // modes by path
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", made(t, "*.deb"))) {
		f := strings.Fields(line)
		if f[1] != "root/root" {
			t.Errorf("not root's: %s", line)
		}
		have[strings.TrimSuffix(strings.TrimPrefix(f[5], "."), "/")] = f[0]
	}
	d := read(t)
	for dst, c := range d.destinations("deb") {
		dst = strings.ReplaceAll(dst, "${MULTIARCH}", strings.TrimSpace(output(t, "dpkg-architecture", "-qDEB_HOST_MULTIARCH")))
		want := map[uint32]string{0o755: "-rwxr-xr-x", 0o644: "-rw-r--r--"}[c.FileInfo.Mode]
		if c.Type != "" {
			want = "drwxr-xr-x"
		}
		if have[dst] != want && c.Dst != "/usr/share" && c.Dst != "/usr/bin" {
			t.Errorf("%s is %q, want %q", dst, have[dst], want)
		}
	}
	programs, err := filepath.Glob(root + "cmd/*/main.go")
	if err != nil || len(programs) < 5 {
		t.Fatalf("programs %v: %v", programs, err)
	}
	for _, p := range programs {
		p = filepath.Base(filepath.Dir(p))
		if name := "/usr/bin/" + p; have[name] != "-rwxr-xr-x" {
			t.Errorf("%s is %q", name, have[name])
		}
		man := "/usr/share/man/man1/" + p + ".1.gz"
		if p == "leafd" || p == "spined" {
			man = "/usr/share/man/man8/" + p + ".8.gz"
		}
		for _, file := range []string{man, "/usr/share/bash-completion/completions/" + p, "/usr/share/zsh/vendor-completions/_" + p, "/usr/share/fish/vendor_completions.d/" + p + ".fish"} {
			if have[file] == "" {
				t.Errorf("there is no %s", file)
			}
		}
	}
}

// TestRPM: the rpm reads as one, and has the same programs and units.
func TestRPM(t *testing.T) {
	list := strings.Fields(output(t, "rpm", "-qpl", made(t, "*.rpm")))
	for _, want := range []string{"/usr/bin/leafd", "/usr/bin/loomctl", "/usr/lib/systemd/system/leafd.service", "/usr/lib64/wireshark/plugins/loom.lua", "/usr/share/zsh/site-functions/_loomctl"} {
		if !slices.Contains(list, want) {
			t.Errorf("the rpm has no %s", want)
		}
	}
	output(t, "rpm", "-K", "--nosignature", made(t, "*.rpm"))
	if s := output(t, "rpm", "-qp", "--scripts", made(t, "*.rpm")); !strings.Contains(s, "systemd-sysusers") {
		t.Errorf("scripts %s", s)
	}
}

// TestImage: the layout is a valid image of OCI, whose program is there.
func TestImage(t *testing.T) {
	index, err := layout.ImageIndexFromPath(filepath.Join(*dist, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%+v, %v", m, err)
	}
	image, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	c, err := image.ConfigFile()
	if err != nil || c.Config.Cmd[0] != "/usr/bin/leafd" {
		t.Errorf("it starts %+v, %v", c, err)
	}
}

// TestInstall: in a clean Debian dpkg installs the package and its user, the programs run,
// systemd finds no fault with the units, and removing leaves the configuration.
func TestInstall(t *testing.T) {
	debian := t.TempDir()
	if err := os.Chmod(debian, 0o755); err != nil {
		t.Fatal(err)
	}
	deb := made(t, "*.deb")
	output(t, "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", "bookworm", debian)
	output(t, "cp", deb, filepath.Join(debian, "loom.deb"))
	in := func(script string) string {
		t.Helper()
		return output(t, "unshare", "--mount", "--pid", "--fork", "--net", "--root="+debian, "--mount-proc=/proc", "sh", "-ec", script)
	}
	in("dpkg -i /loom.deb")
	if got := in("getent passwd loom; getent group loom"); strings.Count(got, "loom:") != 2 {
		t.Errorf("users and groups: %s", got)
	}
	if got := in("leafd version"); !strings.HasPrefix(got, "leafd ") {
		t.Errorf("leafd is %s", got)
	}
	for _, p := range []string{"leafd", "spined"} {
		in(p + " check --offline -c /usr/share/doc/loom/examples/" + p + ".yaml")
	}
	// The second type of the unit is new in systemd 253, and one that runs no systemd says so.
	for line := range strings.Lines(in("systemd-analyze verify leafd.service spined.service 2>&1")) {
		if !strings.Contains(line, "notify-reload") && strings.TrimSpace(line) != "" {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	in("echo name: x > /etc/loom/leafd.yaml; dpkg -i /loom.deb; dpkg -r loom; test ! -e /usr/bin/leafd; test -e /etc/loom/leafd.yaml")
}

// TestCompletions: bash reads them, and completes a command.
func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	output(t, "dpkg-deb", "-x", made(t, "*.deb"), dir)
	got := output(t, "bash", "-c", "PATH="+dir+"/usr/bin:$PATH; loomctl __complete pat")
	if !strings.HasPrefix(got, "paths\t") {
		t.Errorf("loomctl pat completes to %q", got)
	}
	output(t, "bash", "-n", filepath.Join(dir, "usr/share/bash-completion/completions/loomctl"))
	var schema map[string]any
	b, err := os.ReadFile(filepath.Join(dir, "usr/share/loom/schema/leafd.json"))
	if err == nil {
		err = json.Unmarshal(b, &schema)
	}
	if err != nil {
		t.Error(err)
	}
}
