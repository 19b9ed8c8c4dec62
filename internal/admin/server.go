package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/httpd"
)

const (
	// The numbers of entries that are listed by default, and at most.
	defaultFlowlets = 100
	defaultFDB      = 1000
	defaultEvents   = 1000
	maxLimit        = 1 << 24
)

// Node answers as a [dataplane.Node] does.
type Node interface {
	Stats() dataplane.Stats
	PortInfos() []dataplane.PortInfo
	Congestion() []dataplane.PeerState
	Paths() []dataplane.PeerPaths
	Flowlets(limit int) []dataplane.FlowletTable
	FDB(limit int) dataplane.FDBTable
	ConWeave(limit int) *dataplane.ConWeaveState
	Spray(limit int) dataplane.SprayState
	Fast() dataplane.FastState
	Explain(f *dataplane.Flow) (*dataplane.Explanation, error)
	Hosts(limit int) dataplane.HostTable
	ExplainRoute(f *dataplane.OuterFlow) (*dataplane.RouteExplanation, error)
	ExplainArrival(a *dataplane.InnerFlow) (*dataplane.ArrivalExplanation, error)
}

// Options says what is served. Its functions are called at each request, from
// several goroutines at a time.
type Options struct {
	Name    string // of the node
	Role    string // "leafd" or "spined"
	Leaf    bool
	Version string
	VTEP    netip.Addr // of a leaf
	Node    Node
	Tables  func() *dataplane.Tables      // nil result: none were published yet
	Ports   func() []dataplane.PortConfig // by PortID; those without a name are nobody's
	Record  func(io.Writer) error         // writes a flight record; nil: the node keeps none
	Capture func(dataplane.CaptureConfig) (Capture, error)
	// Parameters are what the node runs with, but for what the tables say.
	Parameters func() Parameters
	Config     Configurer
	Level      *slog.LevelVar // of the log
	Log        *slog.Logger
	Events     *events.Ring
	Gate       *httpd.Gate // what requests that ask the workers pass; nil: they are not bounded

	stall time.Duration // tests: how long the client of a capture may read nothing; 0: captureStall
}

// endpoint answers a query; the error is a mistake of the caller's.
type endpoint struct {
	path       string
	leaf       bool     // a spine has nothing to say
	atOnce     bool     // no worker is asked
	parameters []string // that it knows
	limit      int      // of entries, if the caller does not say
	answer     func(o *Options, q url.Values, limit int) (any, error)
}

var endpoints = []endpoint{
	{"status", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		reasons := dataplane.Unready(o.Ports(), o.Node.PortInfos(), o.Tables())
		return Status{o.Name, o.Role, o.Version, len(reasons) == 0, reasons}, nil
	}},
	{"config", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return o.Config.Diff(), nil
	}},
	{"events", false, true, []string{"since", "limit"}, defaultEvents, func(o *Options, q url.Values, limit int) (any, error) {
		since, err := parseSince(q)
		if err != nil {
			return nil, err
		}
		var e Events
		e.Events, e.Last, e.Lost = o.Events.Since(since, limit)
		return e, nil
	}},
	{"log", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return LogLevel{levelName(o.Level.Level())}, nil
	}},
	{"parameters", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return o.Parameters().withTables(o.Tables()), nil
	}},
	{"rings", false, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		st := o.Node.Stats()
		return rings(o.Ports(), &st), nil
	}},
	{"snapshot", false, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) { return snapshot(o), nil }},
	{"ports", false, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		st := o.Node.Stats()
		return ports(o.Ports(), &st, o.Tables()), nil
	}},
	{"fast", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		s := o.Node.Fast()
		s.Ports = orEmpty(s.Ports)
		return s, nil
	}},
	{"peers", true, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		st := o.Node.Stats()
		return peers(o.Ports(), &st, o.Tables(), o.Node.Congestion()), nil
	}},
	{"conga", true, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return Conga{orEmpty(o.Node.Congestion())}, nil
	}},
	{"paths", true, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return Paths{orEmpty(o.Node.Paths())}, nil
	}},
	{"flowlets", true, false, []string{"limit"}, defaultFlowlets, func(o *Options, _ url.Values, limit int) (any, error) {
		return Flowlets{orEmpty(o.Node.Flowlets(limit))}, nil
	}},
	{"conweave", true, false, []string{"limit"}, 0, func(o *Options, _ url.Values, limit int) (any, error) {
		st := o.Node.Stats()
		return conweave(&st, o.Node.ConWeave(limit)), nil
	}},
	{"fdb", true, false, []string{"limit"}, defaultFDB, func(o *Options, _ url.Values, limit int) (any, error) {
		return o.Node.FDB(limit), nil
	}},
	{"flows", true, false, []string{"limit"}, defaultFlowlets, func(o *Options, _ url.Values, limit int) (any, error) {
		return flows(o.Node, limit), nil
	}},
	{"hosts", true, false, []string{"limit"}, defaultFDB, func(o *Options, _ url.Values, limit int) (any, error) {
		return o.Node.Hosts(limit), nil
	}},
	{"routes", false, true, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		return routes(o.Ports(), o.Tables()), nil
	}},
	{"route", false, false, outerParameters, 0, func(o *Options, q url.Values, _ int) (any, error) {
		f, err := parseOuter(q)
		if err != nil {
			return nil, err
		}
		return o.Node.ExplainRoute(f)
	}},
	{"arrival", true, false, arrivalParameters, 0, func(o *Options, q url.Values, _ int) (any, error) {
		a, err := parseArrival(q)
		if err != nil {
			return nil, err
		}
		return o.Node.ExplainArrival(a)
	}},
	{"explain", true, false, flowParameters, 0, func(o *Options, q url.Values, _ int) (any, error) {
		f, err := parseFlow(q, o.Tables())
		if err != nil {
			return nil, err
		}
		return o.Node.Explain(f)
	}},
	{"stats", false, false, nil, 0, func(o *Options, _ url.Values, _ int) (any, error) {
		st := o.Node.Stats()
		answer := stats(&st)
		answer.Name, answer.Role, answer.Version = o.Name, o.Role, o.Version
		return answer, nil
	}},
}

