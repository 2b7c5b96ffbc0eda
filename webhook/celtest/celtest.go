// Package celtest evaluates rules in CEL in unit tests, with the library that the API
// server uses, its functions and limits of cost included: rules of policies, and match
// conditions of webhooks.
//
//	err := celtest.Validate(`object.spec.replicas <= 5`, widget, nil)
//
// It is a module of its own, so that operators do not contain that library.
package celtest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Rule is a rule that must hold, with what is said if it does not.
type Rule struct {
	Expression        string
	Message           string // empty: the expression is told
	MessageExpression string // what it gives is told, if that is a text of one line
}

// Denied says that a rule does not hold.
type Denied struct {
	Message string // what the API server tells the client
}

func (d *Denied) Error() string { return d.Message }

// Request is what a rule may look at.
type Request struct {
	// Object and OldObject are what is asked for and what is there: anything that has a
	// JSON form; nil: there is none.
	Object, OldObject any
	// Operation is CREATE, UPDATE, DELETE or CONNECT; empty: what the objects make it.
	Operation   string
	Subresource string
	Resource    schema.GroupVersionResource
	User        string
	Groups      []string
	DryRun      bool
	Namespace   *corev1.Namespace // that the object is in, as namespaceObject; nil: none
}

// Compile tells whether the API server takes the expression of a rule. The error is what
// it says if not.
func Compile(expression string) error {
	return compile(condition{expression, cel.BoolType}).err()
}

// Validate tells whether an expression holds for a creation, update or deletion, by which
// of the objects is nil. If it does not, the error is a *[Denied]; other errors are those
// of the compiler and of the evaluation, which the API server denies requests for, too.
func Validate(expression string, object, oldObject any) error {
	return Request{Object: object, OldObject: oldObject}.Validate(Rule{Expression: expression})
}

// Validate tells whether the rule holds for the request. If it does not, the error is a
// *[Denied]; others are as for the function [Validate].
func (r Request) Validate(rule Rule) error {
	holds, err := r.Matches(rule.Expression)
	if err != nil || holds {
		return err
	}
	if rule.MessageExpression != "" {
		expression := condition{rule.MessageExpression, cel.StringType}
		if err := compile(expression).err(); err != nil {
			return fmt.Errorf("messageExpression: %w", err)
		}
		// As on the API server, one that fails only means that there is no such message.
		if message, err := r.evaluate(expression); err == nil {
			if text, ok := message.EvalResult.Value().(string); ok && usable(text) {
				return &Denied{strings.TrimSpace(text)}
			}
		}
	}
	if message := strings.TrimSpace(rule.Message); message != "" {
		return &Denied{message}
	}
	return &Denied{"failed expression: " + strings.TrimSpace(rule.Expression)}
}

func usable(message string) bool {
	message = strings.TrimSpace(message)
	return message != "" && len(message) <= apiservercel.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(message, "\n")
}

// Matches tells what an expression is for the request, such as a match condition. An
// error is one of the compiler, or of the evaluation.
func (r Request) Matches(expression string) (bool, error) {
	result, err := r.evaluate(condition{expression, cel.BoolType})
	return err == nil && result.EvalResult == celtypes.True, err
}

func (r Request) evaluate(c condition) (admissioncel.EvaluationResult, error) {
	program := compile(c)
	if err := program.err(); err != nil {
		return admissioncel.EvaluationResult{}, err
	}
	attributes, err := r.attributes()
	if err != nil {
		return admissioncel.EvaluationResult{}, err
	}
	request := admissioncel.CreateAdmissionRequest(attributes.Attributes,
		metav1.GroupVersionResource(r.Resource), metav1.GroupVersionKind(attributes.VersionedKind))
	results, _, err := admissioncel.NewCondition([]admissioncel.CompilationResult{admissioncel.CompilationResult(program)}).ForInput(
		context.Background(), attributes, request, admissioncel.OptionalVariableBindings{},
		admissioncel.CreateNamespaceObject(r.Namespace), apiservercel.RuntimeCELCostBudget)
	if err != nil {
		return admissioncel.EvaluationResult{}, err
	}
	return results[0], results[0].Error
}

// condition is an expression with the type that it must have.
type condition struct {
	expression string
	result     *cel.Type
}

func (c condition) GetExpression() string    { return c.expression }
func (c condition) ReturnTypes() []*cel.Type { return []*cel.Type{c.result} }

type program admissioncel.CompilationResult

func (p program) err() error {
	if p.Error != nil {
		return p.Error
	}
	return nil
}

// compile does as the API server does for what is new. No authorizer is there to ask.
func compile(c condition) program {
	return program(compiler().CompileCELExpression(c, admissioncel.OptionalVariableDeclarations{}, environment.NewExpressions))
}

// compiler is slow to make, and safe for concurrent use.
var compiler = sync.OnceValue(func() admissioncel.Compiler {
	return admissioncel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})
