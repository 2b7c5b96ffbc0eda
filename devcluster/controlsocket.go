package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// controlSocket serves package control's protocol.
type controlSocket struct {
	server *http.Server
	ended  chan error
	cancel context.CancelFunc
}

func serveControl(path string, c *Cluster) (*controlSocket, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w; if its path is too long, set TMPDIR to a shorter one", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	for name, do := range map[string]func(context.Context) error{
		"restart": c.Restart,
		"compact": c.Compact,
		"pause":   func(context.Context) error { return c.Pause() },
		"resume":  func(context.Context) error { return c.Resume() },
	} {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, _ *http.Request) {
			// Not the request's context: a caller that gives up in the middle
			// must not leave the others without an API server.
			if err := do(ctx); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	s := &controlSocket{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		ended:  make(chan error, 1),
		cancel: cancel,
	}
	go func() { s.ended <- s.server.Serve(listener) }()
	return s, nil
}

// close ends what is being served; it must not be called with the lock of the
// cluster held.
func (s *controlSocket) close() error {
	s.cancel()
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.server.Shutdown(limit)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if serveErr := <-s.ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if err != nil {
		return fmt.Errorf("close the control socket: %w", err)
	}
	return nil
}
