// Testgate runs the project's tests: those that need root with root if that is
// to be had, the race detector where there are goroutines. It fails on a failed
// test and, where tests ran as root, on a skipped one: root on a supported
// kernel has all that they need. The last line counts what happened.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const testenv = "github.com/loomfabric/loom/internal/testenv"

func main() {
	race := flag.String("race", "", "packages to run with the race detector too, separated by spaces")
	timeout := flag.Duration("timeout", 0, "limit of each package's tests (go test -timeout); 0: go's own")
	flag.Parse()
	g := &gate{
		timeout: timeout.String(), out: os.Stdout, isRoot: os.Geteuid() == 0,
		output: map[string][]string{}, skips: map[string]bool{},
	}
	if err := g.run(strings.Fields(*race)); err != nil {
		fmt.Fprintln(os.Stderr, "testgate:", err)
		os.Exit(1)
	}
}

type pkg struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

// needsRoot tells from the helper that a package's tests import; a list would
// be forgotten.
func (p *pkg) needsRoot() bool {
	return slices.Contains(p.TestImports, testenv) || slices.Contains(p.XTestImports, testenv)
}

func (p *pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

type gate struct {
	timeout                 string
	out                     io.Writer
	isRoot                  bool
	passed, failed, skipped int
	broken                  []string            // packages that failed, build errors included
	output                  map[string][]string // of tests that have not ended, by package and name
	skips                   map[string]bool     // what was skipped as root
}

func (g *gate) run(race []string) error {
	all, err := listPackages("./...")
	if err != nil {
		return err
	}
	var plain, privileged []pkg
	for _, p := range all {
		if p.needsRoot() {
			privileged = append(privileged, p)
		} else if p.hasTests() {
			plain = append(plain, p)
		}
	}
	g.section("tests")
	if err := g.goTest(plain); err != nil {
		return err
	}
	g.section("tests of the kernel's part: XDP, AF_XDP, network namespaces")
	if err := g.rootTests(privileged); err != nil {
		return err
	}
	if len(race) > 0 {
		g.section("race detector")
		if err := g.raceTests(race); err != nil {
			return err
		}
	}
	return g.finish()
}

func (g *gate) raceTests(patterns []string) error {
	pkgs, err := listPackages(patterns...)
	if err != nil {
		return err
	}
	var plain, privileged []pkg
	for _, p := range pkgs {
		if p.needsRoot() {
			privileged = append(privileged, p)
		} else if p.hasTests() {
			plain = append(plain, p)
		}
	}
	if err := g.goTest(plain, "-race"); err != nil {
		return err
	}
	return g.rootTests(privileged, "-race")
}

func (g *gate) section(name string) { fmt.Fprintf(g.out, "== %s\n", name) }

// goTest runs packages' tests with the caller's rights.
func (g *gate) goTest(pkgs []pkg, flags ...string) error {
	if len(pkgs) == 0 {
		return nil
	}
	args := append([]string{"test", "-json", "-timeout", g.timeout}, flags...)
	for _, p := range pkgs {
		args = append(args, p.ImportPath)
	}
	return g.read(exec.Command("go", args...), g.isRoot)
}

// rootTests runs packages' tests as root, one package after the other because
// they measure time. Without root they are built as the caller and run by
// sudo, so that the build cache stays the caller's.
func (g *gate) rootTests(pkgs []pkg, flags ...string) error {
	switch {
	case len(pkgs) == 0:
		return nil
	case g.isRoot:
		return g.goTest(pkgs, append(flags, "-p=1")...)
	case !sudoWorks():
		fmt.Fprintln(g.out, "neither root nor sudo: tests that need network namespaces, XDP or AF_XDP are skipped; run `sudo make test`")
		return g.goTest(pkgs, flags...)
	}
	dir, err := os.MkdirTemp("", "loom-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	daemons, err := buildDaemons(dir, flags)
	if err != nil {
		return err
	}
	for _, p := range pkgs {
		bin := filepath.Join(dir, "test")
		build := exec.Command("go", append(append([]string{"test", "-c", "-o", bin}, flags...), p.ImportPath)...)
		build.Stdout, build.Stderr = g.out, os.Stderr
		if err := build.Run(); err != nil {
			g.broken = append(g.broken, p.ImportPath)
			continue
		}
		// test2json turns what the binary prints into what `go test -json`
		// prints, and needs no rights itself.
		cmd := exec.Command("go", "tool", "test2json", "-t", "-p", p.ImportPath,
			"sudo", "-n", "env", "PATH="+os.Getenv("PATH"), "LOOM_DAEMONS="+daemons, bin, "-test.v=test2json", "-test.paniconexit0", "-test.timeout", g.timeout)
		cmd.Dir = p.Dir
		if err := g.read(cmd, true); err != nil {
			return err
		}
	}
	return nil
}

// buildDaemons builds the daemons under test as the caller, for tests that run
// as root; testenv.Daemons finds them.
func buildDaemons(dir string, flags []string) (string, error) {
	dir = filepath.Join(dir, "daemons")
	args := append(append([]string{"build"}, flags...), "-o", dir+"/", "./cmd/leafd", "./cmd/spined")
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the daemons: %w", err)
	}
	return dir, nil
}

// sudoWorks asks for the password, if there is somebody to ask.
func sudoWorks() bool {
	if exec.Command("sudo", "-n", "true").Run() == nil {
		return true
	}
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	cmd := exec.Command("sudo", "-v")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run() == nil
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// read runs a command that prints events. What it prints of tests that pass
// is not shown.
func (g *gate) read(cmd *exec.Cmd, asRoot bool) error {
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	dec := json.NewDecoder(pipe)
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			_ = cmd.Process.Kill() // its output makes no sense; Wait tells nothing new
			_ = cmd.Wait()
			return fmt.Errorf("%s: reading its events: %w", strings.Join(cmd.Args[:3], " "), err)
		}
		g.handle(e, asRoot)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		// A failure is in the events, or the command says on stderr why it
		// could not even start.
		if len(g.broken) == 0 {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return nil
	}
	return err
}

func (g *gate) handle(e event, asRoot bool) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		g.output[key] = append(g.output[key], e.Output)
		return
	case "build-output":
		fmt.Fprint(g.out, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	lines := g.output[key]
	delete(g.output, key)
	if e.Test == "" {
		g.endPackage(e, lines)
		return
	}
	switch e.Action {
	case "pass":
		g.passed++
	case "fail":
		g.failed++
		fmt.Fprint(g.out, strings.Join(lines, ""))
	case "skip":
		g.skipped++
		fmt.Fprint(g.out, strings.Join(lines, ""))
		if asRoot {
			g.skips[key] = true
		}
	}
}

func (g *gate) endPackage(e event, lines []string) {
	if e.Action != "fail" {
		fmt.Fprintf(g.out, "ok    %6.1fs  %s\n", e.Elapsed, e.Package)
		return
	}
	// A panic or a time-out belongs to a test that never ended.
	for key, open := range g.output {
		if strings.HasPrefix(key, e.Package+" ") {
			fmt.Fprint(g.out, strings.Join(open, ""))
			delete(g.output, key)
		}
	}
	fmt.Fprint(g.out, strings.Join(lines, ""))
	fmt.Fprintf(g.out, "FAIL  %6.1fs  %s\n", e.Elapsed, e.Package)
	g.broken = append(g.broken, e.Package)
}

// finish prints the closing line and says whether all is well.
func (g *gate) finish() error {
	defer fmt.Fprintf(g.out, "%d passed, %d failed, %d skipped\n", g.passed, g.failed, g.skipped)
	switch {
	case len(g.broken) > 0:
		slices.Sort(g.broken)
		return fmt.Errorf("these packages failed: %s", strings.Join(slices.Compact(g.broken), ", "))
	case len(g.skips) > 0:
		return fmt.Errorf("%d tests were skipped although they ran as root", len(g.skips))
	case g.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}

func listPackages(patterns ...string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}
