package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage: every row of the attack tables names a test, and every test that
// the page names is there.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(src, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := 0
	for i, line := range strings.Split(string(page), "\n") {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				t.Errorf("line %d: there is no test %s", i+1, m[1])
			}
		}
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| what") && !strings.HasPrefix(line, "| ---") {
			if rows++; !named.MatchString(line) {
				t.Errorf("line %d: an attack without a test: %s", i+1, line)
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows", rows)
	}
}
