package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// list returns the module's packages as the go command sees them with the
// given build tags.
func list(t *testing.T, tags string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags", tags, "-json=ImportPath,Dir,GoFiles,Imports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// TestImportGraph is the rule that an arrow only ever points down.
func TestImportGraph(t *testing.T) {
	for _, tags := range []string{"", "loomdebug"} {
		graph := map[string][]string{}
		for _, p := range list(t, tags) {
			graph[p.ImportPath] = p.Imports
		}
		for _, want := range core {
			if _, ok := graph[module+"/"+want]; !ok {
				t.Errorf("package %s is gone: the check would not see it", want)
			}
		}
		for _, w := range check(graph) {
			t.Error(w)
		}
	}
}

// TestCoreIsSansIO looks for clocks, goroutines, channels and global
// randomness in the source of the core, and of what runs in virtual time.
func TestCoreIsSansIO(t *testing.T) {
	checked := 0
	for _, p := range list(t, "") {
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		_, isCore := find(core, pkg)
		if _, ok := find(clockless, pkg); !ok && !isCore {
			continue
		}
		for _, name := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			wrong, err := impurities(name, src)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range wrong {
				t.Errorf("%s/%s", p.ImportPath, w)
			}
			checked++
		}
	}
	if checked < len(core) {
		t.Errorf("only %d files were checked", checked)
	}
}

// impurities returns the places of a file that a sans-I/O package must not
// have.
func impurities(name string, src []byte) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imports := map[string]string{} // name in the file → path
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		local := path[strings.LastIndexByte(path, '/')+1:]
		if local == "v2" {
			local = "rand"
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = path
	}
	var wrong []string
	report := func(n ast.Node, what string) {
		wrong = append(wrong, fmt.Sprintf("%s: %s in a sans-I/O package", fset.Position(n.Pos()), what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "goroutine")
		case *ast.ChanType:
			report(n, "channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(coreForbidden[imports[x.Name]], n.Sel.Name) {
				report(n, x.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return wrong, nil
}

// The checkers themselves: a forbidden arrow must be found, an allowed one not.
func TestCheck(t *testing.T) {
	tests := []struct {
		from, to string
		want     string // part of the complaint; empty: none
	}{
		{"overlay", module + "/internal/mono", ""},
		{"overlay", "net/netip", ""},
		{"dataplane", module + "/dataplane/xsk", ""},
		{"dataplane", module + "/balance", ""},
		{"balance", module + "/congestion", ""},
		{"cmd/leafd", module + "/internal/daemon", ""},
		{"internal/daemon", module + "/control", ""},
		{"dataplane", "net", ""},
		{"internal/telemetry", module + "/control", ""},
		{"test/netns", module + "/internal/testenv", ""},
		{"control", module + "/internal/ethtool", ""},
		{"dataplane", module + "/internal/ethtool", "points up"},
		{"internal/mono", module + "/internal/drop", "one layer"},
		{"internal/mono", module + "/overlay", "points up"},
		{"overlay", module + "/balance", "points up"},
		{"congestion", module + "/balance", "points up"},
		{"dataplane/xsk", module + "/dataplane", "points up"},
		{"dataplane", module + "/control", "points up"},
		{"control", module + "/internal/daemon", "points up"},
		{"control", module + "/internal/telemetry", "one layer"},
		{"lab", module + "/cmd/loomlab", "points up"},
		{"control", module + "/internal/testenv", "for tests"},
		{"lab", module + "/elsewhere", "no layer"},
		{"elsewhere", module + "/internal/mono", "no layer"},
		{"overlay", "net", "sans-I/O"},
		{"congestion", "sync/atomic", ""},
		{"sim", module + "/balance", ""},
		{"sim/node", module + "/sim/network", ""},
		{"sim/network", module + "/sim/node", "points up"},
		{"sim/topo", module + "/dataplane", "what is real"},
		{"cmd/loomsim", module + "/sim", ""},
		{"reorder", "sync", "sans-I/O"},
		{"congestion", "sync", "sans-I/O"},
		{"internal/mono", "os", "sans-I/O"},
		{"balance", "math/rand", "sans-I/O"},
		{"overlay", "golang.org/x/sys/unix", "sans-I/O"},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			got := strings.Join(check(map[string][]string{module + "/" + tt.from: {tt.to}}), "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("complaint %q, want one with %q", got, tt.want)
			}
		})
	}
}

func TestImpurities(t *testing.T) {
	tests := []struct {
		name, src string
		want      int
	}{
		{"clean", `import "time"; var d = 3 * time.Second`, 0},
		{"clock", `import "time"; var t = time.Now()`, 1},
		{"renamed clock", `import clock "time"; func f() { clock.Sleep(1); _ = clock.Since }`, 2},
		{"goroutine", `func f() { go f() }`, 1},
		{"channel", `func f(c chan int) {}`, 1},
		{"global randomness", `import "math/rand/v2"; var n = rand.IntN(3)`, 1},
		{"injected randomness", `import "math/rand/v2"; func f(r *rand.Rand) int { return r.IntN(3) }; var g = rand.New`, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := impurities("x.go", []byte("package x; "+tt.src))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != tt.want {
				t.Errorf("%d complaints, want %d: %v", len(got), tt.want, got)
			}
		})
	}
}
