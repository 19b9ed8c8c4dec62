package loomctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/status"
)

// options are the flags of all commands.
type options struct {
	nodeFlags
	output string
	watch  time.Duration // 0: once
}

// The values of --output.
const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
)

func (o *options) add(root *cobra.Command) {
	o.nodeFlags.add(root)
	root.PersistentFlags().StringVarP(&o.output, "output", "o", asTable, "table, json or yaml")
	root.PersistentFlags().DurationVar(&o.watch, "watch", 0, "ask again and again, this often, until interrupted")
	root.PersistentFlags().Lookup("watch").NoOptDefVal = "1s"
	err := root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag
	}
}

func (o *options) check() error {
	switch {
	case o.output != asTable && o.output != asJSON && o.output != asYAML:
		return fmt.Errorf("output %q is unknown: use table, json or yaml", o.output)
	case o.watch < 0 || o.watch > 0 && o.watch < minWatch:
		return fmt.Errorf("--watch=%v: use %v or more", o.watch, minWatch)
	}
	return nil
}

// minWatch is the shortest time between two questions: each takes some of the workers'
// time.
const minWatch = 100 * time.Millisecond

// view is what a command asks nodes, and how it shows the answer, of type T.
type view[T any] struct {
	// ask returns a node's answer, as JSON.
	ask func(ctx context.Context, n *node) (json.RawMessage, error)
	// print writes an answer for people.
	print func(w io.Writer, answer *T)
	// judge returns the error that the command ends with, although the node answered; nil:
	// there is none.
	judge func(answer *T) error
	// whole says that the answer is of all nodes together: ask is called once, for none.
	whole bool
}

// asking returns the view of an endpoint of the admin API.
func asking[T any](what string, q url.Values, print func(io.Writer, *T)) *view[T] {
	return &view[T]{
		ask: func(ctx context.Context, n *node) (json.RawMessage, error) {
			return n.client.Get(ctx, what, q)
		},
		print: print,
	}
}

// decode reads a daemon's answer, unless there is an error instead.
func decode[T any](raw json.RawMessage, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	answer := new(T)
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, fmt.Errorf("understand the daemon's answer: %w; is loomctl of the same version as the daemon?", err)
	}
	return answer, nil
}

// get asks a node.
func get[T any](ctx context.Context, n *node, what string, q url.Values) (*T, error) {
	return decode[T](n.client.Get(ctx, what, q))
}

// reply is what became of the question to one node.
type reply struct {
	name   string
	raw    json.RawMessage
	text   bytes.Buffer // for people
	err    error        // it did not answer
	judged error
}

