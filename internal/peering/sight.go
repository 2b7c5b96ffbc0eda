package peering

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/body"
)

// sight is what an operator knows of its peers in one peering object.
//
// Whether a peer is alive is told by its last sign of life, as in Kopf, when it is seen for
// the first time. From then on the operator's own clock counts, from the moment when that
// sign was seen to change: clocks of other machines may go wrong by any time.
type sight struct {
	self     string
	priority int64

	of    types.UID // the object; empty: none has been looked at
	peers map[string]sighting
}

// sighting is when a sign of life was made, as far as can be told here.
type sighting struct {
	lastSeen time.Time // as the record says
	at       time.Time
}

// verdict is what follows of the peers.
type verdict struct {
	why     error            // nil: the operator may go on
	until   time.Time        // the first of those that are in the way ends then; zero: there are none
	dead    []string         // those whose time is over, sorted
	corrupt map[string]error // records that cannot be read
	present bool             // the operator is among the records
	fresh   bool             // the object is another one than the last time
}

// peer is one that lives.
type peer struct {
	identity string
	record
	deadline time.Time
}

// look judges a version of the object, as it was at a time (PEER-6). nil: there is none.
// Later, without having been seen again, it means the same: a peer is not dead just because
// nothing is heard of it.
func (s *sight) look(object *body.Body, where string, now time.Time) verdict {
	if object == nil {
		s.of, s.peers = "", nil
		return verdict{}
	}
	v := verdict{fresh: s.of != object.UID, corrupt: map[string]error{}}
	if v.fresh {
		s.of, s.peers = object.UID, nil
	}
	before := s.peers
	s.peers = map[string]sighting{}
	var higher, equal []peer
	records := recordsOf(object, v.corrupt)
	for _, identity := range slices.Sorted(maps.Keys(records)) {
		p := peer{identity: identity, record: records[identity]}
		was, known := before[identity]
		seen := sighting{p.lastSeen, now}
		switch {
		case p.lastSeen.IsZero():
		case known && was.lastSeen.Equal(p.lastSeen):
			seen.at = was.at
		case !known && v.fresh && p.lastSeen.Before(now):
			seen.at = p.lastSeen
		}
		s.peers[identity] = seen
		p.deadline = seen.at.Add(p.lifetime)
		switch {
		case identity == s.self:
			v.present = true
		case !p.deadline.After(now):
			v.dead = append(v.dead, identity)
		case p.priority > s.priority:
			higher = append(higher, p)
		case p.priority == s.priority:
			equal = append(equal, p)
		}
	}
	for _, p := range slices.Concat(higher, equal) {
		if v.until.IsZero() || p.deadline.Before(v.until) {
			v.until = p.deadline
		}
	}
	switch {
	case len(higher) > 0:
		v.why = &reason{slog.LevelInfo, "in favour of " + listed(highest(higher)) + " in " + where}
	case len(equal) > 0:
		v.why = &reason{slog.LevelWarn, "as there are operators of the same priority, which pause, too: " + listed(equal) + " in " + where}
	}
	return v
}

// recordsOf are those that can be read, by identity.
func recordsOf(object *body.Body, corrupt map[string]error) map[string]record {
	records := map[string]record{}
	tree, err := object.Tree()
	if err != nil {
		corrupt[""] = err
		return nil
	}
	status, is := tree["status"].(map[string]any)
	if !is && tree["status"] != nil {
		corrupt[""] = fmt.Errorf("its status is no object: %v", tree["status"])
	}
	for identity, value := range status {
		r, err := decodeRecord(value)
		if err != nil {
			corrupt[identity] = err
			continue
		}
		records[identity] = r
	}
	return records
}

// highest are those whom all others pause for, too.
func highest(peers []peer) []peer {
	top := slices.MaxFunc(peers, func(a, b peer) int { return cmp.Compare(a.priority, b.priority) })
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.priority < top.priority })
}

func listed(peers []peer) string {
	texts := make([]string, len(peers))
	for i, p := range peers {
		texts[i] = fmt.Sprintf("%s (priority %d", p.identity, p.priority)
		if p.message != "" {
			texts[i] += ": " + p.message
		}
		texts[i] += ")"
	}
	return strings.Join(texts, ", ")
}

// reason is why the operator pauses, and how loud that is to be said.
type reason struct {
	level slog.Level
	text  string
}

func (r *reason) Error() string { return daemons.ErrPaused.Error() + " " + r.text }
func (r *reason) Unwrap() error { return daemons.ErrPaused }
