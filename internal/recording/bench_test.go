package recording_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/kopf-go/kopf/internal/recording"
)

// What it costs a handler to post an event, without what the API server costs: a new one, one of
// a flood about an object, and one that is not wanted.
func BenchmarkPost(b *testing.B) {
	for name, c := range map[string]struct {
		config recording.Config
		object func(i int) string
	}{
		"new":      {recording.Config{}, func(i int) string { return fmt.Sprint("w", i) }},
		"flood":    {recording.Config{}, func(int) string { return "w" }},
		"disabled": {recording.Config{Disabled: true}, func(int) string { return "w" }},
	} {
		b.Run(name, func(b *testing.B) {
			c.config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
			r := recording.New(c.config)
			b.ReportAllocs()
			for i := range b.N {
				object := widget
				object.Name = c.object(i)
				if err := r.Post(recording.Event{About: object, Type: "Normal", Reason: "R", Message: "text"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
