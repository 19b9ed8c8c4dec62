package overlay

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table of docs/wire-format.md says the numbers that are sent.
func TestCompatibilityTable(t *testing.T) {
	page, err := os.ReadFile("../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, HelloLen)
	(&Hello{}).Encode(body)
	for _, row := range []string{
		fmt.Sprintf("| HELLO's body | %d | ", body[0]),
		fmt.Sprintf("| opcodes | 0 to %d | ", NumOpcodes-1),
	} {
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("docs/wire-format.md has no row that begins with %q", row)
		}
	}
}