// show asks the nodes that the flags mean and writes what they answer, once or again
// and again.
func (v *view[T]) show(c *cobra.Command, o *options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.watch == 0 {
		return v.once(c.Context(), c.OutOrStdout(), o)
	}
	screen := newScreen(c.OutOrStdout(), o)
	tick := time.NewTicker(o.watch)
	defer tick.Stop()
	for {
		var text bytes.Buffer
		if err := v.once(c.Context(), &text, o); err != nil && c.Context().Err() == nil {
			fmt.Fprintf(screen.errors(&text, c.ErrOrStderr()), "loomctl: %v\n", err) // it may answer the next time
		}
		if c.Context().Err() != nil {
			return nil
		}
		if err := screen.write(&text); err != nil {
			return err
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// once asks and writes. What some nodes answer is written although others do not.
func (v *view[T]) once(ctx context.Context, w io.Writer, o *options) error {
	nodes, many, err := []node{{}}, false, error(nil)
	if !v.whole {
		nodes, many, err = o.choose()
	}
	if err != nil {
		return err
	}
	replies := make([]reply, len(nodes))
	var wait sync.WaitGroup
	for i := range nodes {
		wait.Go(func() { v.askOne(ctx, &nodes[i], o, &replies[i]) })
	}
	wait.Wait()
	if !many {
		r := &replies[0]
		if r.err != nil {
			return r.err
		}
		return errors.Join(o.writeOne(w, r), r.judged)
	}
	return errors.Join(o.writeAll(w, replies), verdict(replies))
}

func (v *view[T]) askOne(ctx context.Context, n *node, o *options, r *reply) {
	r.name = n.name
	if r.raw, r.err = v.ask(ctx, n); r.err != nil || o.output != asTable && v.judge == nil {
		return
	}
	answer, err := decode[T](r.raw, nil)
	if err != nil {
		r.err = err
		return
	}
	v.print(&r.text, answer)
	if v.judge != nil {
		r.judged = v.judge(answer)
	}
}

// writeOne writes the answer of the only node.
func (o *options) writeOne(w io.Writer, r *reply) error {
	if o.output == asTable {
		_, err := r.text.WriteTo(w)
		return err
	}
	return o.document(w, r.raw)
}

// document writes JSON as --output says: while watching, one a line or one a document.
func (o *options) document(w io.Writer, raw json.RawMessage) (err error) {
	var text bytes.Buffer
	switch {
	case o.output == asYAML:
		var b []byte
		b, err = yaml.JSONToYAML(raw)
		if o.watch > 0 {
			text.WriteString("---\n")
		}
		text.Write(b)
	case o.watch > 0:
		err = json.Compact(&text, raw)
		text.WriteByte('\n')
	default:
		err = json.Indent(&text, bytes.TrimSpace(raw), "", "  ")
		text.WriteByte('\n')
	}
	if err != nil {
		return fmt.Errorf("the daemon's answer is not JSON: %w", err)
	}
	_, err = text.WriteTo(w)
	return err
}

// writeAll writes what several nodes answered: under their names, as an object or as
// parts. Nodes of the other role are left out.
func (o *options) writeAll(w io.Writer, replies []reply) error {
	if o.output == asTable {
		var parts []string
		for i := range replies {
			switch r := &replies[i]; {
			case errors.Is(r.err, admin.ErrOtherRole):
			case r.err != nil:
				parts = append(parts, fmt.Sprintf("%s: %v\n", r.name, r.err))
			default:
				parts = append(parts, r.name+":\n"+r.text.String())
			}
		}
		_, err := io.WriteString(w, strings.Join(parts, "\n"))
		return err
	}
	all := make(map[string]json.RawMessage)
	for i := range replies {
		switch r := &replies[i]; {
		case errors.Is(r.err, admin.ErrOtherRole):
		case r.err != nil:
			b, err := json.Marshal(admin.Failure{Error: r.err.Error()})
			if err != nil {
				return err
			}
			all[r.name] = b
		default:
			all[r.name] = r.raw
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("a daemon's answer is not JSON: %w", err)
	}
	return o.document(w, raw)
}

// verdict returns what several nodes' answers come to.
func verdict(replies []reply) error {
	var failed, other []string
	var judged error
	for i := range replies {
		switch r := &replies[i]; {
		case errors.Is(r.err, admin.ErrOtherRole):
			other = append(other, r.name)
		case r.err != nil:
			failed = append(failed, r.name)
		case r.judged != nil && (judged == nil || ExitCode(r.judged) == exitFailed):
			judged = r.judged
		}
	}
	switch {
	case len(other) == len(replies):
		return replies[0].err
	case len(failed)+len(other) == len(replies):
		return fmt.Errorf("no node answers: %s", strings.Join(failed, ", "))
	case len(failed) > 0:
		return fmt.Errorf("%w: %s", ErrSomeFailed, strings.Join(failed, ", "))
	}
	return judged
}

// screen is where watching writes.
type screen struct {
	w        io.Writer
	terminal bool // one picture in the place of the last
	gap      bool // pictures are told apart by empty lines
	begun    bool
}

func newScreen(w io.Writer, o *options) *screen {
	return &screen{w: w, terminal: status.New(w).Terminal && o.output == asTable, gap: o.output == asTable}
}

// errors is where errors go between two pictures: into the picture where there is one.
func (s *screen) errors(picture, stderr io.Writer) io.Writer {
	if s.terminal {
		return picture
	}
	return stderr
}

func (s *screen) write(picture *bytes.Buffer) (err error) {
	switch {
	case s.terminal:
		// Each line erases what it does not cover, and the last what is below: nothing flickers.
		_, err = io.WriteString(s.w, "\x1b[H"+strings.ReplaceAll(picture.String(), "\n", "\x1b[K\n")+"\x1b[J")
	case s.gap && s.begun:
		_, err = fmt.Fprintf(s.w, "\n%s", picture)
	default:
		_, err = picture.WriteTo(s.w)
	}
	s.begun = true
	return err
}
