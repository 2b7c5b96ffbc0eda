//go:build race

package webhook

const secondsPerHandshake = 20 // the race detector makes them slow
