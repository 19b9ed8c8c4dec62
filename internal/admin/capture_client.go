package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	conn *net.UnixConn
}

// Enough asks the daemon to end the capture. What it has copied until then still comes, and
// at last a [capture.End].
func (s *CaptureStream) Enough() error { return s.conn.CloseWrite() }

// Close ends the capture.
func (s *CaptureStream) Close() error { return errors.Join(s.body.Close(), s.conn.Close()) }

// Capture starts a capture. It ends when ctx does.
func (c *Client) Capture(ctx context.Context, q url.Values) (*CaptureStream, error) {
	var conn *net.UnixConn
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		x, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
		if err == nil {
			conn = x.(*net.UnixConn)
		}
		return x, err
	}}}
	u := url.URL{Scheme: "http", Host: "daemon", Path: "/v1/capture", RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what there is of it
		return nil, c.failure(resp, body)
	}
	r, err := capture.NewReader(resp.Body)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return &CaptureStream{r, resp.Body, conn}, nil
}

// failure returns the error that an answer is.
func (c *Client) failure(resp *http.Response, body []byte) error {
	var f Failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" {
		return fmt.Errorf("%s answers %s: is it the admin socket (admin.listen) of leafd or spined?", c.Socket, resp.Status)
	}
	return errors.New(f.Error)
}
