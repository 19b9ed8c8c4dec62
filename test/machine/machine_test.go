package machine

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/test/machine/proto"
)

// fakeVM is a machine whose guest is the test: an idle process in QEMU's place,
// and the other end of its port.
func fakeVM(t *testing.T) (v *VM, guest func() net.Conn) {
	t.Helper()
	m := Machine{Name: "m", Dir: t.TempDir(), Kernel: &Kernel{}}
	l, err := net.Listen("unix", m.path("sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	v, err = start(m, exec.Command("sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	return v, func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return nil
		}
		return c
	}
}

// TestVMAnswersOutOfOrder: requests are under way together, and each gets its
// own answer; what goes wrong in the guest is an error, and so is a guest that is
// gone.
func TestVMAnswersOutOfOrder(t *testing.T) {
	v, guest := fakeVM(t)
	go func() {
		c := guest()
		if c == nil {
			return
		}
		defer c.Close()
		enc, dec := json.NewEncoder(c), json.NewDecoder(c)
		_ = enc.Encode(proto.Reply{})
		var reqs []proto.Request
		for range 4 {
			var r proto.Request
			if err := dec.Decode(&r); err != nil {
				t.Error(err)
				return
			}
			reqs = append(reqs, r)
		}
		slices.Reverse(reqs)
		for _, r := range reqs {
			rep := proto.Reply{ID: r.ID, Output: strings.Join(r.Argv, "+")}
			if r.Glob != "" {
				rep.Files = map[string]string{"counter": "7"}
			}
			if slices.Contains(r.Argv, "fail") {
				rep.Err = "exit status 1"
			}
			_ = enc.Encode(rep)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := v.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	a, b, c := v.Go(time.Second, "a", "1"), v.Go(time.Second, "b"), v.Go(time.Second, "fail", "c")
	files, err := v.Files("/sys/*")
	if err != nil || files["counter"] != "7" {
		t.Errorf("files %v, %v", files, err)
	}
	if out, err := b(); out != "b" || err != nil {
		t.Errorf("b: %q, %v", out, err)
	}
	if out, err := a(); out != "a+1" || err != nil {
		t.Errorf("a: %q, %v", out, err)
	}
	if out, err := c(); out != "fail+c" || err == nil || !strings.Contains(err.Error(), "fail c in machine m: exit status 1") {
		t.Errorf("c: %q, %v", out, err)
	}
	if _, err := v.Go(time.Second, "late")(); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a guest that is gone: %v", err)
	}
}

// A guest that says why it could not get ready, and a machine that ends.
func TestVMNotReady(t *testing.T) {
	v, guest := fakeVM(t)
	go func() {
		if c := guest(); c != nil {
			_ = json.NewEncoder(c).Encode(proto.Reply{Err: "load rdma_rxe.ko: no such device"})
		}
	}()
	if err := v.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "rdma_rxe") {
		t.Errorf("ready: %v", err)
	}
	dead, err := start(Machine{Name: "d", Dir: t.TempDir(), Kernel: &Kernel{}}, exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "machine d: ended") {
		t.Errorf("ready: %v", err)
	}
}
