// Package equivalence has only tests: that what webhook configurations say in CEL and in
// label selectors is what the handlers' filters mean. It is a module of its own for the
// sake of the API server's library, which is for tests.
package equivalence
