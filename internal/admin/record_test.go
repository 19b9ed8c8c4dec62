package admin

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
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
	if code, _ := ask(t, NewServer(o), "POST", "/v1/record"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	o.Record = nil
	var none *Error
	if err := writable(t, o).Record(t.Context(), &b); !errors.As(err, &none) || none.Status != http.StatusNotFound {
		t.Errorf("without a recorder: %v", err)
	}
}
