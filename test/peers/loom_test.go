package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// loomConfig is of both daemons. They have one worker.
const loomConfig = `name: peers
workers: 1
cores: [%[1]d]
polling: %[2]s
fast_path: %[3]s
xdp_mode: native
vxlan_port: %[4]d
telemetry:
  listen: unix:%[5]s
admin:
  listen: unix:%[6]s
`

// leafConfig has one access port and one uplink.
const leafConfig = `vtep: %[1]s
uplinks:
  - interface: upl
access:
  - interface: acc
    vni: %[3]d
peers: [%[2]s]
vnis:
  - vni: %[3]d
    static:
      - mac: %[4]s
        interface: acc
      - mac: %[5]s
        vtep: %[2]s
`

const spineConfig = `vteps: [%s/32, %s/32]
ports:
  - interface: %s
  - interface: %s
`

// startWorkers starts leafd or spined without a fast path. Its worker polls busily as Open
// vSwitch's PMD threads do.
func startWorkers(t testing.TB, d *bed) running { return startLoom(t, d, "busy", "off", "") }

// startFast starts leafd or spined with a fast path, whose worker sleeps when it has nothing
// to do. Where there is no fast path it starts as well, and says so when it is asked.
func startFast(t testing.TB, d *bed) running { return startFastWith(t, d, "") }

// startFlowlets is startFast with a scheme that looks for flowlets.
func startFlowlets(t testing.TB, d *bed) running { return startFastWith(t, d, "scheme: conga\n") }

func startFastWith(t testing.TB, d *bed, more string) running {
	r := startLoom(t, d, "adaptive", "auto", more)
	r.fast = func(t testing.TB) fastCount { return d.fastCount(t) }
	return r
}

func (d *bed) file(name string) string { return filepath.Join(d.dir, name) }

func startLoom(t testing.TB, d *bed, polling, fast, more string) running {
	d.address(t)
	text := fmt.Sprintf(loomConfig, dutCore, polling, fast, vxlanPort, d.file("http.sock"), d.file("admin.sock"))
	name := "leafd"
	if d.job.spine {
		name = "spined"
		text += fmt.Sprintf(spineConfig, localVTEP, peerVTEP, d.in.name, d.out.name)
	} else {
		text += fmt.Sprintf(leafConfig, localVTEP, peerVTEP, vni, hostMAC, remoteMAC)
	}
	if err := os.WriteFile(d.file("loom.yaml"), []byte(text+more), 0o644); err != nil {
		t.Fatal(err)
	}
	pid := d.daemon(t, nil, filepath.Join(d.daemons, name), "run", "-c", d.file("loom.yaml"))
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.file("http.sock"))
		},
	}}
	ready(t, name+"'s /readyz", 10*time.Second, func() bool {
		resp, err := client.Get("http://" + name + "/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return running{pids: []int{pid}}
}

// fastCount is what a daemon says of its fast path, for the job's way through the device.
type fastCount struct {
	frames uint64            // that XDP has forwarded
	slow   map[string]uint64 // frames that it has left to the workers, by reason
	why    string            // why it forwards none; "": it might
}

// fastCount asks the daemon, as `loomctl fast` does for people.
func (d *bed) fastCount(t testing.TB) (c fastCount) {
	t.Helper()
	var s dataplane.FastState
	text := command(t, nil, filepath.Join(d.daemons, "loomctl"), "--socket", d.file("admin.sock"), "fast", "-o", "json")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("loomctl fast: %v: %s", err, text)
	}
	c.why = s.Reason
	for _, p := range s.Ports {
		switch p.Port {
		case d.in.name:
			c.frames, c.slow = p.Frames-p.Lost, p.Slow
			c.why = first(c.why, p.In)
		case d.out.name:
			c.why = first(c.why, p.Out)
		}
	}
	return c
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// since returns which share of the frames that were delivered since then XDP has forwarded, and
// why it has not forwarded the others.
func (c fastCount) since(before fastCount, delivered uint64) (share float64, why string) {
	var most uint64
	for reason, n := range c.slow {
		if n -= before.slow[reason]; n > most {
			most, why = n, "workers were given: "+reason
		}
	}
	return float64(c.frames-before.frames) / float64(delivered), first(c.why, why)
}
