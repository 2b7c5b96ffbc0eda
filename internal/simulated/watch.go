package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// watch is the body of an answer to a watch request.
type watch struct {
	server    *Server
	in        *Collection
	namespace string
	selector  selector
	ctx       context.Context
	request   *parsed
	closed    chan struct{}
	close     sync.Once
	cut       chan struct{}
	end       time.Time // as the client wished
	bookmarks bool
	epoch     int

	// For the one reader.
	buffer   []byte
	next     int   // in the history
	seen     int64 // all up to this version has been sent
	bookmark time.Time
	failed   error
}

// watch answers a watch request.
func (s *Server) watch(ctx context.Context, c *Collection, p *parsed) (*http.Response, error) {
	query := p.query
	selector, err := selectorOf(query)
	if err != nil {
		return answerError(apierrors.NewBadRequest(err.Error())), nil
	}
	initial := query.Get("sendInitialEvents") == "true"
	if initial && query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return answerError(apierrors.NewBadRequest("sendInitialEvents needs resourceVersionMatch=NotOlderThan")), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{
		server: s, in: c, namespace: p.Namespace, selector: selector, ctx: ctx, request: p,
		closed: make(chan struct{}), cut: s.cut, epoch: s.epoch,
		bookmarks: query.Get("allowWatchBookmarks") == "true",
		bookmark:  time.Now().Add(s.BookmarkInterval),
	}
	if seconds, _ := strconv.Atoi(query.Get("timeoutSeconds")); seconds > 0 {
		w.end = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	from := query.Get("resourceVersion")
	version, err := strconv.ParseInt(from, 10, 64)
	switch {
	case initial || from == "" || from == "0":
		w.start(initial)
	case err != nil:
		return answerError(apierrors.NewBadRequest("invalid resource version " + from)), nil
	case version < s.compacted:
		w.refuse(version)
	default:
		w.seen = version
		for w.next < len(s.history) && s.history[w.next].version <= version {
			w.next++
		}
	}
	s.watching++
	response := answerRaw(http.StatusOK, nil)
	response.Body, response.ContentLength = w, -1
	return response, nil
}

// start begins with everything that there is.
func (w *watch) start(mark bool) {
	s := w.server
	for _, v := range w.in.sorted(w.namespace) {
		if w.selected(v) {
			w.put("ADDED", w.request.shown(v))
		}
	}
	w.next, w.seen = len(s.history), s.version
	if mark {
		w.mark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
}

// refuse begins, and ends, with the error that a too old version gets.
func (w *watch) refuse(version int64) {
	err := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, w.server.compacted))
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	raw, _ := json.Marshal(status)
	w.put("ERROR", raw)
	w.failed = io.EOF
}

func (w *watch) put(kind string, raw []byte) {
	w.buffer = fmt.Appendf(w.buffer, "{\"type\":%q,\"object\":%s}\n", kind, raw)
}

func (w *watch) mark(annotations map[string]string) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(w.in.kind.GroupVersion)
	o.SetKind(w.in.kind.Kind)
	o.SetResourceVersion(text(w.seen))
	o.SetAnnotations(annotations)
	w.put("BOOKMARK", w.request.shown(newVersion(o)))
}

func (w *watch) selected(v *version) bool {
	return v != nil && w.selector.matches(v)
}

// Read is part of io.ReadCloser.
func (w *watch) Read(into []byte) (int, error) {
	for {
		if len(w.buffer) > 0 {
			n := copy(into, w.buffer)
			w.buffer = w.buffer[n:]
			return n, nil
		}
		if w.failed != nil {
			return 0, w.failed
		}
		changed, again := w.advance()
		if len(w.buffer) > 0 || w.failed != nil {
			continue
		}
		w.wait(changed, again)
	}
}

// advance collects what is due, and tells when there may be more.
func (w *watch) advance() (changed chan struct{}, again time.Time) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !w.end.IsZero() && !now.Before(w.end) {
		w.failed = io.EOF
		return nil, now
	}
	again = w.end
	if s.held || w.epoch < s.muted {
		return s.changed, again
	}
	for ; w.next < len(s.history); w.next++ {
		c := &s.history[w.next]
		if c.at.After(now) {
			return s.changed, earlier(again, c.at)
		}
		w.seen = c.version
		w.show(c)
	}
	w.seen = max(w.seen, s.version)
	if w.in.withdrawn {
		w.failed = io.EOF
		return nil, now
	}
	if !w.bookmarks {
		return s.changed, again
	}
	if !now.Before(w.bookmark) {
		w.bookmark = now.Add(s.BookmarkInterval)
		w.mark(nil)
	}
	return s.changed, earlier(again, w.bookmark)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// show sends a change as it looks through the watch's selector.
func (w *watch) show(c *change) {
	if c.in != w.in || w.namespace != "" && c.now.peek().GetNamespace() != w.namespace {
		return
	}
	is, was := w.selected(c.now) && c.kind != "DELETED", w.selected(c.before)
	switch {
	case is && was:
		w.put("MODIFIED", w.request.shown(c.now))
	case is:
		w.put("ADDED", w.request.shown(c.now))
	case was && c.kind == "DELETED":
		w.put("DELETED", w.request.shown(c.now))
	case was: // it has left the selection: what was selected, with the new version
		o := c.before.object()
		o.SetResourceVersion(text(c.version))
		w.put("DELETED", w.request.shown(newVersion(o)))
	}
}

func (w *watch) wait(changed chan struct{}, again time.Time) {
	var clock <-chan time.Time
	if !again.IsZero() {
		timer := time.NewTimer(time.Until(again))
		defer timer.Stop()
		clock = timer.C
	}
	select {
	case <-changed:
	case <-clock:
	case <-w.closed:
		w.failed = http.ErrBodyReadAfterClose
	case <-w.ctx.Done():
		w.failed = w.ctx.Err()
	case <-w.cut:
		w.failed = errReset
	}
}

// Close is part of io.ReadCloser.
func (w *watch) Close() error {
	w.close.Do(func() {
		close(w.closed)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		w.server.watching--
	})
	return nil
}

// Watches is how many watches are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching
}

// CutWatches resets the connections of all watches. With Compact before it, they
// cannot go on from where they were.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Mute makes all open watches half dead: they stay open, and nothing comes over them
// any more, not even bookmarks.
func (s *Server) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.muted = s.epoch
	s.look()
}

// Hold keeps everything from all watches until release is called, in which case it
// comes at once. Writes go on meanwhile.
func (s *Server) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = false
		s.look()
	}
}

// DelayWatches has every change from now on reach the watches only after a time.
func (s *Server) DelayWatches(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}
