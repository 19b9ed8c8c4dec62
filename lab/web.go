package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

const webWait = 10 * time.Second

// webArguments are those by which the lab's own loomweb is known from others that show it.
func (l *Lab) webArguments() []string {
	return []string{"--lab", l.File.Name, "--title", l.File.Name, "--listen"}
}

// errNoDaemons is the error for a picture of a lab whose nodes nobody can ask.
var errNoDaemons = errors.New("the lab has no leafd and no spined to ask (dataplane: kernel): there is nothing to show")

// CheckWeb reports whether loomweb can be started, before the lab is built.
func (l *Lab) CheckWeb() (err error) {
	defer l.name(&err)
	if len(l.withDaemon()) == 0 {
		return errNoDaemons
	}
	_, err = l.binary("loomweb")
	return err
}

// StartWeb starts loomweb for a lab that is up, and returns where the page is. It goes
// with the lab. It gets no privileges, if its file can be had without: it runs as who
// called sudo, or as nobody.
func (l *Lab) StartWeb(ctx context.Context, address string) (url string, err error) {
	defer l.name(&err)
	if err := l.CheckWeb(); err != nil {
		return "", err
	}
	path, err := l.binary("loomweb")
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(l.path("loomweb.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer log.Close() // the child has its own descriptor
	start := func(who *syscall.Credential) (*exec.Cmd, error) {
		cmd := exec.Command(path, append(l.webArguments(), address)...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: who} // it outlives the terminal
		return cmd, cmd.Start()
	}
	// The sockets are root's and its group's.
	cmd, err := start(&syscall.Credential{Uid: caller(), Gid: 0})
	if errors.Is(err, os.ErrPermission) {
		cmd, err = start(nil)
	}
	if err != nil {
		return "", fmt.Errorf("start loomweb: %w", err)
	}
	c := &child{name: "the lab's machine", log: log.Name(), cmd: cmd, done: make(chan struct{})}
	l.children = append(l.children, c)
	go func() {
		_ = cmd.Wait() // the exit status is in the log
		close(c.done)
	}()
	return "http://" + address + "/", l.awaitWeb(ctx, c, address)
}

// awaitWeb waits until loomweb answers.
func (l *Lab) awaitWeb(ctx context.Context, c *child, address string) error {
	ctx, cancel := context.WithTimeout(ctx, webWait)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}}
	for {
		if c.ended() {
			return c.death()
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
			if !c.ended() { // else somebody else has the port
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("loomweb does not answer at %s within %v: %s", address, webWait, lastLog(c.log))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// nobody is Debian's user of that name.
const nobody = 65534

// caller returns who called sudo; nobody, if nobody did.
func caller() uint32 {
	if id, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil && id != 0 {
		return uint32(id)
	}
	return nobody
}
