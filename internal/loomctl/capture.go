package loomctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/capture"
)

// captureFlags are those of loomctl capture.
type captureFlags struct {
	write                   string
	ports, points, reasons  []string
	schemes, flowlets, flow []string
	outer, slow             bool
	snap                    int
	count, bytes            uint64
	duration                time.Duration
	filter                  string
	compiler                string // of filters
}

func captureCommand(o *options) *cobra.Command {
	f := &captureFlags{compiler: "tcpdump"}
	c := &cobra.Command{
		Use: "capture [FILTER]", Short: "Frames as they come, leave and are dropped, with what was decided about them",
		Long: "capture shows the frames that the daemon's workers forward, which tcpdump does not see, or\n" +
			"writes them into a pcapng file (-w) with what was decided in the packets' comments. FILTER\n" +
			"is one of tcpdump's, which has to be installed here: it is shown the tenant's frame, inside\n" +
			"and outside of tunnels, or with --outer the frame as it is. Ctrl-C ends the capture.",
		Example: "  loomctl capture -w - | wireshark -k -i -\n" +
			"  loomctl capture --flow 10.0.0.1,10.0.0.2,tcp,40000,5201 --flowlet new,moved\n" +
			"  loomctl capture --drop queue_full -w drops.pcapng\n" +
			"  loomctl capture --port up0 --point out tcp port 5201",
		RunE: func(c *cobra.Command, args []string) error {
			f.filter = strings.Join(args, " ")
			return f.run(c, o)
		},
	}
	c.Flags().StringVarP(&f.write, "write", "w", "", "write pcapng to this file; - is standard output")
	c.Flags().StringSliceVar(&f.ports, "port", nil, "frames of these ports (default: of all)")
	c.Flags().StringSliceVar(&f.points, "point", nil, "frames as they come (in), leave (out), are dropped (drop); default: all")
	c.Flags().StringSliceVar(&f.reasons, "drop", nil, "frames dropped for these reasons, as the metric loom_drops_total names them; any: for whatever reason")
	c.Flags().StringSliceVar(&f.schemes, "scheme", nil, "frames whose paths these schemes chose")
	c.Flags().StringSliceVar(&f.flowlets, "flowlet", nil, "frames that start a flowlet (new, kept, moved) or continue one (underway)")
	c.Flags().StringSliceVar(&f.flow, "flow", nil, "frames of a flow, both ways: SRC,DST[,PROTO[,SPORT,DPORT]], IP or MAC addresses, or with --lab hosts' names")
	c.Flags().BoolVar(&f.outer, "outer", false, "show FILTER frames as they are, tunnels included")
	c.Flags().BoolVar(&f.slow, "slow", false, "have the workers forward what XDP forwards by itself (fast_path), so that it is seen: that costs throughput")
	c.Flags().IntVarP(&f.snap, "snaplen", "s", 0, "so many bytes of each frame (default: all)")
	c.Flags().Uint64VarP(&f.count, "count", "c", 0, "end after so many frames")
	c.Flags().Uint64Var(&f.bytes, "bytes", 0, "end after so many bytes of frames (default: 1 GiB)")
	c.Flags().DurationVar(&f.duration, "time", 0, "end after this time (default: an hour)")
	return c
}

// query says to the daemon what the flags say.
func (f *captureFlags) query() (url.Values, error) {
	q := url.Values{}
	list := func(name string, words []string) {
		if len(words) > 0 {
			q.Set(name, strings.Join(words, ","))
		}
	}
	list("port", f.ports)
	list("point", f.points)
	list("scheme", f.schemes)
	list("flowlet", f.flowlets)
	if len(f.reasons) == 1 && f.reasons[0] == "any" {
		if len(f.points) > 0 {
			return nil, errors.New("--drop any are all frames that are dropped, at the point drop: leave out --point")
		}
		q.Set("point", "drop")
	} else {
		list("reason", f.reasons)
	}
	if n := len(f.flow); n != 0 && n != 2 && n != 3 && n != 5 {
		return nil, fmt.Errorf("flow %q: use SRC,DST or SRC,DST,PROTO or SRC,DST,PROTO,SPORT,DPORT", strings.Join(f.flow, ","))
	}
	for i, name := range []string{"src", "dst", "proto", "sport", "dport"} {
		if i < len(f.flow) {
			q.Set(name, f.flow[i])
		}
	}
	if f.outer {
		q.Set("outer", "true")
	}
	if f.slow {
		q.Set("slow", "true")
	}
	for name, n := range map[string]uint64{"snaplen": uint64(max(f.snap, 0)), "frames": f.count, "bytes": f.bytes} {
		if n != 0 {
			q.Set(name, strconv.FormatUint(n, 10))
		}
	}
	if f.duration != 0 {
		q.Set("time", f.duration.String())
	}
	if f.filter != "" {
		program, err := compileFilter(f.compiler, f.filter)
		if err != nil {
			return nil, err
		}
		q.Set("filter", program)
	}
	return q, nil
}

