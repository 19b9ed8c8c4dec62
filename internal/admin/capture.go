package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/bpf"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/overlay"
)

// Bounds on a capture, beside those of package dataplane.
const (
	// captureLook is how often the workers' rings are emptied. They do not say when there
	// is something in them: that would cost a system call.
	captureLook = 2 * time.Millisecond
	// captureBeat is how often a client hears how its capture goes, by which a client that
	// is gone is found out.
	captureBeat = time.Second
	// captureStall is how long a client may read nothing.
	captureStall = httpd.AnswerTimeout
	captureChunk = 256 << 10

	defaultCaptureTime  = time.Hour
	maxCaptureTime      = 24 * time.Hour
	defaultCaptureBytes = 1 << 30
	maxCaptureBytes     = 1 << 40
)

// flowOfCapture are the parameters of /v1/capture that name a flow.
var flowOfCapture = []string{"src", "dst", "proto", "sport", "dport"}

// captureParameters are those of /v1/capture.
var captureParameters = append([]string{
	"port", "point", "reason", "scheme", "flowlet", "filter", "outer", "snaplen", "slow", "frames", "bytes", "time",
}, flowOfCapture...)

// Capture copies frames as a [dataplane.Capture] does.
type Capture interface {
	Each(do func(*capture.Frame)) int
	Port(number uint16) capture.Port
	Ports() []capture.Port
	Fast() []string
	Stats() capture.Stats
	Close()
}

// captureRequest is what a client wants.
type captureRequest struct {
	dataplane.CaptureConfig
	frames, bytes uint64 // after which the capture ends; frames 0: any number
	time          time.Duration
}

// serveCapture streams what a capture copies (package capture) until the client has had
// enough or is gone. A client that closes its half of the connection gets the end of the
// stream, too.
func (o *Options) serveCapture(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	var req *captureRequest
	if err == nil {
		req, err = parseCapture(q)
	}
	var c Capture
	if err == nil {
		c, err = o.Capture(req.CaptureConfig)
	}
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, dataplane.ErrCaptures) {
			status = http.StatusServiceUnavailable
		}
		httpd.WriteJSON(w, status, Failure{err.Error()})
		return
	}
	defer c.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's bound is for the request; where there is none, all is well
	s := &captureStream{
		request: req, capture: c, control: control, stall: cmp.Or(o.stall, captureStall), numbers: make(map[uint16]string),
		out: capture.NewWriter(w, &capture.Start{Node: o.Name, Role: o.Role, Version: o.Version, Fast: c.Fast()}),
	}
	s.run(r.Context())
}

// captureStream is a capture on its way to a client.
type captureStream struct {
	request *captureRequest
	capture Capture
	control *http.ResponseController
	out     *capture.Writer
	numbers map[uint16]string // ports that the client has heard of
	frames  uint64
	bytes   uint64
	stall   time.Duration // how long the client may read nothing
}

// run is the life of a stream.
func (s *captureStream) run(ctx context.Context) {
	enough := time.NewTimer(s.request.time)
	defer enough.Stop()
	look, beat := time.NewTicker(captureLook), time.NewTicker(captureBeat)
	defer look.Stop()
	defer beat.Stop()
	for _, p := range s.capture.Ports() {
		s.numbers[p.Number] = p.Name
		s.out.Port(&p)
	}
	if s.flush() != nil {
		return
	}
	why := ""
	for why == "" {
		select {
		case <-ctx.Done():
			why = "the client has ended it, or the daemon stops"
		case <-enough.C:
			why = fmt.Sprintf("%v are over", s.request.time)
		case <-beat.C:
			st := s.capture.Stats()
			s.out.Stats(&st)
			if s.flush() != nil {
				return
			}
			continue
		case <-look.C:
		}
		if why != "" {
			s.capture.Close() // what was copied until then is the rest
		}
		if end := s.copy(); end != "" {
			why = end
		}
		if s.flush() != nil {
			return
		}
	}
	s.capture.Close()
	s.out.End(&capture.End{Why: why, Stats: s.capture.Stats()})
	_ = s.flush() // the client is gone: nobody to tell
}

// copy writes what the workers have copied. It says why the capture is over, if it is.
func (s *captureStream) copy() (over string) {
	for over == "" {
		n := s.capture.Each(func(f *capture.Frame) {
			if over != "" {
				return
			}
			if p := s.capture.Port(f.Port); s.numbers[f.Port] != p.Name {
				s.numbers[f.Port] = p.Name
				s.out.Port(&p)
			}
			s.out.Frame(f)
			s.frames++
			s.bytes += uint64(len(f.Data))
			switch {
			case s.frames == s.request.frames:
				over = fmt.Sprintf("%d frames were captured", s.frames)
			case s.bytes >= s.request.bytes:
				over = fmt.Sprintf("%d bytes were captured", s.bytes)
			case s.out.Buffered() >= captureChunk && s.flush() != nil:
				over = "the client is gone"
			}
		})
		if n == 0 {
			break
		}
	}
	return over
}

// flush sends what is there. A client that does not take it for a while is gone.
func (s *captureStream) flush() error {
	if s.out.Buffered() == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.stall))
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.control.Flush()
}

