package devcluster

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// logTail keeps the last lines that a process wrote, for the error messages.
// It is safe for concurrent use.
type logTail struct {
	copyTo io.Writer // may be nil

	mu    sync.Mutex
	lines []string
	rest  []byte // a line without its end
}

const (
	tailLines = 20
	// A line of the API server may carry a whole object.
	tailLineLength = 500
)

func (t *logTail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, text...)
	for {
		line, rest, found := bytes.Cut(t.rest, []byte("\n"))
		if !found {
			break
		}
		t.add(line)
		t.rest = rest
	}
	if len(t.rest) > 64<<10 {
		t.add(t.rest)
		t.rest = nil
	}
	if t.copyTo != nil {
		// The process must not stop because nobody reads its log.
		_, _ = t.copyTo.Write(text)
	}
	return len(text), nil
}

func (t *logTail) add(line []byte) {
	if len(line) > tailLineLength {
		line = append(line[:tailLineLength:tailLineLength], "…"...)
	}
	t.lines = append(t.lines, string(line))
	if len(t.lines) > tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
}

// String returns the last lines.
func (t *logTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.rest) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(t.rest))
	}
	if len(lines) == 0 {
		return "(it wrote nothing)"
	}
	return strings.Join(lines, "\n")
}

// reset forgets the lines of an earlier process.
func (t *logTail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines, t.rest = nil, nil
}

// lockedWriter lets several processes write to one writer.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(text)
}
