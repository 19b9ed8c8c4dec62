package netns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAbsentAccess: leafd starts without the interface of a host, as that of a virtual
// machine that has yet to start, and opens the port when it appears. With `required`
// it does not start.
func TestAbsentAccess(t *testing.T) {
	f := up(t, "pair.yaml")
	h1, d := f.host("h1"), f.daemons["L0"]
	d.stop()
	f.ns["L0"].DeleteLink(t, h1.Port)

	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "leafd.yaml")
	required := strings.Replace(string(text), "interface: "+h1.Port, "interface: "+h1.Port+"\n  required: true", 1)
	if err := os.WriteFile(file, []byte(required), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"check", "run"} {
		if out, code := f.command("L0", "leafd", verb, "-c", file); code == 0 || !strings.Contains(out, "interface "+h1.Port+" does not exist") {
			t.Errorf("%s with required: true: exit code %d\n%s", verb, code, out)
		}
	}
	if out, code := f.command("L0", "leafd", "check", "-c", d.config); code != 0 || !strings.Contains(out, "warning: interface "+h1.Port+" does not exist") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}

	d.start()
	d.ready()
	if n := d.metric("loom_port_exists", "port", h1.Port); n != 0 {
		t.Errorf("loom_port_exists of %s is %d", h1.Port, n)
	}
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 256<<10) // others do not mind
	v := veth{f.ns["L0"], f.ns["h1"], h1.Port, "eth0", 1500}
	v.restore(t)
	setIdentity(t, f.ns["h1"], h1.MAC, h1.Addr.String())
	d.open(h1.Port, true)
	if n := d.metric("loom_port_exists", "port", h1.Port); n != 1 {
		t.Errorf("loom_port_exists of %s is %d", h1.Port, n)
	}
	transfer(t, f.ns["h3"], f.ns["h1"], h1.Addr.Addr(), 1<<20)
}
