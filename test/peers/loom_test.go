package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// loomConfig has one access port, one uplink and one worker, which polls busily as
// Open vSwitch's PMD threads do.
const loomConfig = `name: peers
vtep: %[1]s
workers: 1
cores: [%[2]d]
polling: busy
xdp_mode: native
vxlan_port: %[3]d
telemetry:
  listen: unix:%[4]s
admin:
  listen: off
uplinks:
  - interface: upl
access:
  - interface: acc
    vni: %[5]d
peers: [%[6]s]
vnis:
  - vni: %[5]d
    static:
      - mac: %[7]s
        vtep: %[6]s
`

// startLoom starts leafd.
func startLoom(b *testing.B, d *bed) (pids []int) {
	d.underlay(b)
	path, sock := filepath.Join(d.dir, "leafd.yaml"), filepath.Join(d.dir, "leafd.sock")
	text := fmt.Sprintf(loomConfig, localVTEP, dutCore, vxlanPort, sock, vni, peerVTEP, dstMAC)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	pid := d.daemon(b, nil, filepath.Join(d.daemons, "leafd"), "run", "-c", path)
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		},
	}}
	ready(b, "leafd's /readyz", 10*time.Second, func() bool {
		resp, err := client.Get("http://leafd/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return []int{pid}
}
