package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"github.com/loomfabric/loom/config/fabric"
)

// hostAgent is the controller's end of one agent. It has one request at a time.
type hostAgent struct {
	host  fabric.Host
	child *child
	in    io.WriteCloser
	enc   *json.Encoder
	dec   *json.Decoder
}

func (a *hostAgent) call(req *request) (*reply, error) {
	var rep reply
	err := a.enc.Encode(req)
	if err == nil {
		err = a.dec.Decode(&rep)
	}
	if err != nil {
		return nil, fmt.Errorf("agent of %s does not answer: %w", a.host.Name, err)
	}
	if rep.Err != "" {
		return nil, fmt.Errorf("agent of %s: %s", a.host.Name, rep.Err)
	}
	return &rep, nil
}

// startAgents starts one agent in every host. stop ends them.
func (l *Lab) startAgents() (agents []*hostAgent, stop func(), err error) {
	stop = func() {
		for _, a := range agents {
			a.in.Close() // the agent ends at the end of its input
		}
		for _, a := range agents {
			<-a.child.done
			l.children = slices.DeleteFunc(l.children, func(c *child) bool { return c == a.child })
		}
	}
	for _, h := range l.Topo.Hosts {
		a, err := l.startAgent(h)
		if err != nil {
			stop()
			return nil, nil, err
		}
		agents = append(agents, a)
	}
	return agents, stop, nil
}

func (l *Lab) startAgent(h fabric.Host) (*hostAgent, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(l.path(h.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, "agent", l.File.TCP)
	cmd.Stderr = log
	// One thread runs Go code: dozens of agents share a machine with what they
	// measure.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the controller only
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c, err := l.startIn(h.Name, cmd)
	if err != nil {
		return nil, err
	}
	return &hostAgent{host: h, child: c, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}, nil
}

// each calls agents at the same time with the request that build makes for each, if
// any. It passes the replies to use in the agents' order. When ctx ends, it kills
// the agents, so that no call hangs.
func each(ctx context.Context, agents []*hostAgent, build func(*hostAgent) *request, use func(*hostAgent, *reply) error) error {
	stop := context.AfterFunc(ctx, func() {
		for _, a := range agents {
			_ = a.child.cmd.Process.Kill() // ErrProcessDone: nothing to kill
		}
	})
	defer stop()
	replies, errs := make([]*reply, len(agents)), make([]error, len(agents))
	var wg sync.WaitGroup
	for i, a := range agents {
		if req := build(a); req != nil {
			wg.Go(func() { replies[i], errs[i] = a.call(req) })
		}
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, a := range agents {
		if replies[i] == nil || use == nil {
			continue
		}
		if err := use(a, replies[i]); err != nil {
			return err
		}
	}
	return nil
}
