package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalled returns a context that ends with the first SIGINT or SIGTERM (EXT-3). The second
// one is answered by exit, with the code that shells have for processes that a signal has
// killed. To leave that to the system would not do: it keeps signals that nobody handles from
// the first process of a container.
func signalled(stderr io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-stopped:
			return
		case <-signals:
			cancel()
		}
		select {
		case <-stopped:
		case second := <-signals:
			fmt.Fprintf(stderr, "error: %s, once more: what has not ended yet is left behind\n", second)
			exit(128 + int(second.(syscall.Signal)))
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		waiting.Wait()
		cancel()
	}
}
