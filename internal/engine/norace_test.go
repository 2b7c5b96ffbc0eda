//go:build !race

package engine_test

const defaultSteps = 3000
