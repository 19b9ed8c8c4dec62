package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/loomfabric/loom/internal/httpd"
)

const (
	clientTimeout = httpd.AnswerTimeout + 5*time.Second
	maxAnswer     = 1 << 30
)

// Client asks the daemon behind a socket.
type Client struct {
	Socket string // path
}

// Get returns the answer to /v1/what, as JSON. An answer that is a [Failure]
// is an error, and so is a daemon that does not answer; the error says what to
// do.
func (c *Client) Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error) {
	client := &http.Client{Timeout: clientTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
		},
	}}
	u := url.URL{Scheme: "http", Host: "daemon", Path: "/v1/" + what, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer from %s: %w", c.Socket, err)
	}
	if resp.StatusCode == http.StatusOK {
		return body, nil
	}
	return nil, c.failure(resp, body)
}

// explain says what to do when nobody answers.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no socket %s: is the daemon running, and is this its admin.listen?", c.Socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s: the daemon that made it is gone; start it again", c.Socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to connect to %s: it is for the daemon's user and group (loom, if systemd runs it); join the group, or use sudo", c.Socket)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the URL means nothing to anybody
	}
	return fmt.Errorf("ask the daemon at %s: %w", c.Socket, err)
}
