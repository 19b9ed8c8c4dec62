package loomctl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

func configCommand(o *options) *cobra.Command {
	parent := &cobra.Command{Use: "config", Short: "The daemon's configuration"}
	parent.AddCommand(
		&cobra.Command{
			Use: "diff", Short: "What a reload of the daemon's file would change now, and what needs a restart",
			Long: "diff has the daemon hold its file against what it runs with, and against the machine.\n" +
				"It changes nothing. The exit code is 0 if a reload (SIGHUP) takes over all that has\n" +
				"changed, 2 if a key needs a restart, and 1 if the daemon would refuse the file, or does\n" +
				"not answer.",
			Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				v := asking("config", nil, func(w io.Writer, d *admin.ConfigDiff) { printDiff(w, d.File, d) })
				v.judge = judgeDiff
				return v.show(c, o)
			},
		},
		checkCommand(o),
		&cobra.Command{
			Use: "apply FILE", Short: "Put a file in force in the place of the daemon's, and keep the one before",
			Long: "apply has the daemon check FILE as diff does. If a reload takes over all of it, FILE's text\n" +
				"replaces the daemon's file in one step, the daemon reads it, and the text before is kept\n" +
				"beside it with .previous added to its name. If the daemon refuses FILE, or a key needs a\n" +
				"restart, nothing changes. - is standard input.",
			Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				text, err := readText(c, args[0])
				if err != nil {
					return err
				}
				return o.changeFile(c, func(context.Context, string) (string, []byte, error) { return args[0], text, nil })
			},
		},
		&cobra.Command{
			Use: "rollback", Short: "Put the file in force that was there before the last apply",
			Long: "rollback applies what the last apply has kept. A second rollback takes the first one back.",
			Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return o.changeFile(c, func(_ context.Context, file string) (string, []byte, error) {
					text, err := os.ReadFile(file + previous)
					if err != nil {
						return "", nil, fmt.Errorf("no file is kept: %w", err)
					}
					return file + previous, text, nil
				})
			},
		},
	)
	return parent
}

// previous is added to the name of the file that is kept.
const previous = ".previous"

func readText(c *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	return os.ReadFile(file)
}

func checkCommand(o *options) *cobra.Command {
	var offline string
	c := &cobra.Command{
		Use: "check FILE", Short: "What would become of a file if it were the daemon's",
		Long: "check has the daemon hold FILE against what it runs with, and against the machine. With\n" +
			"--offline no daemon is asked, and FILE is held against itself alone. - is standard input.\n" +
			"The exit code is as that of diff.",
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&offline, "offline", "", "check the file of a leafd or a spined without one")
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := readText(c, args[0])
		if err != nil {
			return err
		}
		if offline != "" {
			return checkOffline(c.OutOrStdout(), offline, args[0], text)
		}
		v := asking("", nil, func(w io.Writer, d *admin.ConfigDiff) { printDiff(w, args[0], d) })
		v.ask = func(ctx context.Context, n *node) (json.RawMessage, error) {
			return n.client.Post(ctx, "config/check", url.Values{"name": {args[0]}}, text)
		}
		v.judge = judgeDiff
		return v.show(c, o)
	}
	return c
}

// checkOffline holds a file against itself.
func checkOffline(w io.Writer, daemon, file string, text []byte) error {
	var dp dataplane.Config
	switch daemon {
	case "leafd":
		l, err := config.ParseLeaf(file, text, nil)
		if err != nil {
			return err
		}
		dp = l.ToDataplane()
	case "spined":
		s, err := config.ParseSpine(file, text, nil)
		if err != nil {
			return err
		}
		dp = s.ToDataplane()
	default:
		return fmt.Errorf("--offline %q: use leafd or spined", daemon)
	}
	for _, f := range control.CheckFile(&dp) {
		fmt.Fprintf(w, "%s: %v\n", f.Severity(), f)
		if f.Fatal {
			return ErrRefused
		}
	}
	_, err := fmt.Fprintf(w, "%s: OK\n", file)
	return err
}

// judgeDiff says what a difference means for the exit code.
func judgeDiff(d *admin.ConfigDiff) error {
	switch {
	case d.Error != "":
		return ErrRefused
	case len(d.Restart) > 0:
		return ErrRestart
	}
	return nil
}

