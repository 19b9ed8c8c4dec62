package loomctl

import "errors"

// ErrRestart says that a daemon's file has changes which need a restart.
var ErrRestart = errors.New("some changes need a restart, and a reload would refuse all of them")

// ErrRefused says that a daemon would refuse its file.
var ErrRefused = errors.New("a reload would refuse the file")

// ErrSomeFailed says that some of the nodes did not answer, and others did.
var ErrSomeFailed = errors.New("no answer from some of the nodes")

// ErrUnhealthy says that doctor has found something.
var ErrUnhealthy = errors.New("something is wrong")

// The exit codes.
const (
	exitOK = iota
	exitFailed
	exitRestart
	exitSomeFailed
)

// exitCodes is for the help.
const exitCodes = "The exit code is 0 if all went well, 1 if something was refused or nobody answers, 2 if a\n" +
	"change of the configuration needs a restart or doctor finds something wrong, and 3 if some of several nodes did not answer."

// ExitCode returns what a program ends with that got an error of the command line.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, ErrSomeFailed):
		return exitSomeFailed
	case errors.Is(err, ErrRestart), errors.Is(err, ErrUnhealthy):
		return exitRestart
	}
	return exitFailed
}
