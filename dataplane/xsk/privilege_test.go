package xsk

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestOpenWithoutPrivilege takes capabilities away from a thread and opens a
// socket on it: first without the right to, then without the right to lock as
// much memory as the area has.
func TestOpenWithoutPrivilege(t *testing.T) {
	testenv.NeedRoot(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	lowered := limit
	lowered.Cur = 64 << 10
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lowered); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			t.Error(err)
		}
	}()
	for name, test := range map[string]struct {
		keep []uint // capabilities
		is   error
		want string
	}{
		"none":        {nil, unix.EPERM, "CAP_NET_RAW"},
		"no IPC_LOCK": {[]uint{unix.CAP_NET_RAW, unix.CAP_NET_ADMIN}, unix.ENOBUFS, "LimitMEMLOCK"},
		"enough":      {[]uint{unix.CAP_NET_RAW, unix.CAP_IPC_LOCK}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ns := testenv.NewNamespace(t, "lmxsk")
			link, _ := testenv.VethPair(t, ns, "lm0", ns, "lm1", testenv.VethOptions{})
			u, _ := newArea(t, 1024)
			cfg := SocketConfig{Ifindex: link.Attrs().Index, Name: "lm0", RX: 64, TX: 64, Fill: 64, Completion: 64}
			ns.Do(t, func() {
				keepCapabilities(t, test.keep)
				maps, fds := resources(t)
				s, err := Open(u, cfg)
				if err == nil {
					err = s.Close()
				}
				if !errors.Is(err, test.is) {
					t.Errorf("opening says %v, want %v", err, test.is)
				}
				if err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %q does not mention %q", err, test.want)
				}
				if m, f := resources(t); m != maps || f != fds {
					t.Errorf("%d mappings and %d descriptors are left", m-maps, f-fds)
				}
			})
		})
	}
}

// keepCapabilities takes all capabilities but keep from the calling thread,
// which must be one that nothing else runs on later.
func keepCapabilities(t testing.TB, keep []uint) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range keep {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatalf("keep only capabilities %v: %v", keep, err)
	}
}
