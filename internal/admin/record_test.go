package admin

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/loomfabric/loom/dataplane"
)

// A flight record comes as the daemon writes it; one that keeps none says so.
func TestRecord(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler), Record: func(w io.Writer) error {
		_, err := io.WriteString(w, "record")
		return err
	}}
	var b bytes.Buffer
	if err := writable(t, o).Record(t.Context(), &b); err != nil || b.String() != "record" {
		t.Errorf("%q, %v", &b, err)
	}
	o.Record = nil
	var none *Error
	if err := writable(t, o).Record(t.Context(), &b); !errors.As(err, &none) || none.Status != http.StatusNotFound {
		t.Errorf("without a recorder: %v", err)
	}
}

// What tenants send is not for other machines, and nothing is changed by it.
func TestFramesAreForThisMachine(t *testing.T) {
	o := Options{
		Record:  func(io.Writer) error { return errors.New("it is asked for a record") },
		Capture: func(dataplane.CaptureConfig) (Capture, error) { return nil, errors.New("it is asked for a capture") },
	}
	for _, path := range []string{"record", "capture"} {
		if code, body := ask(t, NewServer(o), "GET", "/v1/"+path); code != http.StatusForbidden || !strings.Contains(body, "use the admin socket") {
			t.Errorf("%s: %d %s", path, code, body)
		}
		var said *Error
		if _, err := writable(t, o).Post(t.Context(), path, nil, nil); !errors.As(err, &said) || said.Status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %v", path, err)
		}
	}
}