// compileFilter has tcpdump compile a filter for Ethernet.
func compileFilter(program, filter string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("filter %q: tcpdump compiles filters, and is not installed here: install it (apt-get install tcpdump), or select by --flow, --port and the like", filter)
	}
	var out, complaint bytes.Buffer
	cmd := exec.Command(path, "-ddd", "-y", "EN10MB", "-s", "262144", "--", filter)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("filter %q: %s", filter, strings.TrimPrefix(strings.TrimSpace(complaint.String()), "tcpdump: "))
	}
	return strings.Join(strings.Fields(out.String()), " "), nil
}

// sink takes what is captured.
type sink interface {
	port(p *capture.Port) error
	frame(f *capture.Frame) error
	// idle is called when nothing more is there at once.
	idle() error
	end(e *capture.End) error
}

func (f *captureFlags) run(c *cobra.Command, o *options) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	if _, err := o.nameHosts(q); err != nil {
		return err
	}
	if o.output == asYAML {
		return errors.New("frames are no YAML: use -o json, a line each, or -w FILE")
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	client, err := o.one()
	if err != nil {
		return err
	}
	s, err := client.Capture(ctx, q)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := f.open(c, o, s.Start())
	if err != nil {
		return err
	}
	if fast := s.Start().Fast; len(fast) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "loomctl: XDP forwards frames of %s by itself (fast_path), and the capture does not see those: --slow has the workers forward them meanwhile\n", strings.Join(fast, ", "))
	}
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	go func() {
		for first := true; ; first = false {
			select {
			case <-ctx.Done():
				return
			case <-interrupts:
			}
			if !first || s.Enough() != nil {
				cancel()
			}
		}
	}()
	return f.copy(c, s, out)
}

// open returns where captured frames go.
func (f *captureFlags) open(c *cobra.Command, o *options, start *capture.Start) (sink, error) {
	switch {
	case f.write == "-":
		return &pcapSink{w: c.OutOrStdout(), start: start, filter: f.filter}, nil
	case f.write != "":
		file, err := createPrivate(f.write)
		if err != nil {
			return nil, err
		}
		return &pcapSink{w: file, file: file, start: start, filter: f.filter}, nil
	case o.output == "json":
		return &jsonSink{out: json.NewEncoder(c.OutOrStdout()), ports: map[uint16]string{}}, nil
	}
	return &textSink{w: c.OutOrStdout(), ports: map[uint16]string{}}, nil
}

// createPrivate makes a file for what tenants send, or empties one. Nobody but its owner may
// read it then, whoever could before.
func createPrivate(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() { // and no device or pipe, which others use
		err = f.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// copy gives out what comes, until the end.
func (f *captureFlags) copy(c *cobra.Command, s *admin.CaptureStream, out sink) error {
	for {
		v, err := s.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the capture was cut off: the daemon has stopped, or dropped a client that read nothing for a while")
		}
		if err != nil {
			return errors.Join(err, out.end(&capture.End{}))
		}
		switch x := v.(type) {
		case *capture.Port:
			err = out.port(x)
		case *capture.Frame:
			err = out.frame(x)
		case *capture.End:
			if err := out.end(x); err != nil {
				return err
			}
			n := x.Sum()
			fmt.Fprintf(c.ErrOrStderr(), "%d frames captured, %d lost for want of room, %d not looked at as a worker was behind: %s\n", n.Captured, n.Lost, n.Unseen, x.Why)
			return nil
		}
		if err == nil && !s.Buffered() {
			err = out.idle()
		}
		if errors.Is(err, syscall.EPIPE) { // whoever looked has looked enough
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// one returns the only daemon that the flags mean, for commands that ask no more.
func (o *options) one() (*admin.Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	nodes, _, err := o.choose()
	if err != nil {
		return nil, err
	}
	if len(nodes) != 1 || o.watch > 0 {
		return nil, errors.New("this command asks one node, once: give one --node, and leave out --watch")
	}
	return nodes[0].client, nil
}
