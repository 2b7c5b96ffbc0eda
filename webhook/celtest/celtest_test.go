package celtest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/webhook/celtest"
)

func ExampleValidate() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}
	fmt.Println(celtest.Validate(`object.spec.nodeName == "a"`, pod, nil))
	fmt.Println(celtest.Validate(`object.spec.nodeName != oldObject.spec.nodeName`, pod, pod))
	// Output:
	// <nil>
	// failed expression: object.spec.nodeName != oldObject.spec.nodeName
}

func TestMessages(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for _, c := range []struct {
		rule celtest.Rule
		want string
	}{
		{celtest.Rule{Expression: "false"}, "failed expression: false"},
		{celtest.Rule{Expression: "false", Message: "no"}, "no"},
		{celtest.Rule{Expression: "false", Message: "no", MessageExpression: `"not " + object.metadata.name`}, "not p"},
		{celtest.Rule{Expression: "false", Message: "no", MessageExpression: `"  "`}, "no"},
		{celtest.Rule{Expression: "false", Message: "no", MessageExpression: `"a\nb"`}, "no"},
		{celtest.Rule{Expression: "false", Message: "no", MessageExpression: `string(object.spec.missing)`}, "no"},
	} {
		err := celtest.Request{Object: pod}.Validate(c.rule)
		if denied, ok := errors.AsType[*celtest.Denied](err); !ok || denied.Message != c.want {
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
	}
	err := celtest.Request{Object: pod}.Validate(celtest.Rule{Expression: "false", MessageExpression: "1"})
	if err == nil || !strings.Contains(err.Error(), "messageExpression: must evaluate to string") {
		t.Errorf("a message that is a number: %v", err)
	}
}

func TestErrorsAreThoseOfTheAPIServer(t *testing.T) {
	for expression, want := range map[string]string{
		"object.spec.":       "Syntax error",
		"nothing.spec":       "undeclared reference to 'nothing'",
		`"a"`:                "must evaluate to bool",
		"params.x == 1":      "undeclared reference to 'params'",
		"request.none == ''": "undefined field 'none'",
	} {
		if err := celtest.Compile(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", expression, err, want)
		}
		if err := celtest.Validate(expression, corev1.Pod{}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: evaluated to %v, want %q in it", expression, err, want)
		}
	}
	err := celtest.Validate("object.spec.missing.more == 1", corev1.Pod{}, nil)
	if _, denied := errors.AsType[*celtest.Denied](err); denied || err == nil || !strings.Contains(err.Error(), "no such key: missing") {
		t.Errorf("a field that is not there: %v", err)
	}
	many := "[1,2,3,4,5,6,7,8,9,10]"
	costly := strings.Repeat(many+".all(x, ", 8) + "true" + strings.Repeat(")", 8)
	if err := celtest.Validate(costly, corev1.Pod{}, nil); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("a rule that costs too much: %v", err)
	}
	if err := celtest.Compile("object.spec.replicas <= 5"); err != nil {
		t.Error(err)
	}
}

func TestWhatARuleMayLookAt(t *testing.T) {
	request := celtest.Request{
		OldObject: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "n"}},
		User:      "u", Groups: []string{"g"}, Subresource: "status", DryRun: true,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
	}
	for _, expression := range []string{
		`object == null && request.operation == "DELETE" && oldObject.metadata.name == request.name`,
		`request.namespace == "n" && request.subResource == "status" && request.dryRun && request.kind.kind == "Pod"`,
		`request.userInfo.username == "u" && "g" in request.userInfo.groups`,
		`namespaceObject.metadata.labels.a == "b"`,
	} {
		if err := request.Validate(celtest.Rule{Expression: expression}); err != nil {
			t.Error(err)
		}
	}
	if err := celtest.Validate(`request.operation == "CREATE" && oldObject == null`, corev1.Pod{}, (*corev1.Pod)(nil)); err != nil {
		t.Error(err)
	}
	if err := celtest.Validate(`request.operation == "UPDATE"`, corev1.Pod{}, corev1.Pod{}); err != nil {
		t.Error(err)
	}
	if err := celtest.Validate("true", func() {}, nil); err == nil {
		t.Error("a function is an object")
	}
	if err := celtest.Validate("true", nil, []int{1}); err == nil || !strings.Contains(err.Error(), "old object") {
		t.Errorf("a list is an object: %v", err)
	}
}
