package netns

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/loomctl"
)

// TestConfigApply: a file is put in force in one step and taken back; one that would be
// refused, or needs a restart, changes nothing, neither the daemon nor its file.
func TestConfigApply(t *testing.T) {
	f := up(t, "pair.yaml")
	d := f.daemons["L0"]
	was := read(t, d.config)
	file := filepath.Join(t.TempDir(), "new.yaml")
	ctl := func(code int, says string, args ...string) {
		t.Helper()
		out, err := f.labctl(append([]string{"--node", "L0"}, args...)...)
		if errors := ""; err != nil {
			errors = err.Error()
			out += errors
		}
		if loomctl.ExitCode(err) != code || !strings.Contains(out, says) {
			t.Errorf("loomctl %v: exit code %d, want %d: %s", args, loomctl.ExitCode(err), code, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(text string, code int, says string) {
		t.Helper()
		write(text)
		ctl(code, says, "config", "check", file)
		ctl(code, says, "config", "apply", file)
		if read(t, d.config) != was {
			t.Errorf("the daemon's file has changed")
		}
		ctl(0, "says what is in force", "config", "diff")
	}
	refused("shceme: conga\n"+was, 1, "new.yaml:1:1")
	refused("ring_size: 512\n"+strings.ReplaceAll(was, "ring_size:", "# ring_size:"), 2, "a restart")
	ctl(1, "no file is kept", "config", "rollback")

	conga := strings.Replace(was, "scheme: ecmp", "scheme: conga", 1)
	if conga == was {
		t.Fatalf("the lab's file names no scheme:\n%s", was)
	}
	write(conga)
	ctl(0, "differs from what is in force", "config", "check", file)
	ctl(0, "is in force now as "+d.config, "config", "apply", file)
	ctl(0, "says what is in force", "config", "apply", file)
	ctl(1, "is the daemon's file itself", "config", "apply", d.config)
	if out := d.loomctl("explain", f.addr("h0").String(), f.addr("h3").String(), "--vni", "10"); !strings.Contains(out, "0, conga") {
		t.Errorf("conga is not in force: %s", out)
	}
	if read(t, d.config) != conga {
		t.Errorf("the file is\n%s", read(t, d.config))
	}
	ctl(0, "is in force now", "config", "rollback")
	if read(t, d.config) != was || read(t, d.config+".previous") != conga {
		t.Errorf("after the rollback the file is\n%s", read(t, d.config))
	}
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 64<<10)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEventsAndLevel: what the log says is listed with what it is about, whatever level
// the log shows; the level changes while the daemon runs. Workers say how busy they are.
func TestEventsAndLevel(t *testing.T) {
	f := up(t, "pair.yaml")
	d := f.daemons["L0"]
	if got := d.loomctl("log", "level"); got != "info\n" {
		t.Errorf("the level is %s", got)
	}
	d.loomctl("log", "level", "error")
	before := len(d.whole())
	port := f.link("L0-S1.0").LeafPort
	f.ns["L0"].SetUp(t, port, false)
	eventually(t, 5*time.Second, func() string {
		text := d.loomctl("events")
		if !strings.Contains(text, "WARN  port "+port+": ") || !strings.Contains(text, "up=false") {
			return text
		}
		return ""
	})
	f.ns["L0"].SetUp(t, port, true)
	eventually(t, 5*time.Second, func() string {
		text := d.loomctl("events")
		if !strings.Contains(text, "INFO  port "+port+": ") || !strings.Contains(text, "up=true") {
			return text
		}
		return ""
	})
	if log := d.whole()[before:]; strings.Contains(log, "WARN") {
		t.Errorf("the log shows what it should not:\n%s", log)
	}
	d.loomctl("log", "level", "info")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 4 {
			transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
		}
	}()
	var top loomctl.Top
	if err := json.Unmarshal([]byte(d.loomctl("top", "--over", "500ms", "-o", "json")), &top); err != nil {
		t.Fatal(err)
	}
	<-done
	w := top.Workers[0]
	if len(top.Ports) != len(d.stats().Stats.Ports) || w.Rounds == 0 || w.Busy < 0 || w.Busy > 1 || w.Frames > 0 && (w.PerBurst < 1 || w.PerBurst > 64 || w.PerFrame <= 0) {
		t.Errorf("%+v", top)
	}
}
