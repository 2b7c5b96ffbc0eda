//go:build race

package stream

// raceDetector says that memory is not worth measuring, and time is short.
const raceDetector = true
