package testenv

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Tool is a program that tests start.
type Tool struct {
	Program string
	Debian  string // the packages that bring it, separated by spaces
}

// Tools are the programs that tests need besides the ones that they build, in any
// package that `make test` looks at.
var Tools = []Tool{
	{"go", "golang-go"},
	{"gcc", "gcc libc6-dev"}, // the race detector's; see NeedTools
	{"ip", "iproute2"},
	{"bridge", "iproute2"},
	{"tc", "iproute2"},
	{"vtysh", "frr"},
	{"prometheus", "prometheus"},
	{"promtool", "prometheus"},
	{"nsenter", "util-linux"},
	{"ping", "iputils-ping"},
	{"sh", "dash"},
	{"cat", "coreutils"},
	{"chmod", "coreutils"},
	{"sysctl", "procps"},
	{"sleep", "coreutils"},
	{"nice", "coreutils"},
	{"true", "coreutils"},
	{"tcpdump", "tcpdump"}, // compiles filters of loomctl capture
	{"chromium", "chromium"},
	{"systemd-analyze", "systemd"},
	{"systemd-sysusers", "systemd"},
}

// NeedTools reports the tools that the machine lacks, all in one error that says which
// packages bring them. find is [exec.LookPath], and compiler the C compiler that go
// uses.
func NeedTools(tools []Tool, find func(string) (string, error), compiler string) error {
	var missing, packages []string
	for _, t := range tools {
		program := t.Program
		if program == "gcc" {
			program = compiler
		}
		if _, err := find(program); err == nil || errors.Is(err, exec.ErrDot) {
			continue
		}
		missing = append(missing, program)
		for p := range strings.FieldsSeq(t.Debian) {
			if !strings.Contains(" "+strings.Join(packages, " ")+" ", " "+p+" ") {
				packages = append(packages, p)
			}
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("the tests need programs that are not here: %s; on Debian: apt-get install %s", strings.Join(missing, ", "), strings.Join(packages, " "))
}
