//go:build rdma

package rdma

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scrape reads a daemon's metrics.
func (s *site) scrape(node string) string {
	s.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.dir, node+".sock"))
		},
	}}
	resp, err := client.Get("http://daemon/metrics")
	if err != nil {
		s.t.Fatalf("metrics of %s: %v", node, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("metrics of %s: %v", node, err)
	}
	return string(body)
}

// text is a series' value as it is written; "": the node has no such series.
func (s *site) text(node, series string) string {
	s.t.Helper()
	for line := range strings.Lines(s.scrape(node)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// metric is a series' value; 0 if the node has no such series yet.
func (s *site) metric(node, series string) uint64 {
	s.t.Helper()
	text := s.text(node, series)
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatalf("%s of %s: %v", series, node, err)
	}
	return uint64(v)
}

// series returns the values of all series of a metric, by their labels in braces; "":
// it has none.
func (s *site) series(node, name string) map[string]uint64 {
	s.t.Helper()
	values := map[string]uint64{}
	for line := range strings.Lines(s.scrape(node)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') {
			continue // another metric, whose name begins alike
		}
		end := strings.LastIndexByte(rest, ' ')
		labels, text := rest[:end], rest[end+1:]
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			s.t.Fatalf("%s of %s: %v", line, node, err)
		}
		values[labels] = uint64(v)
	}
	return values
}

// eventually calls ok until it returns "", which it must within the time.
func (s *site) eventually(within time.Duration, ok func() string) {
	s.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		problem := ok()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("after %v: %s", within, problem)
		}
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
