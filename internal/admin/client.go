package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/loomfabric/loom/internal/httpd"
)

const (
	clientTimeout = httpd.AnswerTimeout + 5*time.Second
	maxAnswer     = 1 << 30
)

// Client asks one daemon: behind a Unix socket on this machine, or behind an https
// URL on another. It may be used by several goroutines.
type Client struct {
	Socket string      // path; "": URL says where the daemon is
	URL    string      // https://HOST:PORT
	TLS    *tls.Config // for URL
}

// unixScheme begins the address of a Unix socket, as in admin.listen.
const unixScheme = "unix:"

// NewClient returns a client for an address: unix:/PATH, a path, or https://HOST:PORT.
func NewClient(address string, config *tls.Config) (*Client, error) {
	if path, ok := strings.CutPrefix(address, unixScheme); ok || strings.HasPrefix(address, "/") {
		if path == "" {
			return nil, fmt.Errorf("address %q names no socket: write unix:/PATH", address)
		}
		return &Client{Socket: path}, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("address %q: write unix:/PATH or https://HOST:PORT", address)
	}
	return &Client{URL: "https://" + u.Host, TLS: config}, nil
}

// String returns where the daemon is.
func (c *Client) String() string {
	if c.Socket != "" {
		return c.Socket
	}
	return c.URL
}

// Error is a daemon's answer that it has no other.
type Error struct {
	Status int // of HTTP
	Text   string

	otherRole bool
}

// Error returns what the daemon said.
func (e *Error) Error() string { return e.Text }

// ErrOtherRole is the error for a question that only a node of the other role can
// answer.
var ErrOtherRole = errors.New("the node has another role")

// Is reports whether the daemon's role was the reason.
func (e *Error) Is(target error) bool {
	return target == ErrOtherRole && e.otherRole
}

// Get returns the answer to /v1/what, as JSON. An answer that is a [Failure]
// is an [Error], and so is a daemon that does not answer; the error says what to
// do.
func (c *Client) Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error) {
	return c.call(ctx, http.MethodGet, what, q, nil)
}

// Post has the daemon do what /v1/what stands for. Errors are as in [Client.Get].
func (c *Client) Post(ctx context.Context, what string, q url.Values, body []byte) (json.RawMessage, error) {
	return c.call(ctx, http.MethodPost, what, q, body)
}

func (c *Client) call(ctx context.Context, method, what string, q url.Values, body []byte) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	answer, err := c.Open(ctx, method, what, q, body)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	b, err := io.ReadAll(io.LimitReader(answer, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer from %v: %w", c, err)
	}
	return b, nil
}

// Open returns the answer to a request as it comes, for what is not JSON or has no
// end. The caller closes it. Errors are as in [Client.Get].
func (c *Client) Open(ctx context.Context, method, what string, q url.Values, body []byte) (io.ReadCloser, error) {
	return c.open(ctx, method, what, q, body, func(net.Conn) {})
}

// open is Open, and hands out the connection to a Unix socket.
func (c *Client) open(ctx context.Context, method, what string, q url.Values, body []byte, dialed func(net.Conn)) (io.ReadCloser, error) {
	base, transport := c.URL, &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.TLS}
	if c.Socket != "" {
		base = "http://daemon"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
			if err == nil {
				dialed(conn)
			}
			return conn, err
		}
	}
	where := base + "/v1/" + what
	if len(q) > 0 {
		where += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer from %v: %w", c, err)
	}
	var f otherRole
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		return nil, fmt.Errorf("%v answers %s: is it the admin socket (admin.listen) of leafd or spined?", c, resp.Status)
	}
	return nil, &Error{resp.StatusCode, f.Error, f.OtherRole}
}

// explain says what to do when nobody answers.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no socket %v: is the daemon running, and is this its admin.listen?", c)
	case errors.Is(err, syscall.ECONNREFUSED) && c.Socket != "":
		return fmt.Errorf("nobody listens at %v: the daemon that made it is gone; start it again", c)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to connect to %v: it is for the daemon's user and group (loom, if systemd runs it); join the group, or use sudo", c)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the URL means nothing to anybody
	}
	return fmt.Errorf("ask the daemon at %v: %w", c, err)
}
