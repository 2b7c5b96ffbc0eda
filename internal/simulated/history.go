package simulated

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Version is what one write has made of an object.
type Version struct {
	Type   string // ADDED, MODIFIED, DELETED
	Object *unstructured.Unstructured
	At     time.Time // of the write
}

// History returns all versions of all objects of the collection in the order of the
// writes, whoever made them, from a position in it. next is the position to go on
// from; the first one is 0.
func (c *Collection) History(from int) (versions []Version, next int) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	for _, change := range c.server.history[from:] {
		if change.in == c {
			versions = append(versions, Version{change.kind, change.now.object(), change.written})
		}
	}
	return versions, len(c.server.history)
}
