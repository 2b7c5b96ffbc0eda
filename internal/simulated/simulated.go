// Package simulated is a Kubernetes API server in memory, reached through an
// http.RoundTripper instead of a socket. It has what an operator depends on: versions,
// watches, bookmarks, compaction, finalizers, the status endpoint, conflicts and
// preconditions, each answered as a real 1.37 server answers it; and it can be told
// to fail in all the ways in which real ones and the network before them do.
//
// It reads no clock but the time package's and starts no goroutine, so that in a
// testing/synctest bubble a whole operator runs against it in virtual time:
//
//	synctest.Test(t, func(t *testing.T) {
//		server := simulated.New()
//		widgets := server.Serve(simulated.Kind{GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true})
//		op, err := kopf.New(kopf.Options{Config: server.Config(), …})
//		…
//		widgets.Create(simulated.Object("default", "w1", map[string]any{"spec": …}))
//	})
//
// A server must be made inside of the bubble that uses it. Not simulated: managed
// fields, server-side apply, JSON and strategic patches, schemas other than pruning,
// defaulting, admission, access control, garbage collection, the namespace controller.
package simulated

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Kind is a resource that the server serves.
type Kind struct {
	GroupVersion string // as in apiVersion
	Kind         string
	Plural       string
	Singular     string // default: Kind in lower case
	ShortNames   []string
	Categories   []string
	Verbs        []string // default: all; for discovery only, nothing is refused
	Namespaced   bool
	// Status says that there is a status endpoint: it takes the status only, the main
	// endpoint everything else.
	Status bool
	// NoGeneration is for kinds whose metadata.generation stays zero, as ConfigMap's.
	NoGeneration bool
	// Keeps are the fields outside of the metadata that the schema knows, such as
	// "spec" or "status.phase"; what is not below one of them is pruned silently.
	// Default: everything is kept.
	Keeps []string
}

func (k *Kind) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(k.GroupVersion, k.Kind)
}

// resource is the kind's name in errors.
func (k *Kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk().Group, Resource: k.Plural}
}

// Server is the simulated API server. It is safe for concurrent use.
type Server struct {
	// BookmarkInterval is the pause between bookmarks on watches. Default: 1 minute.
	BookmarkInterval time.Duration
	// LegacyDiscovery is for servers that do not know aggregated discovery. Set it
	// before the first request.
	LegacyDiscovery bool
	// WholeObjects is for servers, such as of aggregated APIs, that do not know how to
	// give only the metadata of objects. Set it before the first request.
	WholeObjects bool

	mu          sync.Mutex
	collections map[string]*Collection // by apiVersion/plural
	order       []*Collection
	preferred   map[string]string // version by group
	broken      map[string]bool   // by apiVersion
	version     int64             // of the last write, over all objects
	identities  int64             // counts UIDs and generated names
	history     []change
	compacted   int64 // watches can't start from before this version
	pages       map[string]*page
	requests    []*Request
	hooks       []*hook

	changed  chan struct{} // closed and replaced when watches should look again
	cut      chan struct{} // closed and replaced to end all watches
	epoch    int           // counts the watches' generations; see Mute
	muted    int           // watches of an epoch before this one are half dead
	held     bool          // no watch event is delivered
	delay    time.Duration // of watch events
	watching int
}

// change is an entry of the history that watches follow.
type change struct {
	version int64
	written time.Time
	at      time.Time // when watches get to know
	in      *Collection
	kind    string // ADDED, MODIFIED, DELETED
	now     *version
	before  *version // nil for ADDED
}

// New makes a server that serves namespaces, events and CustomResourceDefinitions. Add
// kinds with Serve.
func New() *Server {
	s := &Server{
		BookmarkInterval: time.Minute,
		collections:      map[string]*Collection{}, preferred: map[string]string{}, broken: map[string]bool{}, pages: map[string]*page{}, version: 100,
		changed: make(chan struct{}), cut: make(chan struct{}),
	}
	s.Serve(Kind{GroupVersion: "v1", Kind: "Namespace", Plural: "namespaces", ShortNames: []string{"ns"}, Status: true, NoGeneration: true})
	s.Serve(Kind{GroupVersion: "v1", Kind: "Event", Plural: "events", ShortNames: []string{"ev"}, Namespaced: true, NoGeneration: true})
	s.Serve(Kind{GroupVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions", ShortNames: []string{"crd"}})
	return s
}

// Config is a connection to the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://simulated.invalid", Transport: s, QPS: -1}
}

// Version is the resourceVersion of the last write.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return text(s.version)
}

// Compact forgets the past: a watch that wants to start from a version before now,
// and the rest of a list that is being read in pages, are refused with 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version + 1
	clear(s.pages)
}

// bump makes a new version. The caller holds the lock.
func (s *Server) bump() int64 {
	s.version++
	return s.version
}

// identity makes a new UID. The caller holds the lock.
func (s *Server) identity() string {
	s.identities++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.identities)
}

// tell adds to the history. The caller holds the lock.
func (s *Server) tell(c change) {
	c.written = time.Now()
	c.at = c.written.Add(s.delay)
	s.history = append(s.history, c)
	s.look()
}

// look has all watches look again. The caller holds the lock.
func (s *Server) look() {
	close(s.changed)
	s.changed = make(chan struct{})
}
