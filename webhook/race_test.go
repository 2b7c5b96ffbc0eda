//go:build race

package webhook

const secondsPerHandshake = 5 // the race detector makes them slow
