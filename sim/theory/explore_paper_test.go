package theory

import (
	"fmt"
	"strings"
	"testing"
)

// TCP-Path §V-D.2, Table 2: "Theoretical broadcast control to data bytes ratio at a leaf
// switch (%)", for as many spines as leaves, requests of 64 bytes, and flows of 1.90 MB
// (web search) and 2.97 MB (data mining). "We can see that the ratio is almost 20 times
// lower for TFE than for TCP-Path": TFE explores for 5 % of the flows.
func TestTable2(t *testing.T) {
	const request, webSearch, dataMining, tfe = 64, 1.90e6, 2.97e6, 0.05
	for n, row := range map[int][4]string{
		4:   {"0.0202", "0.0129", "0.0010", "0.0006"},
		16:  {"0.404", "0.259", "0.020", "0.013"},
		64:  {"6.79", "4.34", "0.340", "0.217"},
		128: {"27.4", "17.5", "1.37", "0.88"},
	} {
		for i, c := range [4]struct{ flow, share float64 }{{webSearch, 1}, {dataMining, 1}, {webSearch, tfe}, {dataMining, tfe}} {
			_, decimals, _ := strings.Cut(row[i], ".")
			got := fmt.Sprintf("%.*f", len(decimals), 100*c.share*ExploringShare(n, n, request, c.flow))
			if got != row[i] {
				t.Errorf("%d leaves, flows of %.2f MB of which %g explore: %s %%, the paper has %s %%", n, c.flow/1e6, c.share, got, row[i])
			}
		}
	}
}
