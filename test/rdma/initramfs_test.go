package rdma

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/loomfabric/loom/test/rdma/proto"
)

// programs are what the guests run, from the packages that README.md names.
var programs = []string{"ibv_rc_pingpong", "ib_write_bw", "rping"}

// GuestModules are what the guests need of the kernel: devices of QEMU's microvm,
// Soft-RoCE, what user space talks to, and the CRC of RoCE's ICRC, which the
// kernel would else want to load by itself.
var GuestModules = []string{"virtio_mmio", "virtio_console", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"}

// Missing says what the machine lacks to run the test; nil: nothing.
func Missing() error {
	var without []string
	for _, p := range append([]string{"qemu-system-x86_64", "apt-get", "apt-cache", "dpkg", "depmod", "ldd", "xz"}, programs...) {
		if _, err := exec.LookPath(p); err != nil {
			without = append(without, p)
		}
	}
	if provider, err := rxeProvider(); err != nil {
		return err
	} else if provider == "" {
		without = append(without, "librxe (ibverbs-providers)")
	}
	if without == nil {
		return nil
	}
	return fmt.Errorf("this machine has no %s: on Debian run\n  apt-get install --no-install-recommends qemu-system-x86 perftest ibverbs-utils ibverbs-providers rdmacm-utils kmod xz-utils zstd",
		strings.Join(without, ", "))
}

// rxeProvider finds the library that libibverbs loads for Soft-RoCE; "": there
// is none.
func rxeProvider() (string, error) {
	found, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// WriteImage writes the guests' first file system: the guest program, a kernel's
// modules, and programs of this machine with the libraries that they need.
func WriteImage(file, guest string, k *Kernel) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := newArchive(z)
	a.add("/init", guest, 0o755)
	for _, m := range k.Order {
		a.add(path.Join(proto.ModuleDir, m), filepath.Join(k.Modules, m), 0o644)
	}
	a.file(proto.ModuleList, []byte(strings.Join(k.Order, "\n")), 0o644)
	if err := a.addPrograms(); err != nil {
		return err
	}
	return errors.Join(a.close(), z.Close())
}

// addPrograms adds the programs and all that the dynamic linker, libibverbs and
// glibc look for when they run.
func (a *archive) addPrograms() error {
	binaries := map[string]string{} // place in the guest: file
	for _, p := range programs {
		at, err := exec.LookPath(p)
		if err != nil {
			return err
		}
		binaries["/usr/bin/"+p] = at
	}
	provider, err := rxeProvider()
	if err != nil {
		return err
	}
	binaries[provider] = provider
	for _, place := range slices.Sorted(maps.Keys(binaries)) {
		a.add(place, binaries[place], 0o755)
		libs, err := libraries(binaries[place])
		if err != nil {
			return err
		}
		for _, l := range libs {
			a.add(l, l, 0o755)
		}
	}
	a.add("/etc/libibverbs.d/rxe.driver", "/etc/libibverbs.d/rxe.driver", 0o644)
	// glibc loads this one for pthread_exit.
	gcc, err := filepath.Glob("/lib/*/libgcc_s.so.1")
	if err != nil {
		return err
	}
	for _, l := range gcc {
		a.add(l, l, 0o755)
	}
	return nil
}

// libraries lists what the dynamic linker loads for a file, itself included.
func libraries(file string) ([]string, error) {
	out, err := output("", "ldd", file)
	if err != nil {
		return nil, err
	}
	var libs []string
	for line := range strings.Lines(out) {
		// "name => /path (0x…)", or "/path (0x…)" of the linker
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				libs = append(libs, word)
				break
			}
		}
	}
	return libs, nil
}

// archive writes a cpio archive of the kernel's kind ("newc", see
// Documentation/driver-api/early-userspace/buffer-format.rst). The first error
// ends it; close returns it.
type archive struct {
	w    io.Writer
	n    int // bytes written
	ino  int
	seen map[string]bool
	err  error
}

func newArchive(w io.Writer) *archive { return &archive{w: w, seen: map[string]bool{"/": true}} }

// add adds a file of this machine.
func (a *archive) add(name, from string, mode uint32) {
	if a.err != nil || a.seen[name] {
		return
	}
	data, err := os.ReadFile(from)
	if err != nil {
		a.err = err
		return
	}
	a.file(name, data, mode)
}

// file adds a file, and the directories above it. What is there already stays.
func (a *archive) file(name string, data []byte, mode uint32) {
	if a.seen[name] {
		return
	}
	a.directory(path.Dir(name))
	a.seen[name] = true
	const regular = 0o100000
	a.entry(name, regular|mode, data)
}

func (a *archive) directory(name string) {
	if a.seen[name] {
		return
	}
	a.directory(path.Dir(name))
	a.seen[name] = true
	const directory = 0o040000
	a.entry(name, directory|0o755, nil)
}

func (a *archive) close() error {
	a.entry("/TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode uint32, data []byte) {
	name = strings.TrimPrefix(name, "/")
	a.ino++
	const magic, links = 0x070701, 1
	a.write([]byte(fmt.Sprintf("%06X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		magic, a.ino, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(data)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() { a.write(make([]byte, -a.n&3)) }

func (a *archive) write(b []byte) {
	if a.err != nil {
		return
	}
	var n int
	n, a.err = a.w.Write(b)
	a.n += n
}
