package engine

import (
	"context"
	"fmt"
	"log/slog"
)

// say logs what is the matter with something, once until it is something else or
// unsaid.
func (d *director) say(about any, level slog.Level, message string, attrs ...any) {
	text := plain(message, attrs)
	d.mu.Lock()
	known := d.said[about] == text
	d.said[about] = text
	d.mu.Unlock()
	if !known {
		d.log.Log(context.Background(), level, message, attrs...)
	}
}

// once logs what would otherwise be repeated with every attempt.
func (d *director) once(level slog.Level, message string, attrs ...any) {
	d.say(plain(message, attrs), level, message, attrs...)
}

// unsay has the next complaint about something heard again.
func (d *director) unsay(about any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.said, about)
}

// plain leaves out the errors, for many have a port or a time in them.
func plain(message string, attrs []any) string {
	text := message
	for _, attr := range attrs {
		if _, is := attr.(error); !is {
			text += fmt.Sprint(" ", attr)
		}
	}
	return text
}
