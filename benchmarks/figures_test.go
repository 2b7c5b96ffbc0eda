package benchmarks

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/cluster"
)

func median[T any](runs []T, field func(T) float64) float64 {
	values := make([]float64, 0, len(runs))
	for _, run := range runs {
		values = append(values, field(run))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func requests(b *testing.B, c *cluster.Cluster, group string) map[string]int {
	b.Helper()
	counts, err := c.Requests(context.Background(), group)
	if err != nil {
		b.Fatal(err)
	}
	return counts
}

// parallel calls do for the numbers below n, in that many goroutines.
func parallel(goroutines, n int, do func(int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// withRaw completes a configuration for a client of bytes.
func withRaw(config *rest.Config) *rest.Config {
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	return config
}
