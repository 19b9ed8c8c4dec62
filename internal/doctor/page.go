package doctor

import (
	"fmt"
	"strings"
)

// Table returns all probes as a Markdown table, for docs/doctor.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| probe | looks at | finds | severity | mended by |\n| --- | --- | --- | --- | --- |\n")
	for i := range Probes {
		p := &Probes[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", p.Name, p.Looks, p.Finds, p.Severity, p.Mends)
	}
	return b.String()
}
