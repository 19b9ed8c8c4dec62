package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// prepare reads the file and holds it against the machine, or, offline, against itself
// alone. It touches nothing. The error says how many findings are fatal; they are for
// the caller to show. look may change what is known of the machine before it is judged.
func (k Kind) prepare(file string, offline bool, look ...func(*node, *control.Facts) error) (n *node, findings []control.Finding, err error) {
	if offline {
		if n, err = k.load(file, nil, nil); err != nil {
			return nil, nil, err
		}
		findings = control.CheckFile(&n.dp)
	} else if n, findings, err = k.inspect(file, look...); err != nil {
		return nil, nil, err
	}
	fatal := 0
	for _, f := range findings {
		if f.Fatal {
			fatal++
		}
	}
	if fatal > 0 && n.waits() {
		return nil, findings, noDevice{n}
	}
	if fatal > 0 {
		return nil, findings, fmt.Errorf("%s cannot work on this machine: %d start-up checks failed", file, fatal)
	}
	return n, findings, nil
}

// inspect reads the file and holds it against the machine. look is called between the
// two.
func (k Kind) inspect(file string, look ...func(*node, *control.Facts) error) (*node, []control.Finding, error) {
	interfaces, err := control.Interfaces()
	if err != nil {
		return nil, nil, err
	}
	n, err := k.load(file, nil, interfaces)
	if err != nil {
		return nil, nil, err
	}
	if n.dp.Name == "" {
		if n.dp.Name, err = os.Hostname(); err != nil {
			return nil, nil, fmt.Errorf("find the host's name: %w; set name in %s", err, file)
		}
	}
	n, left, err := n.inspectKernel()
	if err != nil {
		return nil, nil, err
	}
	if n.waits() {
		return n, left, nil // what is checked further needs a VTEP
	}
	facts, err := control.Gather(&n.dp)
	if err == nil && n.auto() {
		n = n.look(&facts.State)
		facts, err = control.Gather(&n.dp) // about these ports, too
	}
	if err != nil {
		return nil, nil, err
	}
	for _, f := range look {
		if err := f(n, facts); err != nil {
			return nil, nil, err
		}
	}
	n.adapt(facts)
	return n, append(control.Check(&n.dp, n.overlay(), facts), left...), nil
}

// checkCommand returns the command that does what run does before it touches anything.
func (k Kind) checkCommand(file *string, out io.Writer) *cobra.Command {
	var offline bool
	var output string
	c := &cobra.Command{
		Use: "check", Short: "Check the configuration and the machine, and touch nothing",
		RunE: func(*cobra.Command, []string) error {
			switch output {
			case "text":
				return k.check(*file, offline, out)
			case "json":
				return k.checkJSON(*file, offline, out)
			}
			return fmt.Errorf("output %q is unknown: use text or json", output)
		},
	}
	c.Flags().BoolVar(&offline, "offline", false, "check the file alone, for another machine than this one")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// check prints what it finds for people.
func (k Kind) check(file string, offline bool, out io.Writer) error {
	n, findings, err := k.prepare(file, offline)
	n.printKernel(out)
	for _, f := range findings {
		fmt.Fprintf(out, "%s: %v\n", f.Severity(), f)
	}
	if err != nil {
		return err
	}
	if n.auto() && !offline {
		fmt.Fprintf(out, "ports towards the fabric, as routes have it: %s\n", cmp.Or(strings.Join(n.found(), ", "), "none so far"))
	}
	_, err = fmt.Fprintf(out, "%s: OK\n", file)
	return err
}

// verdict is what `check -o json` prints. The names in the tags are a promise.
type verdict struct {
	File     string    `json:"file"`
	OK       bool      `json:"ok"` // no finding is an error
	Findings []finding `json:"findings"`
}

// finding is one thing that is wrong.
type finding struct {
	Severity string `json:"severity"` // error or warning
	// Place is FILE:LINE:COLUMN for what the file says, otherwise an interface, a key
	// of the file or a capability.
	Place string `json:"place"`
	Text  string `json:"text"`
	Fix   string `json:"fix"`
}

// checkJSON prints what it finds for programs.
func (k Kind) checkJSON(file string, offline bool, out io.Writer) error {
	_, findings, err := k.prepare(file, offline)
	v := verdict{File: file, OK: err == nil, Findings: []finding{}}
	for _, f := range findings {
		v.Findings = append(v.Findings, finding{f.Severity(), f.Place, f.Problem, f.Fix})
	}
	var mistakes yamlfile.Errors
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			v.Findings = append(v.Findings, finding{"error", m.Place(), m.Problem, m.Fix})
		}
		err = fmt.Errorf("%s has %d mistakes", file, len(mistakes))
	case err != nil && len(findings) == 0:
		v.Findings = append(v.Findings, finding{"error", file, err.Error(), ""})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return errors.Join(err, e.Encode(v))
}
