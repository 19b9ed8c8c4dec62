package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/admin"
)

// memoryFile has what the copy of a lab's file does not say.
const memoryFile = "lab.json"

// memory is what of a lab is kept besides its file.
type memory struct {
	BaseDir string    `json:"base_dir"`
	Since   time.Time `json:"since"`
}

// remember keeps the lab's file, so that [Open] finds it.
func (l *Lab) remember() error {
	base, err := filepath.Abs(l.BaseDir)
	if err != nil {
		return err
	}
	b, err := json.Marshal(memory{base, time.Now()})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(fabric.CopyFile(l.File.Name), []byte(l.File.Source()), 0o644), os.WriteFile(l.path(memoryFile), b, 0o644))
}

// recall returns what is kept of the lab.
func (l *Lab) recall() (m memory, err error) {
	b, err := os.ReadFile(l.path(memoryFile))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	return m, err
}

// Open returns the lab of a name that was built.
func Open(name string) (*Lab, error) {
	file := fabric.CopyFile(name)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("no lab %q is up: `loomlab ls` lists those that are: %w", name, err)
	}
	f, err := fabric.Parse(file, text)
	if err != nil {
		return nil, err
	}
	f.Name = name
	l := New(f)
	m, err := l.recall()
	l.BaseDir = m.BaseDir
	return l, err
}

// Entry is a lab of this machine. The names in the tags are a promise.
type Entry struct {
	Name   string    `json:"name"`
	State  string    `json:"state"` // up, or partial: something of it was left behind
	Since  time.Time `json:"since"`
	Leaves int       `json:"leaves"`
	Spines int       `json:"spines"`
	Hosts  int       `json:"hosts"`
	Links  int       `json:"links"`
	Scheme string    `json:"scheme"`
	Dir    string    `json:"dir"` // configurations, logs and sockets
}

