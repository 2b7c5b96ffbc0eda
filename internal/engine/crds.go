package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/stream"
)

var (
	crdVersion  = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	crdResource = crdVersion.WithResource("customresourcedefinitions")
	crdKind     = crdVersion.WithKind("CustomResourceDefinition")
)

// news is something that makes a look at the API worth while, left by streams for
// run's goroutine.
type news struct {
	what       occasion
	resource   schema.GroupResource
	kind       *kind
	generation int64
}

type occasion int

const (
	crdListed   occasion = iota // was there when the operator started
	crdChanged                  // came or was changed
	crdDeleted                  // went
	crdsHidden                  // CRDs cannot be watched
	crdsShown                   // now they can
	kindMissing                 // the API server knows nothing of a resource that is followed
)

func (d *director) tell(n news) {
	d.mu.Lock()
	d.news = append(d.news, n)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// followCRDs watches the metadata of CustomResourceDefinitions: their names say
// which resource is coming, changing or going (OBS-6).
func (d *director) followCRDs(ctx context.Context) {
	s := stream.New(stream.Options{
		Client: d.client.MetadataOnly(crdKind), GVR: crdResource, GVK: crdKind, Logger: d.log,
		OnEvent: func(event stream.Event) {
			plural, group, _ := strings.Cut(event.Body.Name, ".")
			if !d.reader.interest.mentions(group) {
				return
			}
			n := news{what: crdChanged, resource: schema.GroupResource{Group: group, Resource: plural}, generation: event.Body.Generation}
			switch event.Type {
			case stream.Listed:
				n.what = crdListed
			case stream.Deleted:
				n.what = crdDeleted
			}
			d.tell(n)
		},
		OnError: func(f stream.Failure) {
			switch f.Reason {
			case stream.Forbidden, stream.NotServed:
				d.say(crdResource, slog.LevelWarn, "custom resource definitions cannot be watched, "+
					"so the API is looked at again and again for resources that come and go: grant list and watch",
					"resource", crdResource.GroupResource().String(), "every", d.settings.DiscoveryInterval, "error", f.Err)
				d.tell(news{what: crdsHidden})
			}
		},
	})
	d.streams.Go(func() { s.Run(ctx) })
	d.streams.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Synced():
			d.tell(news{what: crdsShown})
		}
	})
}

// notServed takes note that the API server knows nothing of a resource that is
// followed. It ends if discovery agrees.
func (d *director) notServed(k *kind) {
	if d.settings.DiscoverOnce {
		d.once(slog.LevelError, "resource is not served any more, its handlers wait until it is", "resource", resourceName(k.resource.GVR))
		return
	}
	d.tell(news{what: kindMissing, kind: k})
}

// missingOften is how often the API server has to deny a resource before discovery,
// which says that it is there, is doubted aloud.
const missingOften = 5

// heed makes of the news what is to be looked at, and when.
func (d *director) heed() {
	d.mu.Lock()
	all := d.news
	d.news = nil
	d.mu.Unlock()
	for _, n := range all {
		switch gr := n.resource; n.what {
		case crdListed: // no reason to look, unless it came between the looks and the list (T039)
			d.generations[gr] = n.generation
			if !d.catalogue.has(gr) {
				d.expect(gr, true)
			}
		case crdChanged:
			if !d.withdrawn[gr] && d.catalogue.has(gr) && d.generations[gr] == n.generation {
				continue // only its status
			}
			d.generations[gr] = n.generation
			delete(d.withdrawn, gr)
			d.expect(gr, true)
		case crdDeleted:
			delete(d.generations, gr)
			d.withdrawn[gr], d.renewed[gr] = true, true
			d.expect(gr, false)
		case crdsHidden:
			if !d.blind {
				d.blind = true
				d.all = sooner(d.all, time.Now().Add(d.settings.DiscoveryInterval))
			}
		case crdsShown:
			d.blind = false
			d.unsay(crdResource)
		case kindMissing:
			if n.kind.missing++; n.kind.missing == missingOften {
				n.kind.log.Error("resource is in the API's discovery, but cannot be listed and watched")
				for _, key := range d.keysOf(n.kind) {
					d.settleWithout(n.kind, key)
				}
			}
			d.lookAgain(n.kind.resource.GVR.Group, lookPauses[0]) // the news of its CRD may be on the way
		}
	}
}

// expect has discovery looked at until a resource is there, or not. News that come
// while it is being looked for do not put off the next look.
func (d *director) expect(gr schema.GroupResource, present bool) {
	at := time.Now().Add(lookPauses[0])
	if was := d.expected[gr]; was != nil {
		at = sooner(was.at, at)
	}
	d.expected[gr] = &expectation{present: present, at: at}
}
