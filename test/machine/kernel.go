package machine

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
	"regexp"
	"slices"
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

// Kernel downloads the suite's current kernel, once, and keeps its image and the
// modules of these names, with all that they need.
func (s *Suite) Kernel(modules ...string) (*Kernel, error) {
	names, err := s.closure("linux-image-amd64")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !kernelPart.MatchString(n) })
	k := &Kernel{}
	for _, n := range names {
		if version, ok := strings.CutPrefix(n, "linux-image-"); ok {
			k.Version = version
		}
	}
	if k.Version == "" {
		return nil, fmt.Errorf("linux-image-amd64 of %s depends on no kernel: %v", s.Name, names)
	}
	home := s.path("linux-" + k.Version)
	k.Vmlinux, k.Modules = filepath.Join(home, "vmlinux"), filepath.Join(home, "modules")
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
	if err := s.unpack(tree, names); err != nil {
		return nil, err
	}
	if err := k.take(tree, modules); err != nil {
		return nil, err
	}
	text := asked + "\n" + strings.Join(k.Order, "\n")
	return k, errors.Join(os.RemoveAll(tree), os.WriteFile(list, []byte(text), 0o644))
}

// kernelPart matches the packages that make up a kernel; of what it depends on besides,
// nothing is needed to boot it.
var kernelPart = regexp.MustCompile(`^linux-(image|binary|modules|base)-[0-9]`)

// take takes what is needed out of a kernel's unpacked packages.
func (k *Kernel) take(tree string, modules []string) error {
	if _, err := output(tree, "depmod", "-b", tree, k.Version); err != nil {
		return err
	}
	var image []byte
	var err error
	for _, at := range []string{"boot/vmlinuz-" + k.Version, "lib/modules/" + k.Version + "/vmlinuz"} { // before and since 7.0
		if image, err = os.ReadFile(filepath.Join(tree, at)); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
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
