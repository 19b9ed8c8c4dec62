package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a node says that it runs with has what others compare, and no keys.
func TestParameters(t *testing.T) {
	const key = "00112233445566778899aabbccddeeff"
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "leafd.yaml"), filepath.Join(dir, "keys")
	text := `name: L0
vtep: 10.255.0.1
uplinks: [{interface: up0}, {interface: up1}]
access: [{interface: acc0, vni: 100, fail: open}]
vnis: [{vni: 100}]
peers: [10.255.0.2]
workers: 2
cores: [2, 3]
polling: busy
scheme: conga
classes: [{match: {protocol: udp, port: 53}, scheme: ecmp}]
congestion: {tau: 3ms, flowlet_gap: 9ms}
control_key_file: ` + keys + "\n"
	for path, text := range map[string]string{file: text, keys: key + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, err := Leaf.load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := n.parameters(file)
	for name, x := range map[string][2]string{
		"tau": {p.Fabric["congestion.tau"], "3ms"}, "port": {p.Fabric["vxlan_port"], "4789"}, "wire number of conweave": {p.Fabric["wire.conweave"], "1"},
		"scheme": {p.Leaf["scheme"], "conga"}, "class": {p.Leaf[`scheme of class protocol: udp port: "53"`], "ecmp"}, "keys": {p.Leaf["control_key_file"], "given"}, "hold": {p.Leaf["conweave.max_hold"], "2ms"},
		"polling": {p.Polling, "busy"}, "VTEP": {p.VTEP.String(), "10.255.0.1"}, "key file": {p.KeyFile, keys},
	} {
		if x[0] != x[1] {
			t.Errorf("%s is %q, want %q", name, x[0], x[1])
		}
	}
	if p.Workers != 2 || len(p.Cores) != 2 || p.Memory == 0 || len(p.FailOpen) != 1 || p.FailOpen[0] != "acc0" || p.PID != os.Getpid() {
		t.Errorf("%+v", p)
	}
	if b, err := json.Marshal(p); err != nil || strings.Contains(string(b), key) {
		t.Errorf("%v: the keys are in %s", err, b)
	}
}
