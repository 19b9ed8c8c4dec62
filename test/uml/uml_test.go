//go:build uml

package uml

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/test/machine"
)

// release is the release of Debian whose User Mode Linux runs.
const release = "bookworm"

// modules are what the tests need of the kernel.
var modules = []string{"ipv6", "bridge", "8021q", "vrf", "vxlan", "veth", "bonding", "dummy"}

// packages have tests with the tag uml. Each of these tests has a name that begins with
// TestUML.
var packages = []string{"control", "control/bridge", "internal/daemon"}

var needs = []machine.Need{
	{Name: "go", Package: "golang"}, {Name: "apt-get", Package: "apt"}, {Name: "dpkg-deb", Package: "dpkg"}, {Name: "tar", Package: "tar"}, {Name: "xz", Package: "xz-utils"},
	{Name: "/usr/share/keyrings/debian-archive-keyring.gpg", Package: "debian-archive-keyring"},
	{Name: "ip", Package: "iproute2"}, {Name: "bridge", Package: "iproute2"},
}

// limit is how long the kernel may run.
const limit = 5 * time.Minute

// oldCPU has programs use no registers but those that User Mode Linux keeps for them.
var oldCPU = []string{"GODEBUG=cpu.all=off", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX_Fast_Unaligned_Load,-AVX2_Usable,-AVX512F,-AVX512VL,-AVX512BW,-AVX512VL_Usable,-AVX512BW_Usable,-XSAVE,-XSAVEC,-ERMS,-FSRM"}

func TestMain(m *testing.M) {
	if os.Getpid() == 1 && os.Getenv(folderVar) != "" {
		guest()
	}
	os.Exit(m.Run())
}

var record = flag.Bool("record", false, "record control/bridge/testdata/vlan-messages.txt anew")

// TestUML runs the tests with the tag uml on User Mode Linux, and shows what each of them
// has said.
func TestUML(t *testing.T) {
	if err := machine.Missing(needs...); err != nil {
		t.Fatal(err)
	}
	suite, err := machine.OpenSuite(release)
	if err != nil {
		t.Fatal(err)
	}
	k, err := suite.UserModeLinux(modules...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	prepare(t, dir, k)
	start := time.Now()
	out := boot(t, dir, k)
	t.Logf("User Mode Linux %s ran for %.1f s", k.Version, time.Since(start).Seconds())
	for _, p := range packages {
		t.Run(p, func(t *testing.T) { judge(t, dir, p, out) })
	}
	if *record && !t.Failed() {
		keep(t, filepath.Join(dir, recordFolder))
	}
}

// keep copies the messages that were recorded to where other tests read them.
func keep(t *testing.T, from string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the tests have left %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(filepath.Join("../../control/bridge/testdata", filepath.Base(files[0])), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// prepare puts into dir what the guest reads: its modules' names and the tests.
func prepare(t *testing.T, dir string, k *machine.Kernel) {
	t.Helper()
	var list strings.Builder
	for _, m := range k.Order {
		fmt.Fprintln(&list, filepath.Join(k.Modules, m))
	}
	if err := os.WriteFile(filepath.Join(dir, modulesFile), []byte(list.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if *record {
		if err := os.Mkdir(filepath.Join(dir, recordFolder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packages {
		c := exec.Command("go", "test", "-tags", "uml", "-trimpath", "-c", "-o", filepath.Join(dir, binary(p)), "./"+p)
		c.Dir = "../.."
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
}

// binary is the name of a package's test.
func binary(pkg string) string { return strings.ReplaceAll(pkg, "/", "-") + ".test" }

// boot runs the kernel until it halts. Its file system is this machine's, read-only; its
// first process is this program; it has no network.
func boot(t *testing.T, dir string, k *machine.Kernel) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{
		"mem=768M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init=" + self, "con=null", "con0=null,fd:1", "quiet", "panic=1",
		"uml_dir=" + dir, "umid=loom", folderVar + "=" + dir,
	}, oldCPU...)
	c := exec.CommandContext(ctx, k.Vmlinux, args...)
	c.Env = append(os.Environ(), preload(t, dir)...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("User Mode Linux did not halt within %v:\n%s", limit, out)
	}
	if err != nil {
		t.Logf("User Mode Linux: %v", err) // what it has said decides
	}
	return string(bytes.ReplaceAll(out, []byte("\r"), nil))
}

// preload makes the shim on a machine that needs it.
func preload(t *testing.T, dir string) []string {
	t.Helper()
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(cpu, []byte(" amx_tile")) {
		return nil
	}
	shim := filepath.Join(dir, "shim.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", shim, "testdata/shim.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile testdata/shim.c, which a processor with AMX needs (packages gcc and libc6-dev): %v\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + shim}
}

var verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// judge shows what a package's tests have said. Each of them has to have passed.
func judge(t *testing.T, dir, pkg, out string) {
	_, said, begun := strings.Cut(out, begin(pkg)+"\n")
	said, how, _ := strings.Cut(said, end(pkg))
	if !begun {
		t.Fatalf("its tests were not begun:\n%s", out)
	}
	t.Log("\n" + said)
	if how, _, _ = strings.Cut(how, "\n"); how != wellEnded {
		t.Errorf("its tests did not end well: %s", how)
	}
	list, err := exec.Command(filepath.Join(dir, binary(pkg)), "-test.list", pattern).Output()
	want := strings.Fields(string(list))
	if err != nil || len(want) == 0 {
		t.Fatalf("the tests of the package are %q, %v", want, err)
	}
	for _, v := range verdict.FindAllStringSubmatch(said, -1) {
		if v[1] != "PASS" {
			t.Errorf("%s: %s", v[2], v[1])
		}
		want = slices.DeleteFunc(want, func(name string) bool { return name == v[2] })
	}
	if len(want) > 0 {
		t.Errorf("no word of %q", want)
	}
}
