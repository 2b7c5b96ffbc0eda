package engine

// What tests of the engine from outside need to see of it, or to do to it, for which
// there is no other way yet: pauses and lost leadership come from elsewhere.

// Suspend stops all work in the background.
func (e *Engine) Suspend(why error) { e.suspend(why) }

// Resume lets it begin again.
func (e *Engine) Resume() { e.resume() }

// Employed counts the objects with work in the background.
func (e *Engine) Employed() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.employed)
}
