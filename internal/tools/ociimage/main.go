// Command ociimage writes an OCI image layout with Loom's programs and nothing else: they
// are static, so that the image has no base. It must not depend on when or where it runs:
// the same programs make the same image.
//
//	ociimage -version v0.1.0 -arch amd64 -o dist/oci leafd=bin/leafd …
package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// made is when all of an image was made, as far as it says. Images of the same programs
// are the same.
var made = time.Unix(0, 0).UTC()

func main() {
	log.SetFlags(0)
	version := flag.String("version", "unknown", "what the image is labelled with")
	arch := flag.String("arch", "amd64", "GOARCH of the programs")
	out := flag.String("o", "dist/oci", "folder of the layout; one that is there is replaced")
	flag.Parse()
	if err := run(*out, *version, *arch, flag.Args()); err != nil {
		log.Fatalf("ociimage: %v", err)
	}
}

func run(out, version, arch string, programs []string) error {
	image, err := build(version, arch, programs)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path.Join(out, "oci-layout")); err == nil {
		err = os.RemoveAll(out) // it is one of ours, or of somebody who wants it replaced
		if err != nil {
			return err
		}
	}
	p, err := layout.Write(out, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout %s: %w", out, err)
	}
	return p.AppendImage(image, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}

// build makes the image in memory.
func build(version, arch string, programs []string) (v1.Image, error) {
	files := make(map[string]string, len(programs))
	var names []string
	for _, p := range programs {
		name, file, ok := strings.Cut(p, "=")
		if !ok || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not NAME=FILE", p)
		}
		names, files[name] = append(names, name), file
	}
	text, err := layer(names, files, arch)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "make packages"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, config(image, version, arch))
}

// config is what the image says of itself: started without arguments it is a leaf.
func config(image v1.Image, version, arch string) *v1.ConfigFile {
	c, err := image.ConfigFile()
	if err != nil {
		panic(err) // it was made in memory just now
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: made}
	c.Config = v1.Config{
		Cmd: []string{"/usr/bin/leafd", "run", "-c", "/etc/loom/leafd.yaml"},
		Env: []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "Loom", "org.opencontainers.image.version": version,
			"org.opencontainers.image.source": "https://github.com/loomfabric/loom", "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return c
}

// layer is a tar archive with the programs in /usr/bin, and the folders that they write to.
func layer(names []string, files map[string]string, arch string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"etc/", "etc/loom/", "run/", "run/loom/", "tmp/", "usr/", "usr/bin/"} {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: made, Format: tar.FormatPAX}
		if dir == "tmp/" {
			h.Mode = 0o1777
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		text, err := os.ReadFile(files[name])
		if err == nil {
			err = static(text, arch)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files[name], err)
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/" + name, Mode: 0o755, Size: int64(len(text)), ModTime: made, Format: tar.FormatPAX}
		if err := errors.Join(w.WriteHeader(&h), second(w.Write(text))); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func second(_ int, err error) error { return err }

// machines are the ELF machines of the architectures that Loom's XDP object, which is
// little-endian, can be loaded on.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV}

// static returns an error for a program that needs a loader or libraries, which the image
// has not, or that is for another machine.
func static(text []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("it is no program of Linux: %w; build it with `make build`", err)
	}
	if f.Machine != machines[arch] {
		return fmt.Errorf("it is for %v, and the image for %s; build it with GOARCH=%s", f.Machine, arch, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it needs a loader, which the image has not; build it with CGO_ENABLED=0")
		}
	}
	return nil
}
