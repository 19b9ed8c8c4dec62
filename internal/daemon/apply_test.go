package daemon

import (
	"context"
	"crypto/sha256"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCheckChangesNothing: a text is held against what runs, under its own name, whatever
// the daemon's file says.
func TestCheckChangesNothing(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	if d := r.Check("new.yaml", []byte(leafFile+"scheme: conga\n")); d.Error != "" || len(d.Live) == 0 || d.Live[0] != "scheme" || d.File != r.file || d.Applied {
		t.Errorf("%+v", d)
	}
	if d := r.Check("new.yaml", []byte(leafFile+"ring_size: 512\n")); len(d.Restart) != 1 {
		t.Errorf("%+v", d)
	}
	if d := r.Check("new.yaml", []byte(leafFile+"shceme: conga\n")); !strings.Contains(d.Error, "new.yaml:7:1") {
		t.Errorf("%+v", d)
	}
	if d := r.Check("", nil); !strings.Contains(d.Error, "empty") {
		t.Errorf("%+v", d)
	}
	if len(p.calls) > 0 || p.scheme != "" || r.result.Load() != nil {
		t.Errorf("%v", p.calls)
	}
}

// TestReloadOnRequest: the admin API has the file read that its caller has written, and
// nothing else; what is refused is not a reload that failed.
func TestReloadOnRequest(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	r.asked = make(chan request)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.run(ctx, make(chan os.Signal)); close(done) }()
	reload := func(text string) (refused string, applied bool) {
		t.Helper()
		wait, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		d := r.Reload(wait, sha256.Sum256([]byte(text)))
		return d.Error + strings.Join(d.Restart, " "), d.Applied
	}
	conga := leafFile + "scheme: conga\n"
	if refused, applied := reload(conga); applied || !strings.Contains(refused, "somebody else") {
		t.Errorf("another file: %s", refused)
	}
	for _, text := range []string{"ring_size: 512\n", "shceme: conga\n"} {
		r.write(t, leafFile+text)
		if refused, applied := reload(leafFile + text); applied || refused == "" || r.result.Load() != nil || len(p.calls) > 0 {
			t.Errorf("%q: %q, %v, calls %v", text, refused, applied, p.calls)
		}
	}
	r.write(t, conga)
	if refused, applied := reload(conga); refused != "" || !applied || p.scheme != "conga" {
		t.Errorf("%q, %v, scheme %s", refused, applied, p.scheme)
	}
	if refused, applied := reload(conga); refused != "" || applied {
		t.Errorf("again: %q, %v", refused, applied)
	}
	cancel()
	<-done
	wait, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if d := r.Reload(wait, sha256.Sum256(nil)); !strings.Contains(d.Error, "did not come to it") {
		t.Errorf("without a daemon: %+v", d)
	}
}

// TestReloadTakesWhatItChecked: a text that somebody writes between the look at the file's
// sum and the reload is not put in force in passing.
func TestReloadTakesWhatItChecked(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	conga := leafFile + "scheme: conga\n"
	r.write(t, conga)
	load := r.kind.load
	r.kind.load = func(file string, text []byte, interfaces []string) (*node, error) {
		r.write(t, leafFile+"scheme: letflow\n")
		return load(file, text, interfaces)
	}
	if d := r.reloadIf(t.Context(), sha256.Sum256([]byte(conga))); d.Error != "" || !d.Applied || p.scheme != "conga" {
		t.Errorf("%+v, scheme %s", d, p.scheme)
	}
}
