// Package field has the error that a check of parameters returns about one of
// them. A reader of files can then say where it stands.
package field

import "fmt"

// Error is what is wrong with one parameter.
type Error struct {
	Key     string // as files have it
	Problem string // "inactive is 40ms"
	Remedy  string // "use a time above 0 and up to 30ms"
}

// Error joins problem and remedy.
func (e *Error) Error() string { return e.Problem + ": " + e.Remedy }

// Errorf returns an *Error.
func Errorf(key, remedy, problem string, args ...any) error {
	return &Error{key, fmt.Sprintf(problem, args...), remedy}
}
