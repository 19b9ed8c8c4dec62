// Package telemetry shows what a daemon counts: to Prometheus, to whoever asks
// whether it is alive and ready, and to the lab as JSON. It reads copies, when
// it is asked, and keeps no counter of its own; it must not change anything.
package telemetry
