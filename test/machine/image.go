package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/loomfabric/loom/test/machine/proto"
)

// Modules are what every machine needs of its kernel: drivers of its
// devices.
var Modules = []string{"virtio_mmio", "virtio_pci", "virtio_console", "virtio_net"}

// Image is a machine's first file system while it is written. The first error ends it;
// WriteImage returns it.
type Image struct{ archive }

// WriteImage writes a file system with the guest program, a kernel's modules, and what
// fill adds. What is there first stays.
func WriteImage(file, guest string, k *Kernel, fill func(*Image)) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	i := &Image{*newArchive(w)}
	i.Add(proto.Program, guest, 0o755)
	for _, m := range k.Order {
		i.Add(path.Join(proto.ModuleDir, m), filepath.Join(k.Modules, m), 0o644)
	}
	i.File(proto.ModuleList, []byte(strings.Join(k.Order, "\n")), 0o644)
	fill(i)
	return errors.Join(i.close(), w.Flush())
}

// Add adds a file of this machine.
func (i *Image) Add(name, from string, mode fs.FileMode) {
	if i.err != nil || i.seen[name] {
		return
	}
	data, err := os.ReadFile(from)
	if err != nil {
		i.err = err
		return
	}
	i.File(name, data, mode)
}

// File adds a file.
func (i *Image) File(name string, data []byte, mode fs.FileMode) {
	i.put(name, regular|uint32(mode.Perm()), data)
}

// Link adds a symbolic link.
func (i *Image) Link(name, target string) { i.put(name, symlink|0o777, []byte(target)) }

// Program adds a program of this machine, by its name in PATH, or a file such as a library.
// All libraries that it needs come with it.
func (i *Image) Program(name, from string) {
	if i.err != nil {
		return
	}
	if !filepath.IsAbs(from) {
		if from, i.err = exec.LookPath(from); i.err != nil {
			return
		}
	}
	if i.Add(name, from, 0o755); i.err != nil {
		return
	}
	libs, err := libraries(from)
	if err != nil {
		i.err = err
	}
	for _, l := range libs {
		i.Add(l, l, 0o755)
	}
}

// Tree adds all of a folder, which becomes the root.
func (i *Image) Tree(dir string) {
	if i.err != nil {
		return
	}
	i.err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == dir || i.err != nil {
			return errors.Join(err, i.err)
		}
		name := strings.TrimPrefix(file, dir)
		info, err := d.Info()
		switch {
		case err != nil:
		case d.IsDir():
			i.directory(name)
		case d.Type() == fs.ModeSymlink:
			var target string
			if target, err = os.Readlink(file); err == nil {
				i.Link(name, target)
			}
		case d.Type().IsRegular():
			i.Add(name, file, info.Mode())
		}
		return errors.Join(err, i.err)
	})
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

// Types of an entry, in its mode.
const (
	regular   = 0o100000
	directory = 0o040000
	symlink   = 0o120000
)

func newArchive(w io.Writer) *archive { return &archive{w: w, seen: map[string]bool{"/": true}} }

// put adds an entry, and the directories above it. What is there already stays.
func (a *archive) put(name string, mode uint32, data []byte) {
	if a.seen[name] {
		return
	}
	a.directory(path.Dir(name))
	a.seen[name] = true
	a.entry(name, mode, data)
}

func (a *archive) directory(name string) {
	if a.seen[name] {
		return
	}
	a.put(name, directory|0o755, nil)
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
