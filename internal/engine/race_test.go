//go:build race

package engine_test

const defaultSteps = 1000
