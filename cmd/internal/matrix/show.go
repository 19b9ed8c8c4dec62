package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/experiment/report"
)

// experimentsDir is where experiments are looked for if none is named.
const experimentsDir = "experiments"

// Load reads experiments: files, directories of them, or experimentsDir.
func Load(args []string) (out []*experiment.Experiment, err error) {
	if len(args) == 0 {
		args = []string{experimentsDir}
	}
	names := map[string]string{}
	for _, arg := range args {
		files := []string{arg}
		if info, err := os.Stat(arg); err != nil {
			return nil, fmt.Errorf("experiment: %w", err)
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(arg, "*.yaml")); err != nil || len(files) == 0 {
				return nil, errors.Join(err, fmt.Errorf("%s has no .yaml files", arg))
			}
		}
		for _, file := range files {
			e, err := experiment.Load(file, experiment.Options{})
			if err != nil {
				return nil, err
			}
			if other, ok := names[e.Name]; ok {
				return nil, fmt.Errorf("%s and %s are both named %s, and would have the same results: rename one", other, file, e.Name)
			}
			names[e.Name] = file
			out = append(out, e)
		}
	}
	return out, nil
}

// stored reads the results of experiments: of one size, or of each that has any,
// and of each runner.
func (p *Program) stored(args []string, size string) (out []*experiment.Results, err error) {
	exps, err := Load(args)
	if err != nil {
		return nil, err
	}
	for _, e := range exps {
		for _, s := range e.Sizes {
			if size != "" && s.Name != size {
				continue
			}
			by, err := p.by(s)
			if err != nil {
				return nil, err
			}
			for _, r := range by {
				if r.Stored() > 0 {
					out = append(out, r)
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no results of these experiments as they are now: make some with loomsim run", p.results)
	}
	return out, nil
}

// ListCommand returns the command that lists experiments.
func (p *Program) ListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list [FILE|DIR]...", Short: "List experiments, their sizes, and what is stored of them (default: those in experiments/)",
		RunE: func(c *cobra.Command, args []string) error {
			exps, err := Load(args)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FILE\tFIGURE\tTITLE\tSIZE\tRUNS\tSTORED")
			for _, e := range exps {
				file, paper, title := e.File, e.Paper, e.Title
				for _, s := range e.Sizes {
					stored, err := p.counts(s)
					if err != nil {
						return err
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", file, paper, title, s.Name, len(s.Runs), stored)
					file, paper, title = "", "", "" // once
				}
			}
			return w.Flush()
		},
	}
}

// by reads what each runner has made of a size.
func (p *Program) by(s *experiment.Size) (out []*experiment.Results, err error) {
	for _, on := range p.Runners {
		r, err := s.Store(p.results, on.Name()).Results(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// counts says what is stored of a size, by each runner that has made any.
func (p *Program) counts(s *experiment.Size) (string, error) {
	var parts []string
	by, err := p.by(s)
	for i, r := range by {
		if i > 0 && r.Stored()+r.Stale == 0 {
			continue
		}
		text := strconv.Itoa(r.Stored())
		if i > 0 {
			text += " in the " + r.On
		}
		if r.Stale > 0 {
			text += fmt.Sprintf(" (and %d of another model)", r.Stale)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", "), err
}

// PlotCommand returns the command that draws figures.
func (p *Program) PlotCommand() *cobra.Command {
	var size, dir string
	var formats []string
	cmd := &cobra.Command{
		Use: "plot [FILE|DIR]...", Short: "Draw the figures of experiments from what is stored",
		RunE: func(c *cobra.Command, args []string) error {
			for _, f := range formats {
				if f != "svg" && f != "png" {
					return fmt.Errorf("--format %q is unknown: write svg, png or both", f)
				}
			}
			all, err := p.stored(args, size)
			if err != nil {
				return err
			}
			for _, r := range all {
				to := dir
				if to == "" {
					to = filepath.Join(r.Size.Store(p.results, r.On).Dir(), "figures")
				}
				if err := plot(c.OutOrStdout(), to, r, formats); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "only of this size (default: of each that has results)")
	cmd.Flags().StringVar(&dir, "dir", "", "directory to write into (default: figures/ beside the results)")
	cmd.Flags().StringSliceVar(&formats, "format", []string{"svg", "png"}, "formats")
	return cmd
}

// plot writes an experiment's figures, and their names to out.
func plot(out io.Writer, dir string, r *experiment.Results, formats []string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	for _, f := range report.Figures(r) {
		for _, format := range formats {
			name := filepath.Join(dir, r.Size.ID(r.On)+"-"+f.Name+"."+format)
			draw := f.SVG
			if format == "png" {
				draw = f.PNG
			}
			if err := toFile(name, draw); err != nil {
				return err
			}
			fmt.Fprintln(out, name)
		}
	}
	return nil
}

// outputs are the files that results can be written into; "" is none.
type outputs struct{ html, csv, markdown, title string }

func (o *outputs) write(out io.Writer, all []*experiment.Results) (err error) {
	write := func(name string, content func(io.Writer) error) {
		if name != "" {
			err = errors.Join(err, WriteFile(out, name, content))
		}
	}
	write(o.html, func(w io.Writer) error { return report.HTML(w, o.title, all) })
	write(o.csv, func(w io.Writer) error { return report.CSV(w, all) })
	write(o.markdown, func(w io.Writer) error {
		// The document need not exist.
		old, err := os.ReadFile(o.markdown)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("document: %w", err)
		}
		text, err := report.Markdown(string(old), all)
		if err != nil {
			return fmt.Errorf("%s: %w", o.markdown, err)
		}
		_, err = io.WriteString(w, text)
		return err
	})
	return err
}

// ReportCommand returns the command that writes pages and CSV.
func (p *Program) ReportCommand() *cobra.Command {
	var size string
	var to outputs
	cmd := &cobra.Command{
		Use: "report [FILE|DIR]...", Short: "Write what is stored as one page of HTML, as CSV, or into a document",
		RunE: func(c *cobra.Command, args []string) error {
			if to.html == "" && to.csv == "" && to.markdown == "" {
				to.html = filepath.Join(p.results, "report.html")
			}
			all, err := p.stored(args, size)
			if err != nil {
				return err
			}
			return to.write(c.OutOrStdout(), all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&size, "size", "", "only of this size (default: of each that has results)")
	f.StringVar(&to.html, "html", "", "write a page that needs nothing else; - is the standard output (default, if nothing else is asked for: report.html in the results)")
	f.StringVar(&to.csv, "csv", "", "write a row for each run; - is the standard output")
	f.StringVar(&to.markdown, "markdown", "", "rewrite what is between loomsim's markers in this document, as docs/results.md")
	f.StringVar(&to.title, "title", "Experiments", "of the page")
	return cmd
}

// WriteFile writes a file and its name, or to out.
func WriteFile(out io.Writer, name string, content func(io.Writer) error) error {
	if name == "-" {
		return content(out)
	}
	if err := toFile(name, content); err != nil {
		return err
	}
	fmt.Fprintln(out, name)
	return nil
}

// toFile writes a file once all that is to be in it is known.
func toFile(name string, content func(io.Writer) error) error {
	var b bytes.Buffer
	if err := content(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
