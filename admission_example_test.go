package kopf_test

import (
	"errors"
	"fmt"

	"github.com/kopf-go/kopf"
)

// A rejection says which fields are wrong, named as Kubernetes does.
func ExampleReject() {
	err := kopf.Reject(422, "database %s is not valid", "blue").
		Field("spec.engine", "is required").
		Field("spec.users[0].name", "is taken")
	fmt.Println(err)

	var rejected *kopf.RejectError
	if errors.As(error(err), &rejected) { // in a test of the handler
		fmt.Println(rejected.Code, rejected.Causes[0].Field)
	}
	// Output:
	// database blue is not valid: spec.engine: is required, spec.users[0].name: is taken
	// 422 spec.engine
}
