// Package telemetry shows what a daemon counts to Prometheus, says whether it is
// alive and ready, and answers the lab in JSON. The metrics follow from the tags of
// the types that count (package stat). It reads copies when it is asked, and keeps
// no counter of its own; it must not change anything.
package telemetry
