package testenv

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestToolsAreAll: each program that a test names to start it is in the list, and each
// of the list is started somewhere.
func TestToolsAreAll(t *testing.T) {
	const root = "../.."
	// They bring their own lists, and are no part of `make test`.
	others := []string{"test/rdma", "test/vm", "test/machine", "test/peers"}
	var started []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err != nil || d.IsDir() {
			if err == nil && (slices.Contains(others, rel) || strings.HasPrefix(d.Name(), ".") && path != root) {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".go") && (strings.HasPrefix(rel, "internal/testenv/") || strings.HasPrefix(rel, "internal/tools/testgate/")) {
			started = append(started, programs(t, path)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range started {
		if p != "sudo" && !strings.Contains(p, "/") && !slices.ContainsFunc(Tools, func(t Tool) bool { return t.Program == p }) {
			t.Errorf("a test starts %q, which Tools does not have", p)
		}
	}
	for _, tool := range Tools {
		if tool.Program != "gcc" && !slices.Contains(started, tool.Program) {
			t.Errorf("no test starts %q", tool.Program)
		}
	}
}

// programs lists the programs that a file starts: by package exec, in a host of a lab
// (inHost), or as the first word of a command line (run).
func programs(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{"Command": 0, "CommandContext": 1, "LookPath": 0, "inHost": 3, "run": -1}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			if name = f.Name; name != "run" && name != "inHost" {
				return true // a package's own Command
			}
		case *ast.SelectorExpr:
			name = f.Sel.Name
			if of, ok := f.X.(*ast.Ident); name != "run" && (!ok || of.Name != "exec") {
				return true
			}
		}
		i, ok := at[name]
		if i < 0 {
			i = len(call.Args) - 1
		}
		if !ok || i < 0 || i >= len(call.Args) {
			return true
		}
		text, ok := call.Args[i].(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			return true
		}
		line, err := strconv.Unquote(text.Value)
		words := strings.Fields(line)
		if err == nil && (name != "run" && len(words) == 1 || name == "run" && len(words) > 2 && !strings.Contains(line, "\n")) {
			names = append(names, words[0])
		}
		return true
	})
	return names
}

// Everything that is missing is named at once, with what to do.
func TestNeedTools(t *testing.T) {
	without := func(missing ...string) func(string) (string, error) {
		return func(p string) (string, error) {
			if slices.Contains(missing, p) {
				return "", exec.ErrNotFound
			}
			return "/bin/" + p, nil
		}
	}
	if err := NeedTools(Tools, without("gcc"), "clang"); err != nil {
		t.Errorf("with another compiler: %v", err)
	}
	err := NeedTools(Tools, without("ip", "clang", "cat", "sleep"), "clang")
	if err == nil || !strings.HasSuffix(err.Error(), ": clang, ip, cat, sleep; on Debian: apt-get install gcc libc6-dev iproute2 coreutils") {
		t.Errorf("error %v", err)
	}
}
