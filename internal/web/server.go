package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/httpd"
)

//go:embed assets
var assets embed.FS

// Bounds on what pages can cost.
const (
	maxStreams = 64
	// writeWait is how long a page has to take what it is sent.
	writeWait = 10 * time.Second
	maxFile   = 1 << 30 // of snapshots to play
	playWait  = 2 * time.Minute
	maxPlays  = 2
	maxPlayed = 256 << 20
)

// policy lets the page have what comes from here, and nothing else. Scripts and styles
// stand in files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// server is the page and what it asks for.
type server struct {
	hello   Hello
	nodes   []Node
	ring    *ring
	hosts   []string        // names that the page may be asked for by, besides addresses
	ends    context.Context // with the program
	streams chan struct{}
	plays   chan struct{}
}

// handler returns what answers a browser.
func (s *server) handler(gate *httpd.Gate) http.Handler {
	s.streams, s.plays = make(chan struct{}, maxStreams), make(chan struct{}, maxPlays)
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", s.files(files))
	mux.HandleFunc("GET /api/stream", s.stream)
	mux.HandleFunc("GET /api/history", s.history)
	mux.HandleFunc("POST /api/play", s.play)
	mux.Handle("GET /api/explain", gate.Bound(http.HandlerFunc(s.forward("explain"))))
	mux.Handle("GET /api/fdb", gate.Bound(http.HandlerFunc(s.forward("fdb"))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		entries, bytes := s.ring.state()
		httpd.WriteJSON(w, http.StatusOK, map[string]int{"messages": entries, "bytes": bytes})
	})
	return s.guard(http.NewCrossOriginProtection().Handler(mux))
}

// guard sets the headers that bind the browser, and refuses names that are not ours: a
// name that somebody else points at this machine would make their page one of ours.
func (s *server) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		if net.ParseIP(host) == nil && !slices.Contains(s.hosts, host) {
			fail(w, http.StatusMisdirectedRequest, fmt.Errorf("this is not %q: start loomweb with --name %s if it is", host, host))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostNames are the names that the page has anyway.
func hostNames(more []string) []string {
	names := append([]string{"localhost"}, more...)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	return names
}

// files serves the page. A browser asks each time whether a file is another one: there
// is one version of all of them.
func (s *server) files(files fs.FS) http.Handler {
	h := http.FileServerFS(files)
	tag := `"` + s.hello.Version + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		if s.hello.Version != "" && !strings.Contains(s.hello.Version, "dirty") {
			w.Header().Set("ETag", tag)
		}
		h.ServeHTTP(w, r)
	})
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, err error) {
	httpd.WriteJSON(w, status, admin.Failure{Error: err.Error()})
}

// stream sends messages as they come, after those that the page has had.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d pages are open: close one", maxStreams))
		return
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	seq, err := strconv.ParseUint(last, 10, 64)
	if err != nil && last != "" {
		fail(w, http.StatusBadRequest, fmt.Errorf("after %q is not a number", last))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ends, cancel)()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request has come, and the answer has no end
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	send := func(id uint64, text []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
			return err
		}
		if id > 0 {
			if _, err := fmt.Fprintf(w, "id: %d\n", id); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "data: %s\n\n", text)
		return err
	}
	hello, _ := json.Marshal(s.hello) // it has texts and numbers
	if send(0, hello) != nil || control.Flush() != nil {
		return
	}
	var layout *layoutText
	for {
		entries := s.ring.after(ctx, seq, true)
		if entries == nil {
			return
		}
		for _, e := range entries {
			if e.layout != layout {
				if send(0, e.layout.text) != nil {
					return
				}
				layout = e.layout
			}
			if send(e.seq, e.text) != nil {
				return
			}
			seq = e.seq
		}
		if control.Flush() != nil {
			return
		}
	}
}

// history sends all that is kept, one message on each line: what the page can save and
// play again.
func (s *server) history(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", "loomweb-"+time.Now().UTC().Format("20060102-150405")+".ndjson"))
	w.Header().Add("Vary", "Accept-Encoding")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out = z
	}
	if writeLines(out)(s.hello) != nil {
		return
	}
	control := http.NewResponseController(w)
	var layout *layoutText
	for seq := uint64(0); ; {
		entries := s.ring.after(r.Context(), seq, false)
		// Each part has its time: all of it may be more than goes through in an answer's.
		if len(entries) == 0 || control.SetWriteDeadline(time.Now().Add(writeWait)) != nil {
			return
		}
		for _, e := range entries {
			if e.layout != layout {
				layout = e.layout
				if _, err := fmt.Fprintf(out, "%s\n", layout.text); err != nil {
					return
				}
			}
			if _, err := fmt.Fprintf(out, "%s\n", e.text); err != nil {
				return
			}
			seq = e.seq
		}
	}
}

// play answers a file of snapshots with the messages of them.
func (s *server) play(w http.ResponseWriter, r *http.Request) {
	select {
	case s.plays <- struct{}{}:
		defer func() { <-s.plays }()
	default:
		fail(w, http.StatusServiceUnavailable, errors.New("other files are being read: try again"))
		return
	}
	control := http.NewResponseController(w)
	until := time.Now().Add(playWait)
	if err := errors.Join(control.SetReadDeadline(until), control.SetWriteDeadline(until)); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	// A browser reads the answer when it has sent the file, and not before.
	b := &bounded{most: maxPlayed}
	write := writeLines(b)
	err := write(Hello{Type: "hello", Title: "snapshots", Version: s.hello.Version})
	if err == nil {
		err = play(http.MaxBytesReader(w, r.Body, maxFile), write)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = b.WriteTo(w) // the page is gone: nobody to tell
}

// bounded is a buffer that refuses to grow beyond a size.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, fmt.Errorf("the file makes more than %d MiB of pictures: play a part of it", b.most>>20)
	}
	return b.Buffer.Write(p)
}

// forward asks a node for what the page wants to know of it.
func (s *server) forward(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		name := q.Get("node")
		q.Del("node")
		i := slices.IndexFunc(s.nodes, func(n Node) bool { return n.Name == name })
		if i < 0 {
			fail(w, http.StatusNotFound, fmt.Errorf("there is no node %q to ask", name))
			return
		}
		raw, err := s.nodes[i].Get(r.Context(), what, q)
		var refused *admin.Error
		switch {
		case errors.As(err, &refused):
			fail(w, refused.Status, err)
		case err != nil:
			fail(w, http.StatusBadGateway, err)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(raw) // the page is gone: nobody to tell
		}
	}
}
