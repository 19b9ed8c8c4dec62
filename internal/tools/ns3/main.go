// Command ns3 writes into docs/ns3.md what the published simulator of ConWeave and ours
// make of the same flows. Run it at the top of the repository after
//
//	loomsim run experiments/ns3-traces.yaml --size paper
//	go run ./internal/tools/ns3
package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
)

// The page has the tables between these lines.
const begin, end = "<!-- tables: go run ./internal/tools/ns3 -->\n", "<!-- end of tables -->\n"

func main() {
	log.SetFlags(0)
	log.SetPrefix("ns3: ")
	results := flag.String("results", "results/ns3-traces-paper", "the directory with the stored runs")
	page := flag.String("page", "docs/ns3.md", "the page to rewrite")
	theirs := flag.String("theirs", "experiments/traces/ns3-n32.csv", "what the published simulator found")
	flag.Parse()
	if err := run(*results, *page, *theirs); err != nil {
		log.Fatal(err)
	}
}

func run(results, page, theirs string) error {
	f, err := os.Open(theirs)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := readTheirs(f)
	if err != nil {
		return fmt.Errorf("%s: %w", theirs, err)
	}
	ours, err := readOurs(results)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return fmt.Errorf("%s: there is no pair of lines %q and %q; add them where the tables are to be", page, begin, end)
	}
	tables, err := tables(rows, ours)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(before+begin+tables+end+after), 0o644)
}

// number is a column of the tables: a metric of theirs, and of ours by its class.
type number struct{ label, theirs, class, ours string }

var numbers = []number{
	{"mean", "all_avg", "all", "mean"},
	{"p99", "all_p99", "all", "p99"},
	{"below 1 BDP: mean", "lt_bdp_avg", "small", "mean"},
	{"p99", "lt_bdp_p99", "small", "p99"},
	{"from 1 BDP: mean", "ge_bdp_avg", "large", "mean"},
	{"p99", "ge_bdp_p99", "large", "p99"},
}

// names are our names of their schemes and cases.
var names = map[string]string{"fecmp": "ecmp", "lossless": "lossless", "irn": "IRN"}

func named(s string) string {
	if n, ok := names[s]; ok {
		return n
	}
	return s
}

// readTheirs returns the rows of their table. Lines that begin with # are comments.
func readTheirs(r io.Reader) ([]map[string]string, error) {
	c := csv.NewReader(r)
	c.Comment = '#'
	all, err := c.ReadAll()
	if err != nil || len(all) < 2 {
		return nil, errors.Join(err, fmt.Errorf("%d lines", len(all)))
	}
	var rows []map[string]string
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, key := range all[0] {
			row[key] = line[i]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// cell is a scheme in a case: "ecmp", "lossless 80 %".
type cell struct{ scheme, axis string }

// readOurs returns the slowdowns of all seeds of each cell, by class and number.
func readOurs(dir string) (map[cell]map[[2]string][]float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: no runs are stored there; run loomsim run experiments/ns3-traces.yaml --size paper", dir))
	}
	ours := map[cell]map[[2]string][]float64{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var r experiment.Record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at := cell{r.Scheme, r.Axis}
		if ours[at] == nil {
			ours[at] = map[[2]string][]float64{}
		}
		for _, c := range r.Result.FCT {
			ours[at][[2]string{c.Class, "mean"}] = append(ours[at][[2]string{c.Class, "mean"}], c.SlowdownMean)
			ours[at][[2]string{c.Class, "p99"}] = append(ours[at][[2]string{c.Class, "p99"}], c.SlowdownP99)
		}
	}
	return ours, nil
}

// tables writes a table for each case: in each cell their number, ours, and in brackets
// the least and the most of our seeds.
func tables(rows []map[string]string, ours map[cell]map[[2]string][]float64) (string, error) {
	var b strings.Builder
	schemes := []string{"fecmp", "letflow", "conga", "drill", "conweave"}
	for _, fc := range []string{"lossless", "irn"} {
		for _, load := range []string{"50", "80"} {
			axis := fmt.Sprintf("%s %s %%", named(fc), load)
			fmt.Fprintf(&b, "\n**%s**\n\n| scheme |", axis)
			for _, n := range numbers {
				fmt.Fprintf(&b, " %s |", n.label)
			}
			fmt.Fprintf(&b, "\n|%s\n", strings.Repeat(" --- |", len(numbers)+1))
			for _, s := range schemes {
				i := slices.IndexFunc(rows, func(r map[string]string) bool { return r["lb"] == s && r["fc"] == fc && r["load"] == load })
				mine := ours[cell{named(s), axis}]
				if i < 0 || mine == nil {
					return "", fmt.Errorf("no numbers of %s at %s: %v, %v", s, axis, i >= 0, mine != nil)
				}
				fmt.Fprintf(&b, "| `%s` |", named(s))
				for _, n := range numbers {
					theirs, err := strconv.ParseFloat(rows[i][n.theirs], 64)
					if err != nil {
						return "", fmt.Errorf("%s of %s at %s: %w", n.theirs, s, axis, err)
					}
					fmt.Fprintf(&b, " %s |", compare(theirs, mine[[2]string{n.class, n.ours}]))
				}
				b.WriteByte('\n')
			}
		}
	}
	b.WriteByte('\n')
	return b.String(), nil
}

// compare writes their number, ours over all seeds, and by how much ours is more.
func compare(theirs float64, ours []float64) string {
	sum := 0.0
	for _, v := range ours {
		sum += v
	}
	mean := sum / float64(len(ours))
	return fmt.Sprintf("%s / %s (%s–%s), %+.0f %%", three(theirs), three(mean), three(slices.Min(ours)), three(slices.Max(ours)), math.Round(100*(mean/theirs-1)))
}

// three writes a number with three digits.
func three(v float64) string {
	digits := 2
	for limit := 10.0; v >= limit && digits > 0; limit *= 10 {
		digits--
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
