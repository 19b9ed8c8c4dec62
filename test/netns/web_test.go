package netns

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/testenv/browser"
	"github.com/loomfabric/loom/internal/web"
)

// showLab starts loomweb for a fabric and returns where its page is.
func (f *fab) showLab() (url string) {
	f.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	c := web.Command("test")
	c.SetArgs([]string{"--lab", f.lab.File.Name, "--listen", address})
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("loomweb ended: %v", err)
		}
	})
	url = "http://" + address
	eventually(f.t, 10*time.Second, func() string {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err.Error()
		}
		c.Close()
		return ""
	})
	return url
}

// blast sends UDP packets until it is stopped.
func blast(t *testing.T, from *testenv.Namespace, to netip.Addr) (stop func()) {
	t.Helper()
	var conns []net.Conn
	from.Do(t, func() {
		for range 8 { // flows
			c, err := net.Dial("udp", netip.AddrPortFrom(to, 9999).String())
			if err != nil {
				t.Error(err)
				return
			}
			conns = append(conns, c)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		payload := make([]byte, 1400)
		for ctx.Err() == nil {
			for _, c := range conns {
				for range 4 {
					_, _ = c.Write(payload) // nobody listens there: refusals are no matter
				}
			}
			time.Sleep(3 * time.Millisecond)
		}
		for _, c := range conns {
			c.Close()
		}
	}()
	return func() { cancel(); <-done }
}

// TestWeb: a person with a browser sees the fabric of `make demo`, load as it comes, and a
// link that fails. The bounds are ten times what docs/loomweb.md promises.
func TestWeb(t *testing.T) {
	f := up(t, "demo.yaml")
	p := browser.Open(t, 1440, 900)
	p.Dark(false)
	p.Go(f.showLab())
	p.Wait(20*time.Second, `document.querySelectorAll("#map .node").length == 4 && document.querySelectorAll("#map .link[data-state='up']").length == 8`)
	for _, k := range f.topo.Links {
		name := fmt.Sprintf("L%d %s – S%d %s", k.Leaf, k.LeafPort, k.Spine, k.SpinePort)
		p.Wait(5*time.Second, fmt.Sprintf(`[...document.querySelectorAll("#map .link")].some(e => e.dataset.link == %q)`, name))
	}
	const hot = `import("./main.js").then(({app: {frame: f}}) => f.layout.paths.some((p, i) => f.layout.nodes[p.from].name == "L0" && f.metric[i] > 0))`
	var already bool
	if p.Eval(hot, &already); already {
		t.Error("a cell of L0's has congestion before there is load")
	}
	stop := blast(t, f.ns["h0"], f.addr("h4"))
	start := time.Now()
	for already = false; !already && time.Since(start) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		p.Eval(hot, &already)
	}
	if !already {
		t.Error("load turns no cell")
	}
	t.Logf("load turned a cell after %v", time.Since(start).Round(10*time.Millisecond))
	stop()

	const link = "L0-S1.0"
	k := f.link(link)
	start = time.Now()
	if err := f.lab.Fail(link); err != nil {
		t.Fatal(err)
	}
	p.Wait(20*time.Second, fmt.Sprintf(`document.querySelector("#map .link[data-link^='L0 %s ']").dataset.state == "down"`, k.LeafPort))
	t.Logf("the link was dashed %v after loomlab fail", time.Since(start).Round(10*time.Millisecond))
	p.Wait(20*time.Second, fmt.Sprintf(`document.getElementById("events").textContent.includes("link L0 %s – S1 %s is down")`, k.LeafPort, k.SpinePort))
	if err := f.lab.Restore(link); err != nil {
		t.Fatal(err)
	}
	p.Wait(20*time.Second, `document.querySelectorAll("#map .link[data-state='up']").length == 8`)
	for _, v := range p.Axe() {
		t.Error(v)
	}
}

// TestLabShowsItself: loomlab up --web serves a page that goes with the lab, from a
// process without privileges.
func TestLabShowsItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	t.Cleanup(func() { // after the lab's end
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Error("loomweb is there after its lab")
		}
	})
	f := up(t, "pair.yaml")
	url, err := f.lab.StartWeb(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if url != "http://"+address+"/" {
		t.Errorf("it is at %s", url)
	}
	// Where nobody may look, a program cannot be started as nobody.
	open := true
	for dir := daemons; dir != "/"; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		open = open && st.Mode()&1 != 0
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, file := range files {
		if args, _ := os.ReadFile(file); !bytes.HasSuffix(args, []byte("\x00--listen\x00"+address+"\x00")) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if found = true; err != nil || open && !regexp.MustCompile(`(?m)^CapEff:\s+0+$`).Match(status) {
			t.Errorf("%v: loomweb has %s", err, status)
		}
	}
	if !found {
		t.Error("no process is loomweb")
	}
}
