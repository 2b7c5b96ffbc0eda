// Package wrapper is a user's package that registers handlers for other packages.
package wrapper

import (
	"context"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/typed"
)

// Create registers a handler without a function, which is a mistake.
func Create[T typed.Object](r *registry.Registry) {
	on.Create[T](nil, on.In(r)) // line 14
}

// Handle is a generic handler.
func Handle[T typed.Object](context.Context, *typed.Change[T]) error { return nil }
