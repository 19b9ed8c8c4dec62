package rdma

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel is what a machine boots.
type Kernel struct {
	Version string
	Vmlinux string // file: the uncompressed ELF image
	Modules string // folder with the modules, uncompressed
	// Order are the modules' files, in the order to load them.
	Order []string
}

// FetchKernel downloads Debian's current kernel package with apt-get, once, and
// keeps below dir its image and the modules of these names, with all that they
// need. Nothing is installed.
func FetchKernel(dir string, modules ...string) (*Kernel, error) {
	name, err := kernelPackage()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, name)
	k := &Kernel{
		Version: strings.TrimPrefix(name, "linux-image-"),
		Vmlinux: filepath.Join(home, "vmlinux"), Modules: filepath.Join(home, "modules"),
	}
	// The list says for which modules the folder was made, and is written last.
	list, asked := filepath.Join(home, "modules.list"), strings.Join(modules, " ")
	if text, err := os.ReadFile(list); err == nil {
		if first, rest, _ := strings.Cut(string(text), "\n"); first == asked {
			k.Order = strings.Fields(rest)
			return k, nil
		}
	}
	if err := errors.Join(os.RemoveAll(home), os.MkdirAll(k.Modules, 0o755)); err != nil {
		return nil, err
	}
	tree := filepath.Join(home, "tree")
	if err := k.unpack(tree, name, modules); err != nil {
		return nil, err
	}
	text := asked + "\n" + strings.Join(k.Order, "\n")
	return k, errors.Join(os.RemoveAll(tree), os.WriteFile(list, []byte(text), 0o644))
}

// unpack downloads the package into a folder, and takes out what is needed.
func (k *Kernel) unpack(tree, name string, modules []string) error {
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	if _, err := output(tree, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tree, name+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %v in %s, %v", name, debs, tree, err)
	}
	if _, err := output(tree, "dpkg", "-x", debs[0], tree); err != nil {
		return err
	}
	if _, err := output(tree, "depmod", "-b", tree, k.Version); err != nil {
		return err
	}
	image, err := os.ReadFile(filepath.Join(tree, "boot/vmlinuz-"+k.Version))
	if err != nil {
		return err
	}
	elf, err := decompressKernel(image)
	if err != nil {
		return fmt.Errorf("vmlinuz-%s: %w", k.Version, err)
	}
	if err := os.WriteFile(k.Vmlinux, elf, 0o644); err != nil {
		return err
	}
	return k.takeModules(filepath.Join(tree, "lib/modules", k.Version), modules)
}

// kernelPackage asks apt which package the architecture's kernel is.
func kernelPackage() (string, error) {
	out, err := output("", "apt-cache", "depends", "linux-image-amd64")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + name, nil
		}
	}
	return "", errors.New("apt knows no linux-image-amd64: run apt-get update")
}

// output runs a program in a folder; an error has what it printed.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// Offsets in a bzImage's header (Linux Documentation/arch/x86/boot.rst; the
// payload's since protocol 2.08).
const (
	bzSetupSects    = 0x1f1
	bzMagic         = 0x202
	bzPayload       = 0x248
	bzPayloadLength = 0x24c
	bzHeaderEnd     = 0x250
	bzSector        = 512
)

var (
	magicELF  = []byte("\x7fELF")
	magicGzip = []byte{0x1f, 0x8b}
	magicXZ   = []byte("\xfd7zXZ\x00")
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// decompressKernel takes the ELF kernel out of a bzImage. A machine without
// hardware virtualisation that boots the ELF itself (PVH) is spared the
// decompressor, which would be most of its boot.
func decompressKernel(image []byte) ([]byte, error) {
	if len(image) < bzHeaderEnd || string(image[bzMagic:bzMagic+4]) != "HdrS" {
		return nil, errors.New("is not a bzImage")
	}
	sects := int(image[bzSetupSects])
	if sects == 0 {
		sects = 4
	}
	start := (sects+1)*bzSector + int(binary.LittleEndian.Uint32(image[bzPayload:]))
	size := int(binary.LittleEndian.Uint32(image[bzPayloadLength:]))
	if start < 0 || size < 8 || start+size > len(image) {
		return nil, fmt.Errorf("a payload of %d bytes at %d in an image of %d", size, start, len(image))
	}
	payload := image[start : start+size]
	var elf []byte
	var err error
	switch {
	case bytes.HasPrefix(payload, magicGzip):
		elf, err = gunzip(payload)
	case bytes.HasPrefix(payload, magicXZ): // the build appends the size in 4 bytes
		elf, err = filter(payload[:size-4], "xz", "-dc")
	case bytes.HasPrefix(payload, magicZstd):
		elf, err = filter(payload[:size-4], "zstd", "-dqc")
	default:
		return nil, fmt.Errorf("a payload of unknown compression, which begins with % x", payload[:8])
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(elf, magicELF) {
		return nil, errors.New("its payload is not an ELF file")
	}
	return elf, nil
}

func gunzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	return io.ReadAll(r)
}

// filter sends data through a program.
func filter(data []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(data)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, errs.String())
	}
	return out.Bytes(), nil
}