// needTables are the questions about a flow, which have no answer before there are tables.
var needTables = []string{"explain", "route", "arrival"}

// orEmpty makes a list that JSON does not write as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func parseLimit(q url.Values, def int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxLimit {
		return 0, fmt.Errorf("limit %q: use 0 to %d", text, maxLimit)
	}
	return n, nil
}

// parseSince reads the number of the last event that the caller knows.
func parseSince(q url.Values) (uint64, error) {
	text := q.Get("since")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("since %q: give the last number that you know, 0 for none", text)
	}
	return n, nil
}

// NewServer returns what answers the admin API.
func NewServer(o Options) http.Handler {
	mux := http.NewServeMux()
	known := make([]string, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		known[i] = "/v1/" + e.path
		change := findAction(e.path)
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if change != nil && r.Method == http.MethodPost {
				status, answer := change.serve(&o, w, r)
				httpd.WriteJSON(w, status, answer)
				return
			}
			status, answer := e.serve(&o, r)
			if status == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", "GET, HEAD")
			}
			httpd.WriteJSON(w, status, answer)
		})
		if !e.atOnce {
			h = o.Gate.Bound(h)
		}
		mux.Handle(known[i], h)
	}
	// Streams go by no gate: dataplane.Node bounds how many there are.
	mux.Handle("/v1/capture", forThisMachine(http.HandlerFunc(o.serveCapture)))
	mux.Handle("/v1/record", forThisMachine(o.Gate.Bound(http.HandlerFunc(o.serveRecord))))
	known = append(known, "/v1/capture", "/v1/record")
	for i := range actions {
		a := &actions[i]
		if slices.Contains(known, "/v1/"+a.path) {
			continue // both a question and an action
		}
		known = append(known, "/v1/"+a.path)
		mux.HandleFunc("/v1/"+a.path, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", "POST")
				httpd.WriteJSON(w, http.StatusMethodNotAllowed, Failure{r.Method + " is not possible: this changes something, use POST"})
				return
			}
			status, answer := a.serve(&o, w, r)
			httpd.WriteJSON(w, status, answer)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		httpd.WriteJSON(w, http.StatusNotFound, Failure{fmt.Sprintf("%s does not exist; there are %s", r.URL.Path, strings.Join(known, ", "))})
	})
	return mux
}

// forThisMachine refuses to show what tenants send to who does not ask over the Unix
// socket, and what is no question.
func forThisMachine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case httpd.PeerOf(r) == nil:
			httpd.WriteJSON(w, http.StatusForbidden, Failure{r.URL.Path + " shows what tenants send, and is not for other machines: use the admin socket"})
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			httpd.WriteJSON(w, http.StatusMethodNotAllowed, Failure{r.Method + " is not possible: this only reads, use GET"})
		default:
			h.ServeHTTP(w, r)
		}
	})
}

func (e *endpoint) serve(o *Options, r *http.Request) (status int, answer any) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, Failure{r.Method + " is not possible: this only reads, use GET"}
	}
	if e.path == "route" && o.Leaf {
		return http.StatusNotFound, otherRole{Failure{"a leaf routes no packets of others: ask a spine"}, true}
	}
	if e.leaf && !o.Leaf {
		return http.StatusNotFound, otherRole{Failure{fmt.Sprintf("a spine has no %s: ask a leaf", e.path)}, true}
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = checkParameters(e.path, e.parameters, q)
	}
	if err == nil && slices.Contains(needTables, e.path) && o.Tables() == nil {
		return http.StatusServiceUnavailable, Failure{"the node has no tables yet: try again when it is ready"}
	}
	limit := e.limit
	if err == nil {
		limit, err = parseLimit(q, e.limit)
	}
	if err == nil {
		answer, err = e.answer(o, q, limit)
	}
	if err != nil {
		return http.StatusBadRequest, Failure{err.Error()}
	}
	return http.StatusOK, answer
}

// checkParameters refuses what would be ignored.
func checkParameters(path string, known []string, q url.Values) error {
	for name, values := range q {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return fmt.Errorf("parameter %q does not exist: /v1/%s has none", name, path)
			}
			return fmt.Errorf("parameter %q does not exist: /v1/%s has %s", name, path, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
	}
	return nil
}
