package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/testenv"
)

// Users and groups of a machine that has none of these.
const (
	loomUser, loomGroup = 61001, 61002
	somebody            = 61003
)

// TestAdminSocketIsForTheGroup: under the units, the daemon's socket is for members of its
// group, and for nobody else but root.
func TestAdminSocketIsForTheGroup(t *testing.T) {
	if socket := os.Getenv("LOOM_TEST_SERVE"); socket != "" {
		beDaemon(t, socket)
		return
	}
	if socket := os.Getenv("LOOM_TEST_ASK"); socket != "" {
		if _, err := (&admin.Client{Socket: socket}).Get(t.Context(), "status", nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	testenv.NeedRoot(t)
	// What RuntimeDirectory= makes. Others must be able to get there at all.
	dir, err := os.MkdirTemp("", "loom-group-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, err := range []error{os.Chmod(dir, 0o755), os.Chown(dir, loomUser, loomGroup)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "leafd.sock")
	server := as(t, "LOOM_TEST_SERVE="+socket, loomUser, loomGroup)
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len(serving))
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != serving {
		t.Fatalf("the daemon says %q: %v", ready, err)
	}
	for _, c := range []struct {
		who      string
		uid, gid uint32
		groups   []uint32
		may      bool
	}{
		{"root", 0, 0, nil, true},
		{"the daemon's user", loomUser, loomGroup, nil, true},
		{"a member of the group", somebody, somebody, []uint32{loomGroup}, true},
		{"somebody", somebody, somebody, nil, false},
	} {
		text, err := as(t, "LOOM_TEST_ASK="+socket, c.uid, c.gid, c.groups...).CombinedOutput()
		if (err == nil) != c.may || !c.may && !strings.Contains(string(text), "join the group") {
			t.Errorf("%s: %v\n%s", c.who, err, text)
		}
	}
	in.Close() // it ends
	if err := server.Wait(); err != nil {
		t.Errorf("the daemon: %v", err)
	}
}

// serving is what a daemon of this test says when it listens.
const serving = "serving\n"

// beDaemon listens as a daemon does under the units' UMask=, until its input ends.
func beDaemon(t *testing.T, socket string) {
	syscall.Umask(0o077)
	l, err := listenAdmin("unix:"+socket, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		cancel()
	}()
	fmt.Print(serving)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpd.WriteJSON(w, http.StatusOK, admin.Status{}) })
	if err := httpd.Serve(ctx, l, answer, "the admin API", slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// as returns this test in another role, as another user.
func as(t *testing.T, role string, uid, gid uint32, groups ...uint32) *exec.Cmd {
	// The folder of the binary is root's; this way leads to it all the same.
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAdminSocketIsForTheGroup$")
	c.Env, c.Dir = []string{role}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}
	return c
}
