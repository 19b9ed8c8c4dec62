package dataplane

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/wire-format.md says the version of the hand-over's plan, as docs/release.md asks who
// changes it to say what that means.
func TestPlanVersionIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("the plan of the hand-over has version %d ", planVersion); !strings.Contains(string(page), want) {
		t.Errorf("docs/wire-format.md does not say that %s", want)
	}
}
