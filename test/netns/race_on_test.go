//go:build race

package netns

// raceDetector says whether the daemons are built with the race detector, as
// the tests themselves are.
const raceDetector = true