// changeFile puts a text in force that next returns, with its name, for the daemon's file.
func (o *options) changeFile(c *cobra.Command, next func(ctx context.Context, file string) (string, []byte, error)) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.watch > 0 {
		return errors.New("--watch is for commands that look: leave it out")
	}
	nodes, many, err := o.choose()
	if err != nil {
		return err
	}
	if many || nodes[0].client.Socket == "" {
		return errors.New("a file is of one node, and changed where it is: run this on the node, or name one whose address is a Unix socket")
	}
	client := nodes[0].client
	d, err := decode[admin.ConfigDiff](client.Get(c.Context(), "config", nil))
	if err != nil {
		return err
	}
	name, text, err := next(c.Context(), d.File)
	if err != nil {
		return err
	}
	if sameFile(name, d.File) {
		return fmt.Errorf("%s is the daemon's file itself, and the one before could not be kept: apply a copy, or reload the daemon", name)
	}
	d, err = decode[admin.ConfigDiff](client.Post(c.Context(), "config/check", url.Values{"name": {name}}, text))
	if err != nil {
		return err
	}
	if judged := judgeDiff(d); judged != nil {
		return errors.Join(o.writeDiff(c.OutOrStdout(), name, d), judged)
	}
	f, err := replaceFile(d.File, text)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	d, err = decode[admin.ConfigDiff](client.Post(c.Context(), "config/reload", url.Values{"sha256": {hex.EncodeToString(sum[:])}}, nil))
	if err != nil {
		return fmt.Errorf("%w; %s has been written, and `loomctl config diff` says whether it is in force", err, f.path)
	}
	judged := judgeDiff(d)
	if judged != nil {
		judged = errors.Join(judged, f.takeBack())
	}
	return errors.Join(o.writeDiff(c.OutOrStdout(), name, d), judged)
}

// writeDiff writes what came of a change.
func (o *options) writeDiff(w io.Writer, name string, d *admin.ConfigDiff) error {
	if o.output == asTable {
		var text bytes.Buffer
		printDiff(&text, name, d)
		_, err := text.WriteTo(w)
		return err
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return o.document(w, raw)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// printDiff says of a text, by its name, what it would change, or has changed.
func printDiff(w io.Writer, name string, d *admin.ConfigDiff) {
	switch {
	case d.Error != "":
		fmt.Fprintf(w, "%s would be refused: %s\n", name, d.Error)
		return
	case d.Applied:
		fmt.Fprintf(w, "%s is in force now as %s; %s%s is what was there before\n\n", name, d.File, d.File, previous)
	case len(d.Live)+len(d.Restart) == 0:
		fmt.Fprintf(w, "%s says what is in force\n", name)
		return
	default:
		fmt.Fprintf(w, "%s differs from what is in force\n\n", name)
	}
	t := newTable(w, "KEY", either(d.Applied, "TOOK", "TAKES"))
	for _, key := range d.Restart {
		t.row(key, "a restart")
	}
	for _, key := range d.Live {
		t.row(key, "a reload")
	}
	t.end()
	for _, f := range d.Findings {
		fmt.Fprintf(w, "\n%s\n", f)
	}
	if len(d.Restart) > 0 && len(d.Live) > 0 {
		fmt.Fprintln(w, "\nA reload is all or nothing: as the file is, it would change nothing.")
	}
}

// replaced is a file that has got another text.
type replaced struct {
	path    string
	text    []byte // that it had
	kept    []byte // what was kept before; hadKept: something was
	hadKept bool
	same    bool // it had this text already
	mode    os.FileMode
	uid     int
	gid     int
}

// replaceFile gives a file another text in one step, and keeps the one that it had
// beside it.
func replaceFile(path string, text []byte) (f *replaced, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	f = &replaced{path: path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f.mode = info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.uid, f.gid = int(st.Uid), int(st.Gid)
	}
	if f.text, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if f.same = bytes.Equal(f.text, text); f.same {
		return f, nil // and what is kept is still the text before
	}
	if f.kept, err = os.ReadFile(path + previous); err == nil {
		f.hadKept = true
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := f.write(path+previous, f.text); err != nil {
		return nil, err
	}
	return f, f.write(path, text)
}

// takeBack undoes it.
func (f *replaced) takeBack() error {
	if f.same {
		return nil
	}
	err := f.write(f.path, f.text)
	if f.hadKept {
		return errors.Join(err, f.write(f.path+previous, f.kept))
	}
	return errors.Join(err, os.Remove(f.path+previous))
}

// write gives a file a text: whoever reads it sees all of the old or all of the new one.
func (f *replaced) write(path string, text []byte) (err error) {
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(t.Name())))
		}
	}()
	_, err = t.Write(text)
	err = errors.Join(err, t.Chown(f.uid, f.gid), t.Chmod(f.mode), t.Sync(), t.Close())
	if err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}
