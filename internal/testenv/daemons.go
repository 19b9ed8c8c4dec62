package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// DaemonsVar names the environment variable with the folder of leafd, spined and loomctl.
// testgate sets it when a test binary that the caller built runs as root. Root must
// not fill the caller's build cache, and may have no Go toolchain.
const DaemonsVar = "LOOM_DAEMONS"

// Daemons returns a folder with leafd, spined and loomctl. That is $LOOM_DAEMONS if it is set;
// otherwise Daemons builds them, with the race detector if race is set. The caller
// calls remove when no daemon runs any more.
func Daemons(race bool) (dir string, remove func() error, err error) {
	if dir = os.Getenv(DaemonsVar); dir != "" {
		return dir, func() error { return nil }, nil
	}
	if dir, err = os.MkdirTemp("", "loom-daemons-"); err != nil {
		return "", nil, fmt.Errorf("folder for the daemons: %w", err)
	}
	remove = func() error { return os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // loomweb runs as nobody
		return "", nil, errors.Join(err, remove())
	}
	args := []string{"build", "-o", dir}
	if race {
		args = append(args, "-race")
	} else {
		args = append(args, "-trimpath") // as make build does it, whose packages then are in the cache
	}
	const cmds = "github.com/loomfabric/loom/cmd/"
	cmd := exec.Command("go", append(args, cmds+"leafd", cmds+"spined", cmds+"loomctl", cmds+"loomweb")...)
	if !race { // programs that run in a machine with other libraries, too
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("build leafd, spined, loomctl and loomweb (or name a folder that has them in $%s): %w\n%s", DaemonsVar, err, out), remove())
	}
	return dir, remove, nil
}
