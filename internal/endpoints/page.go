package endpoints

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed page.html page.css page.js
var files embed.FS

// pageTemplate escapes everything that is put into it.
var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"age": age, "clock": clock, "in": until, "later": later, "join": strings.Join, "grade": grade, "count": count,
}).ParseFS(files, "page.html"))

// asset serves a file of the page.
func asset(name, contentType string) http.HandlerFunc {
	raw, err := files.ReadFile(name)
	return func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", contentType)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(raw))
	}
}

// page shows it all to people. Without scripts it shows what was so when it was asked for.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		Document
		Query string
		Limit int
		Alive string
	}{s.document(q), r.URL.Query().Get("q"), q.limit, s.trouble()})
	if err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		s.options.Log.Error("debug page cannot be shown", "error", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if _, err := w.Write(out.Bytes()); err != nil {
		s.options.Log.Debug("answer was not taken", "path", r.URL.Path, "error", err)
	}
}

// trouble is what the checks have to say.
func (s *Server) trouble() string {
	var all []string
	for _, c := range slices.Concat(s.options.Alive, s.options.Ready) {
		if err := c.Ask(); err != nil {
			all = append(all, c.Name+": "+err.Error())
		}
	}
	return strings.Join(all, "; ")
}

// grade is how something looks on the page.
func grade(outcome string) string {
	switch outcome {
	case "succeeded", "written", "began":
		return "good"
	case "failed", "abandoned", "refused", "forbidden":
		return "bad"
	case "retried", "ignored", "conflict":
		return "warn"
	}
	return "calm"
}

func count(counts map[string]uint64, outcome string) string {
	if n := counts[outcome]; n > 0 {
		return fmt.Sprint(n)
	}
	return ""
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// until is when something comes, for people; empty: never.
func until(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case time.Until(*t) <= 0:
		return "due"
	}
	return "in " + age(time.Until(*t))
}

// later is until, for a decision of which only what lies ahead is of interest.
func later(t *time.Time) string {
	if t == nil || time.Until(*t) <= 0 {
		return ""
	}
	return until(t)
}

func age(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
