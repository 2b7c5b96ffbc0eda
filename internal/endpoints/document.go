package endpoints

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/decisions"
)

// Document is what is known, of objects only of those that were asked for.
type Document struct {
	Name string `json:"name,omitempty"`
	decisions.State
	Objects []decisions.Account `json:"objects"`
}

// query says which objects are meant.
type query struct {
	kind, namespace, name string
	text                  string // in their titles
	limit                 int
}

// The limits of one answer.
const (
	defaultObjects = 100
	maxObjects     = decisions.Objects
)

func queryOf(r *http.Request) query {
	v := r.URL.Query()
	q := query{kind: v.Get("kind"), namespace: v.Get("namespace"), name: v.Get("name"), text: strings.ToLower(v.Get("q")), limit: defaultObjects}
	if n, err := strconv.Atoi(v.Get("limit")); err == nil && n > 0 {
		q.limit = min(n, maxObjects)
	}
	return q
}

// document puts together what is known: the objects with decisions, the last first; and if
// they are asked for by name, also those without.
func (s *Server) document(q query) Document {
	d := Document{Name: s.options.Name, State: s.options.Report(), Objects: []decisions.Account{}}
	known := map[types.UID]bool{}
	if q.name != "" {
		for _, standing := range s.options.Find(q.kind, q.namespace, q.name, q.limit) {
			known[standing.UID] = true
			d.Objects = append(d.Objects, decisions.Account{Standing: standing, Decisions: s.options.Ring.Of(standing.UID)})
		}
	}
	others := map[string]string{}
	for _, k := range d.Kinds {
		others[k.Name] = k.Kind
	}
	histories := s.options.Ring.Histories(q.limit, func(o decisions.Object) bool {
		return !known[o.UID] && o.Match(q.kind, q.namespace, q.name, others[o.Kind]) && strings.Contains(strings.ToLower(o.Title()), q.text)
	})
	for _, h := range histories {
		standing, found := s.options.Standing(h.UID)
		if !found {
			standing = decisions.Standing{Object: h.Object, State: "gone, or not followed any more"}
		}
		d.Objects = append(d.Objects, decisions.Account{Standing: standing, Decisions: h.Decisions})
	}
	return d
}

func (s *Server) json(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(s.document(queryOf(r))); err != nil {
		s.options.Log.Debug("answer was not taken", "path", r.URL.Path, "error", err)
	}
}