// List returns the labs of this machine, by name.
func List() ([]Entry, error) {
	dirs, err := os.ReadDir(fabric.StateRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	all := []Entry{}
	for _, d := range dirs {
		if !d.IsDir() {
			continue // a lock
		}
		e := Entry{Name: d.Name(), State: "partial", Dir: filepath.Join(fabric.StateRoot, d.Name())}
		if l, err := Open(d.Name()); err == nil {
			m, _ := l.recall() // Open has
			e.Since, e.Scheme = m.Since, l.File.Scheme
			e.Leaves, e.Spines, e.Hosts, e.Links = len(l.Topo.Leaves), len(l.Topo.Spines), len(l.Topo.Hosts), len(l.Topo.Links)
			if l.IsUp() {
				e.State = "up"
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// WriteList writes labs for people.
func WriteList(out io.Writer, all []Entry) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no lab is up: loomlab up -f FILE builds one")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LAB\tSTATE\tFOR\tLEAVES\tSPINES\tHOSTS\tLINKS\tSCHEME\tDIRECTORY")
	for _, e := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", e.Name, e.State, age(e.Since), e.Leaves, e.Spines, e.Hosts, e.Links, cmp.Or(e.Scheme, "-"), e.Dir)
	}
	return w.Flush()
}

// age is how long ago something was, to the second.
func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}

// Status is what a lab's parts do now. The names in the tags are a promise.
type Status struct {
	Entry
	Nodes     []NodeStatus `json:"nodes"`
	LinksDown []string     `json:"links_down"`
	HostNames []HostStatus `json:"host_names"`
}

// NodeStatus is what a leaf or a spine does.
type NodeStatus struct {
	Name  string `json:"name"`
	Role  string `json:"role"`  // leafd, spined, or kernel
	State string `json:"state"` // ready, not ready or gone
	Why   string `json:"why"`   // it is not ready
	PID   int    `json:"pid"`   // 0: none
	VTEP  string `json:"vtep"`  // of a leaf
}

// HostStatus is where a host is.
type HostStatus struct {
	Name    string `json:"name"`
	Leaf    string `json:"leaf"`
	VNI     uint32 `json:"vni"`
	Address string `json:"address"`
}

// Status looks at the lab.
func (l *Lab) Status(ctx context.Context) (s *Status, err error) {
	defer l.name(&err)
	if !l.IsUp() {
		return nil, errDown
	}
	m, err := l.recall()
	if err != nil {
		return nil, err
	}
	s = &Status{Entry: Entry{l.File.Name, "up", m.Since, len(l.Topo.Leaves), len(l.Topo.Spines), len(l.Topo.Hosts), len(l.Topo.Links), l.File.Scheme, l.dir()}, LinksDown: []string{}}
	for _, n := range l.nodes() {
		s.Nodes = append(s.Nodes, l.nodeStatus(ctx, n))
	}
	for _, h := range l.Topo.Hosts {
		s.HostNames = append(s.HostNames, HostStatus{h.Name, l.Topo.Leaves[h.Leaf].Name, h.VNI, h.Addr.Addr().String()})
	}
	up, err := l.linkState()
	if err != nil {
		return nil, err
	}
	for i, is := range up {
		if !is {
			s.LinksDown = append(s.LinksDown, l.Topo.Links[i].Name)
		}
	}
	return s, nil
}

func (l *Lab) nodeStatus(ctx context.Context, n fabric.Node) NodeStatus {
	s := NodeStatus{Name: n.Name, Role: "kernel", State: "ready"}
	if isLeaf(n) {
		s.VTEP = n.VTEP.String()
	}
	if !slices.ContainsFunc(l.withDaemon(), func(d fabric.Node) bool { return d.Name == n.Name }) {
		return s
	}
	s.Role, s.State = "spined", "gone"
	if isLeaf(n) {
		s.Role = "leafd"
	}
	var file struct{ PID int }
	if b, err := os.ReadFile(fabric.ProcessFile(l.File.Name, n.Name)); err == nil && json.Unmarshal(b, &file) == nil && unix.Kill(file.PID, 0) == nil {
		s.PID = file.PID
	}
	client := admin.Client{Socket: fabric.AdminSocket(l.File.Name, n.Name)}
	raw, err := client.Get(ctx, "status", nil)
	var a admin.Status
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	switch {
	case err != nil:
		s.Why = err.Error()
	case a.Ready:
		s.State = "ready"
	default:
		s.State = "not ready"
		for _, r := range a.Reasons {
			s.Why += r.String() + " "
		}
	}
	return s
}

// Write writes the status for people.
func (s *Status) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s has been up for %s: scheme %s, %s\n\n", s.Name, age(s.Since), s.Scheme, s.Dir)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tDAEMON\tSTATE\tPID\tVTEP")
	for _, n := range s.Nodes {
		pid := "-"
		if n.PID != 0 {
			pid = fmt.Sprint(n.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.Role, strings.TrimSpace(n.State+" "+n.Why), pid, cmp.Or(n.VTEP, "-"))
	}
	fmt.Fprintln(w, "\nHOST\tLEAF\tVNI\tADDRESS")
	for _, h := range s.HostNames {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", h.Name, h.Leaf, h.VNI, h.Address)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	state := "all up"
	if len(s.LinksDown) > 0 {
		state = "down: " + strings.Join(s.LinksDown, ", ")
	}
	_, err := fmt.Fprintf(out, "\n%d links, %s\n", s.Links, state)
	return err
}

// Next says what one may type now that the lab is up. program is how loomlab was called.
func (l *Lab) Next(out io.Writer, program string) {
	name, from, to := l.File.Name, "", fabric.Host{}
	for _, h := range l.Topo.Hosts { // two hosts of one VNI, behind two leaves if there are such
		first := l.Topo.Hosts[0]
		if h.VNI == first.VNI && h.Index != first.Index && (to.Name == "" || to.Leaf == first.Leaf && h.Leaf != first.Leaf) {
			from, to = first.Name, h
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	loomctl := filepath.Join(filepath.Dir(program), "loomctl")
	if filepath.Dir(program) == "." && !strings.HasPrefix(program, ".") {
		loomctl = "loomctl"
	}
	add := func(command, what string) { fmt.Fprintf(w, "  %s\t%s\n", command, what) }
	fmt.Fprintln(w, "\nNow:")
	if to.Name != "" {
		add(fmt.Sprintf("%s exec --lab %s %s -- ping -c 3 %v", program, name, from, to.Addr.Addr()), "from "+from+" to "+to.Name)
	}
	add(fmt.Sprintf("%s status --lab %s", program, name), "nodes, hosts and links")
	add(fmt.Sprintf("%s shell --lab %s %s", program, name, cmp.Or(from, l.Topo.Leaves[0].Name)), "a shell there")
	if len(l.withDaemon()) > 0 {
		add(fmt.Sprintf("%s doctor --lab %s", loomctl, name), "whether anything is wrong")
		add(fmt.Sprintf("%s paths --lab %s", loomctl, name), "which paths deliver, and how fast")
		add(fmt.Sprintf("%s logs --lab %s --follow", program, name), "what the daemons say")
	}
	if len(l.Topo.Links) > 0 {
		add(fmt.Sprintf("%s fail --lab %s %s", program, name, l.Topo.Links[0].Name), "take a link down; restore brings it up")
	}
	add(fmt.Sprintf("%s down --lab %s", program, name), "remove all of it")
	w.Flush()
}

// Shell replaces this process with the user's shell inside a host, leaf or spine, with a
// prompt that says where. It returns only on failure.
func (l *Lab) Shell(node string) error {
	shell := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	if _, err := exec.LookPath(shell); err != nil {
		shell = "/bin/sh"
	}
	argv := []string{shell}
	if filepath.Base(shell) == "bash" {
		argv = append(argv, "--norc") // which would set another prompt
	}
	prompt := fmt.Sprintf("%s:%s# ", l.File.Name, node)
	if err := errors.Join(os.Setenv("PS1", prompt), os.Setenv("LOOM_LAB", l.File.Name), os.Setenv("LOOM_NODE", node)); err != nil {
		return err
	}
	return l.Exec(node, argv)
}
