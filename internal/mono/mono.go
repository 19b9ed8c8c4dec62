// Package mono holds the one type that time has inside the fabric: nanoseconds
// on a monotonic clock. The package never reads a clock; drivers (the data
// plane, tests) pass time in.
package mono

import "time"

// Time is a point on a monotonic clock, in nanoseconds since an origin that
// only the driver knows. Differences are meaningful, absolute values are not.
type Time int64

// Add returns t moved by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time that passed from u to t; negative when u is later.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Apart reports whether t and u are further apart than limit, in either order. After a
// jump of the clock a time from the far future is as useless as one from the far past.
func (t Time) Apart(u, limit Time) bool { return uint64(t-u+limit) > 2*uint64(limit) }
