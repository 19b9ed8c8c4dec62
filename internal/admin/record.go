package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/loomfabric/loom/internal/httpd"
)

// serveRecord answers with a flight record (package record).
func (o *Options) serveRecord(w http.ResponseWriter, _ *http.Request) {
	if o.Record == nil {
		httpd.WriteJSON(w, http.StatusNotFound, Failure{"the node keeps no flight record: its file has record.off"})
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	if err := o.Record(w); err != nil { // the gate keeps the answer: this is memory
		panic(fmt.Sprintf("write a flight record into memory: %v", err))
	}
}

// Record writes the daemon's flight record to w.
func (c *Client) Record(ctx context.Context, w io.Writer) error {
	b, err := c.Get(ctx, "record", url.Values{})
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}
