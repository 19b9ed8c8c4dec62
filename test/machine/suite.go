package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CacheVar names the environment variable with the folder that downloads are kept in.
// By default they are kept in the user's cache.
const CacheVar = "LOOM_VM_CACHE"

// mirror is where packages are from.
const mirror = "http://deb.debian.org/debian"

// keyring is what the lists of packages are verified with.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// listsAge is how long lists of packages are good for.
const listsAge = 24 * time.Hour

// Suite is a release of Debian. Its packages are downloaded and unpacked, and not
// installed: apt-get runs with lists of its own and as if no package were installed.
type Suite struct {
	Name string // bookworm, trixie, sid, …
	dir  string // of its lists, kernels and trees
}

// OpenSuite makes a suite's packages available, and updates their lists if these are
// older than a day.
func OpenSuite(name string) (*Suite, error) {
	cache := os.Getenv(CacheVar)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("folder for downloads: %w; or set $%s", err, CacheVar)
		}
		cache = filepath.Join(user, "loom-vm")
	}
	s := &Suite{Name: name, dir: filepath.Join(cache, name)}
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	source := fmt.Sprintf("deb [arch=amd64 signed-by=%s] %s %s main\n", keyring, mirror, name)
	err := errors.Join(os.WriteFile(s.path("sources.list"), []byte(source), 0o644), os.WriteFile(s.path("status"), nil, 0o644))
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(s.path("updated")); err == nil && time.Since(st.ModTime()) < listsAge {
		return s, nil
	}
	if _, err := s.apt("", "update"); err != nil {
		return nil, err
	}
	kept, err := filepath.Glob(s.path("closure of *"))
	for _, k := range kept {
		err = errors.Join(err, os.Remove(k))
	}
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.path("updated"), nil, 0o644)
}

func (s *Suite) path(name string) string { return filepath.Join(s.dir, name) }

// apt runs apt-get on the suite's lists, in a folder.
func (s *Suite) apt(dir string, args ...string) (string, error) {
	options := []string{"-q"}
	for _, o := range []string{
		"Dir::Etc::SourceList=" + s.path("sources.list"), "Dir::Etc::SourceParts=/dev/null", "Dir::State::Lists=" + s.path("lists"),
		"Dir::State::status=" + s.path("status"), "Dir::Cache=" + s.dir, "APT::Install-Recommends=false", "APT::Sandbox::User=root",
		"Acquire::Languages=none",
	} {
		options = append(options, "-o", o)
	}
	return output(dir, "apt-get", append(options, args...)...)
}

// closure returns the names of packages and of all that they depend on, sorted. The answer
// is kept until the lists are updated.
func (s *Suite) closure(packages ...string) (names []string, err error) {
	kept := s.path("closure of " + strings.Join(packages, " "))
	if text, err := os.ReadFile(kept); err == nil {
		return strings.Fields(string(text)), nil
	}
	out, err := s.apt("", append([]string{"-s", "install"}, packages...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "Inst "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, os.WriteFile(kept, []byte(strings.Join(names, " ")), 0o644)
}

// unpack downloads packages and unpacks them into a new tree, in which /bin, /lib and
// /sbin are those of /usr as on an installed system. No script of a package runs.
func (s *Suite) unpack(tree string, names []string) error {
	debs := tree + ".debs"
	defer os.RemoveAll(debs)
	err := errors.Join(os.RemoveAll(tree), os.RemoveAll(debs), os.MkdirAll(debs, 0o755), os.MkdirAll(tree, 0o755))
	for _, d := range []string{"bin", "lib", "lib64", "sbin"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(tree, "usr", d), 0o755), os.Symlink("usr/"+d, filepath.Join(tree, d)))
	}
	if err != nil {
		return err
	}
	if _, err := s.apt(debs, append([]string{"download"}, names...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) != len(names) {
		return fmt.Errorf("apt-get download left %d files of %d packages in %s, %v", len(files), len(names), debs, err)
	}
	for _, f := range files {
		deb, tar := exec.Command("dpkg-deb", "--fsys-tarfile", f), exec.Command("tar", "-x", "--keep-directory-symlink", "-C", tree)
		var errs bytes.Buffer
		deb.Stderr, tar.Stderr = &errs, &errs
		if tar.Stdin, err = deb.StdoutPipe(); err != nil {
			return err
		}
		if err := errors.Join(deb.Start(), tar.Run(), deb.Wait()); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", f, err, errs.String())
		}
	}
	return nil
}

// unread are patterns of a tree's folders that no program of the tests reads.
var unread = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/bash-completion", "usr/share/zsh", "usr/share/lintian",
	"usr/share/common-licenses", "usr/share/i18n", "usr/share/bug", "usr/share/perl*", "usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/udev/hwdb.d"}

// Userland returns a folder with the file system that packages and all that they need
// make. It is made once, and again when the suite has other packages.
func (s *Suite) Userland(packages ...string) (string, error) {
	names, err := s.closure(packages...)
	if err != nil {
		return "", err
	}
	tree, list := s.path("userland"), s.path("userland.list")
	want := strings.Join(names, " ")
	if have, err := os.ReadFile(list); err == nil && string(have) == want {
		return tree, nil
	}
	if err := errors.Join(os.RemoveAll(list), s.unpack(tree, names)); err != nil {
		return "", err
	}
	for _, pattern := range unread {
		folders, gerr := filepath.Glob(filepath.Join(tree, pattern))
		err = errors.Join(err, gerr)
		for _, f := range folders {
			err = errors.Join(err, os.RemoveAll(f))
		}
	}
	return tree, errors.Join(err, os.WriteFile(list, []byte(want), 0o644)) // last: what it names is there
}

// output runs a program in a folder; an error has what it printed.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}
