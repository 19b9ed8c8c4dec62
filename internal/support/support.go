// Package support writes what is known of nodes and their machines into one archive, for
// people who look for a mistake elsewhere. It leaves out secrets, and must not change
// anything.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/doctor"
)

// Options say what goes into an archive.
type Options struct {
	Name     string // of the folder in the archive
	Version  string // of the program that writes it
	Interval time.Duration
	Say      func(format string, args ...any) // reports what is done; nil: nobody listens
}

// mostText is the largest file in an archive, bytes; of logs the end is taken.
const mostText = 8 << 20

// archive is what is written to.
type archive struct {
	tar     *tar.Writer
	root    string
	made    time.Time
	scrub   *scrubber
	missing []string // what could not be had, and why
}

// add writes a file without secrets.
func (a *archive) add(name string, text []byte) error {
	text = a.scrub.clean(text)
	if len(text) > mostText {
		text = text[len(text)-mostText:]
	}
	h := &tar.Header{Name: path.Join(a.root, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.made, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s to the archive: %w", name, err)
	}
	if _, err := a.tar.Write(text); err != nil {
		return fmt.Errorf("write %s to the archive: %w", name, err)
	}
	return nil
}

// lack notes that something is not in the archive.
func (a *archive) lack(name string, err error) {
	a.missing = append(a.missing, fmt.Sprintf("%s: %v", name, err))
}

// Write examines the targets and writes the archive, as tar.gz. It returns what doctor
// found, and fails if no node answers.
func Write(ctx context.Context, w io.Writer, targets []doctor.Target, o Options) (*doctor.Report, error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	o.Say("examining %d nodes", len(targets))
	nodes, failed := doctor.LookAll(ctx, targets, o.Interval)
	if len(nodes) == 0 {
		return nil, fmt.Errorf("no node answers: %s: %s", failed[0].Node, failed[0].Error)
	}
	report := doctor.Diagnose(nodes)
	report.Failed = append(report.Failed, failed...)
	zip := gzip.NewWriter(w)
	a := &archive{tar: tar.NewWriter(zip), root: o.Name, made: time.Now(), scrub: newScrubber()}
	for _, n := range nodes {
		a.scrub.learn(n)
	}
	err := a.report(report, o.Version)
	for i, n := range nodes {
		if err == nil {
			o.Say("collecting %s (%d of %d)", n.Name, i+1, len(nodes))
			err = a.node(ctx, n)
		}
	}
	if err == nil && len(nodes) > 0 && nodes[0].Machine != nil {
		err = a.host(ctx)
	}
	if err == nil {
		err = a.add("missing.txt", []byte(strings.Join(a.missing, "\n")+"\n"))
	}
	return report, errors.Join(err, a.tar.Close(), zip.Close())
}

func (a *archive) report(r *doctor.Report, version string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "made by loomctl %s at %s\n\n", version, a.made.UTC().Format(time.RFC3339))
	r.Print(&text)
	b, err := json.MarshalIndent(r, "", "  ")
	return errors.Join(err, a.add("doctor.txt", []byte(text.String())), a.add("doctor.json", b))
}

// node collects what there is of a node.
func (a *archive) node(ctx context.Context, n *doctor.Node) error {
	dir := path.Join("nodes", path.Base(n.Name))
	for _, what := range admin.Endpoints(n.Status.Role == "leafd") {
		raw, err := n.Asker.Get(ctx, what, url.Values{})
		if err != nil {
			a.lack(path.Join(dir, what+".json"), err)
			continue
		}
		if err := a.add(path.Join(dir, what+".json"), raw); err != nil {
			return err
		}
	}
	if n.Machine == nil {
		a.lack(path.Join(dir, "machine"), errors.New(n.Why))
		return nil
	}
	for name, get := range map[string]func() ([]byte, error){
		"config.yaml": func() ([]byte, error) { return os.ReadFile(n.Parameters.File) },
		"metrics.txt": func() ([]byte, error) { return metrics(ctx, n) },
		"log.txt":     func() ([]byte, error) { return log(ctx, n) },
	} {
		b, err := get()
		if err != nil {
			a.lack(path.Join(dir, name), err)
			continue
		}
		if err := a.add(path.Join(dir, name), b); err != nil {
			return err
		}
	}
	return a.machine(ctx, n, path.Join(dir, "machine"))
}

// metrics asks the node's telemetry, in the daemon's namespace.
func metrics(ctx context.Context, n *doctor.Node) (text []byte, err error) {
	address := n.Parameters.Metrics
	if address == "" || address == "off" {
		return nil, errors.New("the node serves no metrics (telemetry.listen)")
	}
	network, address := "tcp", address
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", socket
	}
	var conn net.Conn
	err = n.Inside(func(bool) error {
		conn, err = (&net.Dialer{Timeout: commandTime}).DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: commandTime, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, mostText))
}
