// Package benchmarks measures the library side by side with what people would
// write by hand on controller-runtime. See the README.
package benchmarks

import (
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kopf-go/kopf/internal/cluster"
)

const (
	namespace   = "default"
	lastHandled = "kopf.zalando.org/last-handled-configuration"
	finalizer   = "kopf.zalando.org/KopfFinalizerMarker"
)

// TestMain is an operator when a benchmark has started this program as one.
func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if kind := os.Getenv(operatorVar); kind != "" {
		runOperator(kind)
		return
	}
	os.Exit(m.Run())
}

var connect = sync.OnceValues(cluster.Connect)

// controlPlane is where benchmarks that need one run; without, they are skipped.
func controlPlane(b *testing.B) *cluster.Cluster {
	b.Helper()
	c, err := connect()
	if err != nil {
		b.Skip(err)
	}
	return c
}
