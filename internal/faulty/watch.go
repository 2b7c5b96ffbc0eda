package faulty

import (
	"bufio"
	"context"
	"io"
	"sync"
	"time"
)

// watch is the body of an answer to a watch request, on its way to the client.
type watch struct {
	proxy    *Proxy
	request  Request
	ctx      context.Context // of the request: ends when the client has gone
	upstream io.ReadCloser
	read     sync.WaitGroup
	rest     []byte // of the event that is being sent; for the one reader

	mu     sync.Mutex
	events []event
	muted  bool
	err    error         // after the events
	news   chan struct{} // has room for one
}

// event is a line of the stream.
type event struct {
	line []byte
	due  time.Time
}

func (p *Proxy) attach(ctx context.Context, r Request, upstream io.ReadCloser) *watch {
	w := &watch{proxy: p, request: r, ctx: ctx, upstream: upstream, news: make(chan struct{}, 1)}
	p.mu.Lock()
	p.watches[w] = true
	p.mu.Unlock()
	w.read.Go(w.receive)
	return w
}

// receive takes the server's events as they come, so that delayed ones are not late
// twice.
func (w *watch) receive() {
	lines := bufio.NewReader(w.upstream)
	for {
		line, err := lines.ReadBytes('\n')
		due := time.Now().Add(w.proxy.latencyOf(w.request))
		w.mu.Lock()
		if len(line) > 0 && w.err == nil && !w.muted {
			w.events = append(w.events, event{line, due})
		}
		if err != nil && w.err == nil {
			w.err = err
		}
		w.mu.Unlock()
		w.wake()
		if err != nil {
			return
		}
	}
}

func (w *watch) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// end ends the watch, with a last line if there is one. What is still on its way is
// lost.
func (w *watch) end(line []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.err, w.muted = nil, err, false
	if line != nil {
		w.events = []event{{line: line}}
	}
	w.wake()
}

func (w *watch) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.muted = nil, true
}

// Read is part of io.ReadCloser.
func (w *watch) Read(into []byte) (int, error) {
	for {
		if len(w.rest) > 0 {
			n := copy(into, w.rest)
			w.rest = w.rest[n:]
			return n, nil
		}
		wait, err := w.next()
		if err != nil {
			return 0, err
		}
		if len(w.rest) > 0 {
			continue
		}
		if err := w.sleep(wait); err != nil {
			return 0, err
		}
	}
}

// next takes the next event if it is due, else says when it will be; zero: unknown.
func (w *watch) next() (wait time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.muted:
		return 0, nil
	case len(w.events) == 0:
		return 0, w.err
	}
	if wait = time.Until(w.events[0].due); wait > 0 {
		return wait, nil
	}
	w.rest, w.events = w.events[0].line, w.events[1:]
	return 0, nil
}

// sleep waits until there may be something to read.
func (w *watch) sleep(wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-w.news:
	case <-due:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

// Close is part of io.ReadCloser. It returns when nothing is received any more.
func (w *watch) Close() error {
	w.proxy.mu.Lock()
	delete(w.proxy.watches, w)
	w.proxy.mu.Unlock()
	err := w.upstream.Close()
	w.read.Wait()
	return err
}
