package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/decisions"
)

// streaming counts the live views.
type streaming struct {
	sync.WaitGroup
	mu sync.Mutex
	n  int
}

const (
	maxStreams  = 16               // at a time
	heartbeat   = 15 * time.Second // so that a view that is gone is noticed
	slowTimeout = 10 * time.Second // for a client to take what was sent
)

func (s *streaming) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxStreams {
		return false
	}
	s.n++
	s.Add(1)
	return true
}

func (s *streaming) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	s.Done()
}

// events sends decisions as they are made, as server-sent events. Who is slow misses some,
// and who takes nothing any more is cut off.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.streaming.enter() {
		http.Error(w, "there are too many live views", http.StatusServiceUnavailable)
		return
	}
	defer s.streaming.leave()
	subscription := s.options.Ring.Subscribe()
	defer subscription.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := &eventStream{w: w, control: http.NewResponseController(w)}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	err := out.control.SetReadDeadline(time.Time{}) // that was for the request
	if err == nil {
		err = out.comment("live")
	}
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case news := <-subscription.C:
			err = out.send(news)
		case <-beat.C:
			err = out.comment("still here")
		}
	}
	s.options.Log.Debug("live view was cut off", "error", err)
}

type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventStream) send(news decisions.News) error {
	raw, err := json.Marshal(news) // one line
	if err != nil {
		return err
	}
	return e.write("data: %s\n\n", raw)
}

func (e *eventStream) comment(text string) error { return e.write(": %s\n\n", text) }

func (e *eventStream) write(format string, value any) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(slowTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, format, value); err != nil {
		return err
	}
	return e.control.Flush()
}
