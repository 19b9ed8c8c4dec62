// Testgate runs the project's tests, if all programs are there that they need: those that need root with root if that is
// to be had, the race detector where there are goroutines. It fails on a failed
// test and, where tests ran as root, on a skipped one: root on a supported
// kernel has all that they need. The last line counts what happened.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/loomfabric/loom/internal/testenv"
)

const testenvPath = "github.com/loomfabric/loom/internal/testenv"

func main() {
	race := flag.String("race", "", "packages to run with the race detector too, separated by spaces")
	skip := flag.String("race-skip", "", "tests not to run with the race detector too: a regular expression of names (go test -skip)")
	timeout := flag.Duration("timeout", 0, "limit of each package's tests (go test -timeout); 0: go's own")
	flag.Parse()
	g := &gate{
		timeout: timeout.String(), raceSkip: *skip, out: os.Stdout, isRoot: os.Geteuid() == 0,
		output: map[string][]string{}, skips: map[string]bool{},
	}
	if err := g.run(strings.Fields(*race)); err != nil {
		fmt.Fprintln(os.Stderr, "testgate:", err)
		os.Exit(1)
	}
}

type gate struct {
	timeout, raceSkip       string
	out                     io.Writer
	isRoot, sudo            bool       // root's tests run, if not as the caller then by sudo
	daemons                 string     // folder of the programs that they run
	mu                      sync.Mutex // guards the rest
	passed, failed, skipped int
	broken                  []string            // packages that failed, build errors included
	output                  map[string][]string // of tests that have not ended, by package and name
	skips                   map[string]bool     // what was skipped as root
}

func (g *gate) run(race []string) error {
	if err := needTools(); err != nil {
		return err
	}
	if g.sudo = !g.isRoot && sudoWorks(); g.isRoot || g.sudo {
		// Once, and not in every package that needs them.
		daemons, remove, err := testenv.Daemons(false)
		if err != nil {
			return err
		}
		g.daemons = daemons
		return errors.Join(g.runParts(race), remove())
	}
	return g.runParts(race)
}

// part is a set of packages that are tested together.
type part struct {
	race     bool
	plain    []string
	kernel   []string // need root
	programs []string // need root, and start whole programs
}

// runParts runs all packages' tests, and those of race with the race detector, in three
// lanes side by side:
//   - tests of whole programs in network namespaces, which mostly wait for each other, one
//     package after the other, as they measure time;
//   - the other tests of the kernel's part, likewise;
//   - tests that need no root, with the processor time that the others leave.
func (g *gate) runParts(race []string) error {
	var parts []part
	for _, patterns := range [][]string{{"./..."}, race} {
		if len(patterns) == 0 {
			continue
		}
		p, err := listPackages(patterns)
		if err != nil {
			return err
		}
		p.race = len(parts) > 0
		parts = append(parts, p)
	}
	fmt.Fprintln(g.out, "== tests, and beside them those of the kernel's part: XDP, AF_XDP, network namespaces")
	if !g.isRoot && !g.sudo {
		fmt.Fprintln(g.out, "neither root nor sudo: tests that need network namespaces, XDP or AF_XDP are skipped; run `sudo make test`")
	}
	lanes := []func(part) error{
		func(p part) error { return g.rootTests(p.programs, p.race) },
		func(p part) error { return g.rootTests(p.kernel, p.race) },
		func(p part) error { return g.goTest(p.plain, p.race, g.isRoot, []string{"nice", "-n", "19"}) },
	}
	errs := make([]error, len(lanes)+1)
	var all sync.WaitGroup
	all.Go(func() { errs[len(lanes)] = compileForRace(race) })
	for i, lane := range lanes {
		all.Go(func() {
			for _, p := range parts {
				errs[i] = errors.Join(errs[i], lane(p))
			}
		})
	}
	all.Wait() // before what they have counted is read
	return errors.Join(append(errs, g.finish())...)
}

// compileForRace compiles what tests with the race detector need, beside those without it.
// Where packages are tested one by one, go test compiles on one processor only: minutes on a
// new machine.
func compileForRace(race []string) error {
	if len(race) == 0 {
		return nil
	}
	cmd := exec.Command("nice", append([]string{"-n", "19", "go", "list", "-export", "-test", "-deps", "-race", "-f", "{{.Export}}"}, race...)...)
	cmd.Env = raceEnv(os.Environ())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile for the race detector: %w\n%s", err, stderr.String())
	}
	return nil
}

// raceEnv is the environment of commands that use the race detector, whose runtime needs cgo.
func raceEnv(env []string) []string { return append(env, "CGO_ENABLED=1") }

// needTools reports programs that tests would miss after minutes.
func needTools() error {
	compiler := ""
	if out, err := exec.Command("go", "env", "CC").Output(); err == nil {
		compiler, _, _ = strings.Cut(strings.TrimSpace(string(out)), " ") // flags may follow
	}
	return testenv.NeedTools(testenv.Tools, exec.LookPath, cmp.Or(compiler, "gcc"))
}

// listPackages returns the packages that have tests. It tells from the helper that they
// import which ones need root, and from the folder which ones start programs; a list would
// be forgotten.
func listPackages(patterns []string) (p part, err error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}`
	cmd := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return part{}, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		switch {
		case !slices.Contains(paths, testenvPath):
			p.plain = append(p.plain, paths[0])
		case strings.Contains(paths[0], "/test/"):
			p.programs = append(p.programs, paths[0])
		default:
			p.kernel = append(p.kernel, paths[0])
		}
	}
	return p, nil
}

// goTest runs packages' tests, by a command that starts others if prefix is one; asRoot
// says whether they run as root.
func (g *gate) goTest(pkgs []string, race, asRoot bool, prefix []string, flags ...string) error {
	if len(pkgs) == 0 {
		return nil
	}
	args := append([]string{"go", "test", "-json", "-timeout", g.timeout, "-race=" + strconv.FormatBool(race)}, flags...)
	if race && g.raceSkip != "" {
		args = append(args, "-skip", g.raceSkip)
	}
	args = append(append(prefix, args...), pkgs...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = os.Environ()
	if g.isRoot {
		cmd.Env = append(cmd.Env, testenv.DaemonsVar+"="+g.daemons)
	}
	if race {
		cmd.Env = raceEnv(cmd.Env)
	}
	return g.read(cmd, asRoot)
}

// rootTests runs packages' tests as root, one package at a time. Without root they are
// built as the caller and run by sudo, so that the build cache stays the caller's.
func (g *gate) rootTests(pkgs []string, race bool) error {
	flags := []string{"-p=1"}
	switch {
	case g.sudo:
		flags = append(flags, "-exec", fmt.Sprintf("sudo -n env 'PATH=%s' '%s=%s'", os.Getenv("PATH"), testenv.DaemonsVar, g.daemons))
	case !g.isRoot:
		return g.goTest(pkgs, race, false, nil)
	}
	return g.goTest(pkgs, race, true, nil, flags...)
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
	Action, Package, Test, Output string
	Elapsed                       float64
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
	failed := false
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			_ = cmd.Process.Kill() // its output makes no sense; Wait tells nothing new
			_ = cmd.Wait()
			return fmt.Errorf("%s: reading its events: %w", strings.Join(cmd.Args[:3], " "), err)
		}
		failed = failed || e.Action == "fail"
		g.handle(e, asRoot)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		// A failure is in the events, or the command says on stderr why it
		// could not even start.
		if !failed {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return nil
	}
	return err
}

// handle counts an event and prints what it has to say.
func (g *gate) handle(e event, asRoot bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
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
