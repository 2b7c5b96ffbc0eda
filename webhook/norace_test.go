//go:build !race

package webhook

const secondsPerHandshake = 1
