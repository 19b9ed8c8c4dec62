//go:build !race

package lab

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// joined returns how many subflows others have joined to connections of a host.
func joined(t *testing.T, l *Lab, host string) (n int) {
	t.Helper()
	var text []byte
	err := l.in(host, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] != "MPTcpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "MPJoinAckRx" {
				if n, err = strconv.Atoi(fields[i]); err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatal("the kernel does not count subflows")
	return 0
}

// TestSubflows: a run's connections are MPTCP's and have subflows, as many as the file wants,
// between hosts with one address each, under the file's congestion control.
func TestSubflows(t *testing.T) {
	const file = `dataplane: kernel
leaves: 2
spines: 2
links: {rate: 40Mbit, queue: 128KB}
hosts: {per_leaf: 1, link: {rate: 100Mbit}}
vnis: [{vni: 10}]
tcp: reno
subflows: %d
workloads:
  - {name: bulk, type: bulk, from: [h0], to: [h1], duration: 1500ms}
`
	for _, n := range []int{8, 0} {
		l, _ := newLab(t, fmt.Sprintf(file, n))
		up(t, l) // it stays up after the run, so that its hosts can be asked
		rep, err := l.Run(context.Background(), RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := rep.Result.Workloads[0]
		got := joined(t, l, "h0") + joined(t, l, "h1")
		t.Logf("%d subflows: %d were joined, %.1f Mbit/s; uplinks %+v", n, got, w.GoodputBps/1e6, rep.Result.Uplinks)
		// Both hosts announce and join, one after the other, and refuse what is too many. A
		// machine without any time left may not get to the last one.
		if least, most := min(n, 4), max(n-1, 0); got < least || got > most || w.Failed > 0 {
			t.Errorf("%d subflows were joined, want %d to %d; %d connections failed", got, least, most, w.Failed)
		}
		if w.GoodputBps < 10e6 || w.GoodputBps > 80e6 {
			t.Errorf("%d subflows: %.1f Mbit/s", n, w.GoodputBps/1e6)
		}
	}
}
