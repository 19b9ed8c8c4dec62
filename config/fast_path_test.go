package config

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/dataplane"
)

// A leaf may have a fast path, unless the file says what that cannot go with. With auto the
// daemon goes without.
func TestLeafFastPath(t *testing.T) {
	kernel := "overlay: kernel\nuplinks: [{interface: eth1}]\n"
	for text, want := range map[string]string{
		minimal:                         "",
		minimal + "xdp_mode: generic\n": "remove xdp_mode: generic",
		strings.ReplaceAll(minimal, "10.0.0.1", "2001:db8::1"): "vtep is 2001:db8::1",
		kernel:                         "remove overlay: kernel",
		minimal + "scheme: conweave\n": "", // what comes with its shim is the workers'
	} {
		for mode, mayFail := range map[string]bool{"off": false, "auto": false, "on": true} {
			l, err := ParseLeaf("leafd.yaml", []byte(text+"fast_path: "+mode+"\n"), nil)
			if mayFail && want != "" {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "fast_path") {
					t.Errorf("%q, %s: error %v, want one with %q", text, mode, err, want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q, %s: %v", text, mode, err)
				continue
			}
			modes := map[string]dataplane.FastMode{"off": dataplane.FastOff, "auto": dataplane.FastAuto, "on": dataplane.FastOn}
			if got := l.ToDataplane().FastPath; got != modes[mode] {
				t.Errorf("%q, %s: the data plane is told %d", text, mode, got)
			}
		}
	}
}
