// Package config reads the YAML files of leafd and spined: types with their
// defaults, validation that names file, line and remedy, and the conversion to
// the data plane's configuration. It only reads; nothing in it touches the
// machine, and what it must know of the machine is given to it.
package config
