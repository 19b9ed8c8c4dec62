package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/peercred"
)

// Configurer is what has a daemon's configuration. Any goroutine may call it.
type Configurer interface {
	// Diff says what a reload of the daemon's file would do now.
	Diff() ConfigDiff
	// Check says the same of another text. Its name is for errors.
	Check(name string, text []byte) ConfigDiff
	// Reload has the daemon read its file, if the file's text has this SHA-256.
	Reload(ctx context.Context, sum [sha256.Size]byte) ConfigDiff
}

// LogLevel is the answer of /v1/log.
type LogLevel struct {
	Level string `json:"level"` // debug, info, warn or error
}

// Events is the answer of /v1/events.
type Events struct {
	Events []events.Event `json:"events"` // oldest first
	Last   uint64         `json:"last"`   // what to give as since the next time
	Lost   uint64         `json:"lost"`   // events since then that are not kept any more, or above the limit
}

// action is something that a node does for somebody who may ask for it: root, or the
// daemon's own user, over the Unix socket. The error is a mistake of the caller's.
type action struct {
	path       string
	parameters []string
	do         func(ctx context.Context, o *Options, q url.Values, body []byte) (any, error)
}

// maxBody bounds what is sent to an action: a configuration.
const maxBody = 4 << 20

var actions = []action{
	{"config/check", []string{"name"}, func(_ context.Context, o *Options, q url.Values, body []byte) (any, error) {
		return o.Config.Check(q.Get("name"), body), nil
	}},
	{"config/reload", []string{"sha256"}, func(ctx context.Context, o *Options, q url.Values, _ []byte) (any, error) {
		sum, err := hex.DecodeString(q.Get("sha256"))
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("sha256 %q: give the sum of the file that is to be put in force, in hexadecimal", q.Get("sha256"))
		}
		return o.Config.Reload(ctx, [sha256.Size]byte(sum)), nil
	}},
	{"log", []string{"level"}, func(_ context.Context, o *Options, q url.Values, _ []byte) (any, error) {
		var level slog.Level
		text := q.Get("level")
		if err := level.UnmarshalText([]byte(text)); err != nil || strings.ContainsAny(text, "+-") {
			return nil, fmt.Errorf("level %q: use debug, info, warn or error", text)
		}
		o.Level.Set(level)
		o.Log.Log(context.Background(), max(level, slog.LevelInfo), "log level changed over the admin API", "level", levelName(level))
		return LogLevel{levelName(level)}, nil
	}},
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// serve checks who asks, does it, and answers.
func (a *action) serve(o *Options, w http.ResponseWriter, r *http.Request) (status int, answer any) {
	cred := httpd.PeerOf(r)
	if cred == nil {
		return http.StatusForbidden, Failure{"changes are made over the daemon's Unix socket only: use loomctl on the node"}
	}
	if !peercred.Trusted(cred) {
		return http.StatusForbidden, Failure{fmt.Sprintf("user %d may look, and change nothing: only root and the daemon's user (%d) may; use sudo", cred.Uid, os.Geteuid())}
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = checkParameters(a.path, a.parameters, q)
	}
	if err != nil {
		return http.StatusBadRequest, Failure{err.Error()}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, Failure{fmt.Sprintf("a configuration has at most %d bytes", tooLarge.Limit)}
	} else if err != nil {
		return http.StatusBadRequest, Failure{"read the request: " + err.Error()}
	}
	if answer, err = a.do(r.Context(), o, q, body); err != nil {
		return http.StatusBadRequest, Failure{err.Error()}
	}
	return http.StatusOK, answer
}

// findAction returns the action of a path; nil: it has none.
func findAction(path string) *action {
	for i := range actions {
		if actions[i].path == path {
			return &actions[i]
		}
	}
	return nil
}
