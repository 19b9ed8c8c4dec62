//go:build uml

package uml

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// folderVar names the environment variable with the folder of what the guest reads.
	folderVar   = "LOOM_UML"
	modulesFile = "modules"
	// recordFolder is there if the tests are to leave messages in it.
	recordFolder = "record"
	pattern      = "^TestUML"
)

// begin and end are the lines around what a package's tests say. The second one goes on
// with how they have ended.
func begin(pkg string) string { return "begin of " + pkg }
func end(pkg string) string   { return "end of " + pkg + ": " }

// wellEnded is how tests have ended that have all passed.
const wellEnded = "<nil>"

// guest is the first process of the machine: it runs the tests, and halts the machine.
func guest() {
	dir := os.Getenv(folderVar)
	if err := setUp(dir); err != nil {
		fmt.Println("cannot set the machine up:", err)
	} else {
		for _, p := range packages {
			fmt.Println(begin(p))
			c := exec.Command(filepath.Join(dir, binary(p)), "-test.v", "-test.run", pattern, "-test.timeout", limit.String())
			c.Dir, c.Stdout, c.Stderr = filepath.Join("/mnt", "work"), os.Stdout, os.Stdout
			fmt.Printf("%s%v\n", end(p), c.Run())
		}
	}
	unix.Sync()
	fmt.Println("cannot halt:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	select {}
}

// setUp mounts what programs expect, and loads the modules.
func setUp(dir string) error {
	var err error
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/mnt"}} {
		if e := unix.Mount(m[0], m[1], m[0], 0, ""); e != nil && !errors.Is(e, unix.EBUSY) {
			err = errors.Join(err, fmt.Errorf("mount %s: %w", m[1], e))
		}
	}
	if out := filepath.Join(dir, recordFolder); exists(out) { // the root is read-only, this is not
		err = errors.Join(err, os.MkdirAll("/mnt/record", 0o755), unix.Mount("none", "/mnt/record", "hostfs", 0, out), os.Setenv("LOOM_RECORD", "/mnt/record"))
	}
	err = errors.Join(err, os.MkdirAll("/mnt/work", 0o755), os.Setenv("TMPDIR", "/mnt"), os.Setenv("HOME", "/mnt"), os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
	list, e := os.ReadFile(filepath.Join(dir, modulesFile))
	err = errors.Join(err, e)
	for _, m := range strings.Fields(string(list)) {
		err = errors.Join(err, load(m))
	}
	return err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func load(module string) error {
	f, err := os.Open(module)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", module, err)
	}
	return nil
}
