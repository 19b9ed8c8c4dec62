package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/httpd"
)

// listenAdmin opens the socket of the admin API; nil, nil: there is none. A
// socket that the file names must be had. The standard one, which nobody had to
// write, is there for convenience: a node that cannot have it forwards without.
func listenAdmin(address string, standard bool, log *slog.Logger) (net.Listener, error) {
	if standard {
		// If this fails, so does what follows, and says what to do.
		_ = os.MkdirAll(filepath.Dir(strings.TrimPrefix(address, "unix:")), 0o755)
	}
	l, err := httpd.Listen(address, "the admin API", "admin.listen")
	if err != nil && standard {
		log.Warn("no admin API: loomctl will not work", "err", err)
		return nil, nil
	}
	return l, err
}

// standardAdmin reports whether an address is one that nobody had to write.
func standardAdmin(address string) bool {
	return address == config.DefaultLeafAdmin || address == config.DefaultSpineAdmin
}

// request is a reload that somebody waits for.
type request struct {
	sum    [sha256.Size]byte // of the file's text
	answer chan<- admin.ConfigDiff
}

// Diff answers what a reload would do now.
func (r *reloader) Diff() admin.ConfigDiff { return r.said(r.plan(r.file, nil)) }

// Check answers what a reload would do if the file's text were this. Nothing changes.
func (r *reloader) Check(name string, text []byte) admin.ConfigDiff {
	if name == "" {
		name = r.file
	}
	return r.said(r.plan(name, append([]byte{}, text...))) // nil would be the file
}

// Reload reloads the file if its text has this sum, and says what came of it. It is done
// where signals are handled, so that one reload follows the other.
func (r *reloader) Reload(ctx context.Context, sum [sha256.Size]byte) admin.ConfigDiff {
	answer := make(chan admin.ConfigDiff, 1)
	select {
	case r.asked <- request{sum, answer}:
	case <-ctx.Done():
		return r.said(nil, fmt.Errorf("the daemon did not come to it: %w", ctx.Err()))
	}
	select {
	case d := <-answer:
		return d
	case <-ctx.Done():
		return r.said(nil, fmt.Errorf("it takes long, and is under way; see the log: %w", ctx.Err()))
	}
}

// reloadIf is Reload, where signals are handled. The file is read once: what has the sum is
// what is put in force.
func (r *reloader) reloadIf(ctx context.Context, sum [sha256.Size]byte) admin.ConfigDiff {
	text, err := os.ReadFile(r.file)
	switch {
	case err != nil:
		return r.said(nil, err)
	case sha256.Sum256(text) != sum:
		return r.said(nil, fmt.Errorf("%s is not what was to be put in force: somebody else has written it meanwhile", r.file))
	}
	d := r.said(r.plan(r.file, text))
	if d.Error != "" || len(d.Restart) > 0 {
		return d // who wrote the file takes it back, and the log has nothing to say about it
	}
	if d.Applied, err = r.take(ctx, text); err != nil {
		d.Error = err.Error()
	}
	return d
}

// said is the answer about a plan.
func (r *reloader) said(p *plan, err error) admin.ConfigDiff {
	d := admin.ConfigDiff{File: r.file, Live: []string{}, Restart: []string{}, Findings: []string{}}
	if file, err := filepath.Abs(r.file); err == nil {
		d.File = file
	}
	if err != nil {
		d.Error = err.Error()
		return d
	}
	d.Live, d.Restart = append(d.Live, p.live...), append(d.Restart, p.restart...)
	for _, f := range p.findings {
		d.Findings = append(d.Findings, f.String())
	}
	return d
}
