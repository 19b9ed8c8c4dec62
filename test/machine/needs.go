package machine

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Need is a program, or a file, of this machine and the package of Debian that has it.
type Need struct{ Name, Package string }

// Needs are what it takes to make and run machines.
var Needs = []Need{
	{"qemu-system-x86_64", "qemu-system-x86"}, {"apt-get", "apt"}, {"dpkg-deb", "dpkg"}, {"tar", "tar"}, {"depmod", "kmod"}, {"ldd", "libc-bin"},
	{"xz", "xz-utils"}, {"zstd", "zstd"}, {keyring, "debian-archive-keyring"},
}

// Missing says what this machine lacks of needs, and how to get it; nil: nothing.
func Missing(needs ...Need) error {
	var names, packages []string
	for _, n := range needs {
		_, err := exec.LookPath(n.Name)
		if strings.HasPrefix(n.Name, "/") {
			_, err = os.Stat(n.Name)
		}
		if err != nil {
			names = append(names, fmt.Sprintf("%s (package %s)", n.Name, n.Package))
			packages = append(packages, n.Package)
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(packages)
	return fmt.Errorf("this machine has no %s: on Debian run\n  apt-get install --no-install-recommends %s",
		strings.Join(names, ", "), strings.Join(slices.Compact(packages), " "))
}
