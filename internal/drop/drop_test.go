package drop

import (
	"fmt"
	"regexp"
	"testing"
)

func TestEveryReasonHasANameOfItsOwn(t *testing.T) {
	label := regexp.MustCompile(`^[a-z][a-z_]*$`)
	seen := make(map[string]Reason)
	for r := range NumReasons {
		n := r.String()
		if !label.MatchString(n) {
			t.Errorf("reason %d is called %q, which is no label value", r, n)
		}
		if other, ok := seen[n]; ok {
			t.Errorf("reasons %d and %d are both called %q", other, r, n)
		}
		seen[n] = r
	}
	if got := NumReasons.String(); got != fmt.Sprintf("reason_%d", NumReasons) {
		t.Errorf("a reason that does not exist is called %q", got)
	}
}
