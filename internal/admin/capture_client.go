package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/loomfabric/loom/internal/capture"
)

// CaptureStream is a capture as a client sees it.
type CaptureStream struct {
	*capture.Reader
	body io.Closer
	conn *net.UnixConn // nil: the daemon is on another machine
}

// Enough asks the daemon to end the capture. What it has copied until then still comes, and
// at last a [capture.End]. It fails with a daemon on another machine: there Close is all.
func (s *CaptureStream) Enough() error {
	if s.conn == nil {
		return errors.ErrUnsupported
	}
	return s.conn.CloseWrite()
}

// Close ends the capture.
func (s *CaptureStream) Close() error { return s.body.Close() }

// Capture starts a capture. It ends when ctx does. Errors are as in [Client.Get].
func (c *Client) Capture(ctx context.Context, q url.Values) (*CaptureStream, error) {
	s := &CaptureStream{}
	body, err := c.open(ctx, http.MethodGet, "capture", q, nil, func(conn net.Conn) { s.conn, _ = conn.(*net.UnixConn) })
	if err != nil {
		return nil, err
	}
	s.body = body
	if s.Reader, err = capture.NewReader(body); err != nil {
		return nil, errors.Join(err, body.Close())
	}
	return s, nil
}
