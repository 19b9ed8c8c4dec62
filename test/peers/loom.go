package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// loomDevice is leafd with one access port, one uplink and one worker.
type loomDevice struct {
	leafd  string
	daemon *daemon
}

func (*loomDevice) name() string         { return "Loom" }
func (*loomDevice) softirqReceive() bool { return true }

const loomConfig = `name: peers
vtep: %[1]s
workers: 1
cores: [%[2]d]
polling: %[3]s
xdp_mode: native
vxlan_port: %[4]d
telemetry:
  listen: unix:%[5]s
admin:
  listen: off
uplinks:
  - interface: upl
access:
  - interface: acc
    vni: %[6]d
peers: [%[7]s]
vnis:
  - vni: %[6]d
    static:
      - mac: %[8]s
        vtep: %[7]s
`

func (l *loomDevice) start(b *bench) error {
	for _, line := range []string{
		"addr add " + localVTEP + "/24 dev upl",
		fmt.Sprintf("neigh add %s lladdr %s dev upl nud permanent", peerVTEP, b.endMAC),
	} {
		if err := b.ip("dut", line); err != nil {
			return err
		}
	}
	path, sock := filepath.Join(b.dir, "leafd.yaml"), filepath.Join(b.dir, "leafd.sock")
	// Busy polling, as Open vSwitch's PMD threads do.
	text := fmt.Sprintf(loomConfig, localVTEP, dutCore, "busy", vxlanPort, sock, vni, peerVTEP, dstMAC)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	var err error
	if l.daemon, err = startDaemon(b, "leafd.log", nil, l.leafd, "run", "-c", path); err != nil {
		return err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		},
	}}
	err = ready("leafd's /readyz", 10*time.Second, func() bool {
		resp, err := client.Get("http://leafd/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	if err != nil {
		return fmt.Errorf("%w; leafd says: %s", err, l.daemon.tail())
	}
	return nil
}

func (l *loomDevice) processes() []int { return []int{l.daemon.pid()} }

func (l *loomDevice) stop() error { return l.daemon.stop() }