// parseCapture reads what a client wants.
func parseCapture(q url.Values) (*captureRequest, error) {
	if err := checkParameters("capture", captureParameters, q); err != nil {
		return nil, err
	}
	r := &captureRequest{frames: 0, bytes: defaultCaptureBytes, time: defaultCaptureTime}
	var errs []error
	number := func(name string, to *uint64, least, top uint64) {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || n < least || n > top {
				errs = append(errs, fmt.Errorf("%s %q: use %d to %d", name, text, least, top))
			}
			*to = n
		}
	}
	flag := func(name string, to *bool) {
		if text := q.Get(name); text != "" {
			on, err := strconv.ParseBool(text)
			if err != nil {
				err = fmt.Errorf("%s %q: use true or false", name, text)
			}
			*to = on
			errs = append(errs, err)
		}
	}
	snap := uint64(0)
	number("frames", &r.frames, 1, 1<<62)
	number("bytes", &r.bytes, 1, maxCaptureBytes)
	number("snaplen", &snap, 1, dataplane.MaxSnapLen)
	r.SnapLen = int(snap)
	flag("outer", &r.Outer)
	flag("slow", &r.Slow)
	if text := q.Get("time"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > maxCaptureTime {
			errs = append(errs, fmt.Errorf("time %q: use up to %v, as 10s", text, maxCaptureTime))
		}
		r.time = d
	}
	r.Ports, r.Schemes = words(q, "port"), words(q, "scheme")
	if text := q.Get("point"); text != "" {
		errs = append(errs, r.Points.UnmarshalText([]byte(text)))
	}
	if text := q.Get("flowlet"); text != "" {
		errs = append(errs, r.Flowlets.UnmarshalText([]byte(text)))
	}
	for _, name := range words(q, "reason") {
		reason, err := parseReason(name)
		r.Reasons = append(r.Reasons, reason)
		errs = append(errs, err)
	}
	var err error
	r.Filter, err = parseFilter(q.Get("filter"))
	errs = append(errs, err)
	if slices.ContainsFunc(flowOfCapture, q.Has) {
		r.Flow, err = parseEnds(q)
		errs = append(errs, err)
	}
	return r, errors.Join(errs...)
}

// words returns the words of a parameter, which commas separate.
func words(q url.Values, name string) []string {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func parseReason(name string) (drop.Reason, error) {
	for r := drop.None + 1; r < drop.NumReasons; r++ {
		if r.String() == name {
			return r, nil
		}
	}
	return drop.None, fmt.Errorf("reason %q does not exist: the metric loom_drops_total has those that do", name)
}

// parseFilter reads a program as `tcpdump -ddd` prints it: a number of instructions, and
// four numbers of each.
func parseFilter(text string) (program []bpf.RawInstruction, err error) {
	if text == "" {
		return nil, nil
	}
	fields := strings.Fields(strings.ReplaceAll(text, ",", " "))
	numbers := make([]uint64, len(fields))
	for i, f := range fields {
		bits := [...]int{16, 8, 8, 32}[(i+3)%4] // of op, jt, jf and k; the first number counts
		if numbers[i], err = strconv.ParseUint(f, 10, bits); err != nil {
			return nil, fmt.Errorf("filter: %q is no number of a program of classic BPF, as tcpdump -ddd prints it", f)
		}
	}
	if len(numbers) == 0 || uint64(len(numbers)) != 1+4*numbers[0] {
		return nil, errors.New("filter: it is no program of classic BPF, as tcpdump -ddd prints it")
	}
	for i := 1; i < len(numbers); i += 4 {
		program = append(program, bpf.RawInstruction{Op: uint16(numbers[i]), Jt: uint8(numbers[i+1]), Jf: uint8(numbers[i+2]), K: uint32(numbers[i+3])})
	}
	return program, nil
}

// parseEnds reads a flow of which ports and protocol may be left out: then any will do.
func parseEnds(q url.Values) (*dataplane.Flow, error) {
	f, errs := parseAddresses(q)
	if f.Src.IsValid() != f.Dst.IsValid() && len(errs) == 0 {
		errs = append(errs, errors.New("one end of the flow is an IP address and the other is not: give two of a kind"))
	}
	if f.Src.IsValid() && f.Dst.IsValid() && f.Src.Is4() != f.Dst.Is4() {
		errs = append(errs, fmt.Errorf("%v and %v are of two IP versions", f.Src, f.Dst))
	}
	if text := q.Get("proto"); text != "" {
		var ok bool
		if f.Proto, ok = overlay.ParseProtocol(text); !ok || !f.Src.IsValid() {
			errs = append(errs, fmt.Errorf("proto %q: use tcp, udp, sctp, icmp, icmpv6 or a number, 1 to 255, with IP addresses", text))
		}
	}
	for name, to := range map[string]*uint16{"sport": &f.SrcPort, "dport": &f.DstPort} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil || f.Proto == 0 {
				errs = append(errs, fmt.Errorf("%s %q: use 0 to 65535, with proto", name, text))
			}
			*to = uint16(n)
		}
	}
	return f, errors.Join(errs...)
}
