package devcluster

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress tells a person how far a build is. It is safe for concurrent use.
type progress struct {
	out   io.Writer
	every time.Duration

	mu       sync.Mutex
	started  time.Time
	task     string
	modules  int             // downloaded so far
	module   string          // the one that is being downloaded
	pending  map[string]bool // packages that must be compiled, true once done
	compiled int
	messages []string // what else the go command said, for the error
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(fmt.Sprintf(format, args...))
}

// print needs the lock.
func (p *progress) print(line string) {
	_, _ = fmt.Fprintf(p.out, "devcluster: %s\n", line)
}

// report prints a line every now and then, until the returned function is called.
func (p *progress) report() (stop func()) {
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.mu.Lock()
				p.print(p.line())
				p.mu.Unlock()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// line needs the lock.
func (p *progress) line() string {
	var state string
	switch {
	case p.pending == nil && p.modules > 0:
		state = fmt.Sprintf("%d modules downloaded, now %s", p.modules-1, p.module)
	case p.pending == nil:
		state = "finding out what to compile"
	case p.compiled < len(p.pending):
		state = fmt.Sprintf("%d of %d packages compiled", p.compiled, len(p.pending))
	default:
		state = "all packages compiled, linking"
	}
	return fmt.Sprintf("%s: %s (%s)", p.task, state, p.elapsed())
}

func (p *progress) elapsed() time.Duration {
	return time.Since(p.started).Round(time.Second)
}

// begin starts the next program.
func (p *progress) begin(task string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task, p.pending, p.compiled, p.messages = task, nil, 0, nil
}

// expect sets the packages that the go command will name when it compiles them.
func (p *progress) expect(packages []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending, p.messages = make(map[string]bool, len(packages)), nil
	for _, pkg := range packages {
		p.pending[pkg] = false
	}
	if len(packages) > 1 {
		p.print(fmt.Sprintf("%s: %d packages to compile (%s)", p.task, len(packages), p.elapsed()))
	}
}

// goLine takes one line that the go command wrote to its standard error.
func (p *progress) goLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if module, found := strings.CutPrefix(line, "go: downloading "); found {
		if p.modules == 0 {
			p.print("downloading the modules that are not there yet")
		}
		p.modules++
		p.module = module
		return
	}
	if done, known := p.pending[line]; known {
		if !done {
			p.pending[line] = true
			p.compiled++
		}
		return
	}
	const keep = 20
	p.messages = append(p.messages, line)
	if len(p.messages) > keep {
		p.messages = p.messages[1:]
	}
}

// said returns what the go command said beside its progress.
func (p *progress) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.messages, "\n")
}
