package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/storage"
)

type anything = *unstructured.Unstructured

// watch notes every event of the resources that are selected, such as
// "id LISTED Gadget.v1.a.example g1".
func (h handlers) watch(id string, opts ...on.EventOption) {
	on.Event(func(_ context.Context, e *kopf.Event[anything]) error {
		gvk := e.Object.GroupVersionKind()
		h.w.note(fmt.Sprintf("%s %s %s.%s.%s %s +%s", id, e.Type, gvk.Kind, gvk.Version, gvk.Group, e.Object.GetName(), h.w.since()))
		return nil
	}, append(opts, on.ID(id), on.In(h.r))...)
}

// made notes every creation of the resources that are selected.
func (h handlers) made(id string, opts ...on.CreateOption) {
	on.Create(func(_ context.Context, c *kopf.Change[anything]) error {
		h.w.note(fmt.Sprintf("%s create %s %s +%s", id, c.Object.GetAPIVersion(), c.Object.GetName(), h.w.since()))
		return nil
	}, append(opts, on.ID(id), on.In(h.r))...)
}

func gadgets(group string, edit ...func(*simulated.Kind)) simulated.Kind {
	k := simulated.Kind{GroupVersion: group + "/v1", Kind: "Gadget", Plural: "gadgets", ShortNames: []string{"gg"}, Namespaced: true}
	for _, e := range edit {
		e(&k)
	}
	return k
}

func categories(names ...string) func(*simulated.Kind) {
	return func(k *simulated.Kind) { k.Categories = names }
}

func verbs(names ...string) func(*simulated.Kind) { return func(k *simulated.Kind) { k.Verbs = names } }

func (w *world) put(c *simulated.Collection, name string) {
	w.Helper()
	if _, err := c.Create(simulated.Object(ns, name, nil)); err != nil {
		w.Fatal(err)
	}
}

// logged counts the logs of a level that contain a text.
func (w *world) logged(level, text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.logs {
		if strings.Contains(l, " "+level+" ") && strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func (w *world) expectLogged(n int, level, text string) {
	w.Helper()
	if got := w.logged(level, text); got != n {
		w.Errorf("%d logs %s %q, want %d", got, level, text, n)
	}
}

// looks are the requests to the API's discovery since the mark.
func (w *world) looks() int { return w.server.Count(simulated.On{Verb: "discover"}) }

// OBS-6, X18: a CRD that comes is noticed by a watch, one that goes ends its streams,
// and one that comes again is a new one. Nothing is asked for in between.
// X18, OBS-8: deleted and created anew at once, also when both are learned at once.
// OBS-8: a CRD that goes while its deletion event is still on its way to the objects'
// watch takes them along, once.
// OBS-4, T035: what a name fits several times is not guessed. The registration is
// disabled, with one error that names the candidates; nothing else suffers.
func TestAmbiguous_OBS4_T035(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resource is ambiguous", "its handlers wait until it is")
		a := w.server.Serve(gadgets("a.example", categories("things")))
		b := w.server.Serve(gadgets("b.example", categories("things")))
		w.put(a, "ga")
		w.put(b, "gb")
		w.start(func(h handlers) {
			h.watch("kind", on.Kind("Gadget"))
			h.watch("short", on.ShortName("gg"))
			h.watch("exact", on.Resource("b.example/v1", "gadgets"))
			h.watch("category", on.Category("things"))
			h.watch("grouped", on.Singular("gadget"), on.Group("a.example"))
		})
		w.sleep(time.Minute)
		w.expectSet("exact LISTED Gadget.v1.b.example gb", "category LISTED Gadget.v1.a.example ga",
			"category LISTED Gadget.v1.b.example gb", "grouped LISTED Gadget.v1.a.example ga")
		for _, id := range []string{"kind", "short"} {
			w.expectLogged(1, "ERROR", "handler="+id+" source=engine/selectors_test.go:")
		}
		w.expectLogged(2, "ERROR", "candidates=gadgets.v1.a.example, gadgets.v1.b.example")
	})
}

// A registration that was ambiguous is not lost: once it is clear, it is served.
func TestAmbiguityEnds_OBS4(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resource is ambiguous")
		w.server.Serve(gadgets("a.example"))
		w.put(w.server.Serve(gadgets("b.example")), "gb")
		w.start(func(h handlers) { h.watch("kind", on.Kind("Gadget")) })
		w.sleep(time.Minute)
		w.expect()
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(2 * time.Second)
		w.expectAnyTime("kind LISTED Gadget.v1.b.example gb")
		w.mark()
		w.server.Serve(gadgets("a.example"))
		w.sleep(time.Minute)
		w.expectLogged(2, "ERROR", "resource is ambiguous")
	})
}

// A resource that comes later and is called the same does not stop a handler that
// works; whoever restarts it learns that it is ambiguous.
func TestAmbiguousLater_OBS4(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resource is ambiguous")
		a := w.server.Serve(gadgets("a.example"))
		o := w.start(func(h handlers) { h.watch("kind", on.Kind("Gadget")) })
		w.put(w.server.Serve(gadgets("b.example")), "gb")
		w.sleep(time.Minute)
		w.put(a, "ga")
		w.settle()
		w.expectAnyTime("kind ADDED Gadget.v1.a.example ga")
		w.expectLogged(1, "ERROR", "resource is ambiguous")
		if err := o.stop(); err != nil {
			t.Fatal(err)
		}
		w.mark()
		w.start(func(h handlers) { h.watch("kind", on.Kind("Gadget")) })
		w.sleep(time.Minute)
		w.expect()
	})
}

// SEL-9, SEL-10: pods are those of the core, and the events of others, which another
// handler asks for, are not for a handler of pods.
func TestDispatch_SEL10_SEL9(t *testing.T) {
	scenario(t, func(w *world) {
		core := w.server.Serve(simulated.Kind{GroupVersion: "v1", Kind: "Pod", Plural: "pods", Namespaced: true})
		metrics := w.server.Serve(simulated.Kind{GroupVersion: "metrics.k8s.io/v1", Kind: "PodMetrics", Plural: "pods", Namespaced: true})
		w.put(core, "p")
		w.put(metrics, "m")
		w.start(func(h handlers) {
			h.watch("pods", on.Plural("pods"))
			h.watch("metrics", on.Plural("pods"), on.Group("metrics.k8s.io"))
		})
		w.expectSet("pods LISTED Pod.v1. p", "metrics LISTED PodMetrics.v1.metrics.k8s.io m")
	})
}

// SEL-7: everything is everything but events, whose handling would make events.
func TestEverything_SEL7_T031(t *testing.T) {
	scenario(t, func(w *world) {
		for _, version := range []string{"v1", "v1beta1"} {
			w.server.Serve(simulated.Kind{GroupVersion: "events.k8s.io/" + version, Kind: "Event", Plural: "events", Namespaced: true})
		}
		w.create("w1", 1)
		w.start(func(h handlers) {
			h.watch("all", on.Everything(), on.Group("demo.example"))
			on.Event(func(_ context.Context, e *kopf.Event[*metav1.PartialObjectMetadata]) error {
				w.note("meta " + e.Object.Kind + " " + e.Object.Name)
				return nil
			}, on.ID("meta"), on.In(h.r), on.Everything())
		})
		w.expectSet("all LISTED Widget.v1.demo.example w1", "meta Widget w1", "meta Namespace default",
			"meta CustomResourceDefinition widgets.demo.example")
		if n := w.server.Count(simulated.On{Resource: "events"}); n != 0 {
			t.Errorf("events were asked for %d times", n)
		}
	})
}

// OBS-7: without the permission to watch CRDs there is one warning, and discovery is
// looked at from time to time.
// OBS-7: with scanning disabled only the look at the start counts.
// OBS-7: the look at the start is repeated until there is an answer.
// T036, OBS-4: what cannot be listed or watched is left out with one warning; what
// cannot be patched is left out for change handlers only, and only that.
func TestVerbs_T036_OBS4(t *testing.T) {
	scenario(t, func(w *world) {
		kinds := map[string][]string{
			"full": {"list", "watch", "patch"}, "fixed": {"list", "watch"}, "unwatchable": {"list", "patch"}, "unlistable": {"watch", "patch"},
		}
		for name, v := range kinds {
			w.put(w.server.Serve(gadgets(name+".example", categories("things"), verbs(v...))), name)
		}
		w.start(func(h handlers) {
			h.watch("w", on.Category("things"))
			h.made("m", on.Category("things"))
			h.made("named", on.Resource("fixed.example/v1", "gadgets"))
		})
		w.sleep(time.Minute)
		w.expectSet("w LISTED Gadget.v1.full.example full", "w LISTED Gadget.v1.fixed.example fixed",
			"m create full.example/v1 full", "w MODIFIED Gadget.v1.full.example full")
		w.expectLogged(2, "WARN", "resources cannot be listed and watched, and are left out resource=category things")
		w.expectLogged(2, "WARN", "left out=gadgets.v1.unlistable.example, gadgets.v1.unwatchable.example")
		w.expectLogged(2, "WARN", "left out=gadgets.v1.fixed.example")
	})
}

// SEL-6: the preferred version is followed; when another one becomes preferred, the
// first one is followed on as long as it is served. The objects are the same.
func TestPreferredVersion_SEL6_T030(t *testing.T) {
	scenario(t, func(w *world) {
		v1, v2 := gadgets("a.example"), gadgets("a.example")
		v2.GroupVersion = "a.example/v2"
		one, two := w.server.Serve(v1), w.server.Serve(v2)
		w.put(one, "g")
		w.put(two, "g")
		w.start(func(h handlers) {
			h.watch("preferred", on.Kind("Gadget"))
			h.watch("named", on.Kind("Gadget"), on.Version("v2"))
			h.watch("all", on.ResourceFunc(func(r on.APIResource) bool { return r.Kind == "Gadget" }))
		})
		w.expectSet("preferred LISTED Gadget.v1.a.example g", "named LISTED Gadget.v2.a.example g",
			"all LISTED Gadget.v1.a.example g", "all LISTED Gadget.v2.a.example g")
		w.server.Prefer("a.example/v2")
		v2.Categories = []string{"something new"}
		w.server.Serve(v2)
		w.sleep(time.Minute)
		w.mark()
		w.put(one, "h")
		w.settle()
		w.expectSet("preferred ADDED Gadget.v1.a.example h", "all ADDED Gadget.v1.a.example h")
	})
}

// SEL-6: when the version that was followed is not served any more, the preferred one
// is, and nobody is told that the objects are gone.
func TestVersionEnds_SEL6(t *testing.T) {
	scenario(t, func(w *world) {
		v1, v2 := gadgets("a.example"), gadgets("a.example")
		v2.GroupVersion = "a.example/v2"
		w.server.Serve(v1)
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget")) })
		w.put(w.server.Serve(v2), "g")
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(10 * time.Second)
		w.expectAnyTime("w LISTED Gadget.v2.a.example g")
	})
}

// While it is not sure yet that a version is gone, nobody is called in two of them.
func TestVersionsDoNotOverlap_OBS6(t *testing.T) {
	scenario(t, func(w *world) {
		v1, v2 := gadgets("a.example"), gadgets("a.example")
		v2.GroupVersion = "a.example/v2"
		w.server.Serve(v1)
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget")) })
		w.put(w.server.Serve(v2), "g")
		w.mark()
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(2 * time.Second)
		w.expect()
		w.sleep(10 * time.Second)
		w.expectAnyTime("w LISTED Gadget.v2.a.example g")
	})
}

// OBS-1: an aggregated API that does not answer is said once, and hurts nobody else; nor
// does one that fails later end what is followed.
// T039: CRDs that were there at the start are no reason to look again.
// OBS-3: CRDs of groups that no selector mentions are of no interest.
// Operators for Kubernetes' own resources need no permission for CRDs.
// A resource that turns up in discovery later than its CRD is found; so is one that
// no CRD tells of.
// While an API server starts, discovery may be empty for a moment. One look is not
// believed.
// Selectors that turn out to mean one resource do not get to share progress.
func TestIDsOnOneResource(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handler is left out of a resource where its id is taken")
		w.put(w.server.Serve(gadgets("a.example")), "g")
		w.start(func(h handlers) {
			h.made("same", on.Kind("Gadget"))
			h.made("same", on.Plural("gadgets"))
			h.watch("same", on.Plural("gadgets"))
			h.made("a.b", on.ShortName("gg"))
			h.made("a/b", on.Plural("gadgets"))
		})
		w.sleep(time.Minute)
		w.expectSet("same create a.example/v1 g", "a.b create a.example/v1 g",
			"same LISTED Gadget.v1.a.example g", "same MODIFIED Gadget.v1.a.example g")
		w.expectLogged(2, "ERROR", "handler is left out of a resource where its id is taken")
	})
}

// One resource has all its handlers in order of registration, whatever selects them.
func TestOrderOfRegistration(t *testing.T) {
	scenario(t, func(w *world) {
		w.put(w.server.Serve(gadgets("a.example", categories("things"))), "g")
		w.start(func(h handlers) {
			h.made("1", on.Category("things"))
			h.made("2", on.Kind("Gadget"))
			h.made("3", on.Everything(), on.Group("a.example"))
			h.made("4", on.Resource("a.example/v1", "gg"))
		})
		w.sleep(time.Minute)
		w.expectAnyTime("1 create a.example/v1 g", "2 create a.example/v1 g", "3 create a.example/v1 g", "4 create a.example/v1 g")
		if n := w.server.Count(simulated.On{Verb: "watch", Resource: "gadgets"}); n != 1 {
			t.Errorf("%d watches", n)
		}
	})
}

// A resource that joins a category later is taken; if others handle it already, it
// takes a restart.
// Handlers that want no more than metadata get no more, and change handlers go by it.
func TestMetadataOnly(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		w.start(func(h handlers) {
			on.Update(func(_ context.Context, c *kopf.Change[*metav1.PartialObjectMetadata]) error {
				w.note(fmt.Sprintf("update %s %s %v → %v", c.Object.Kind, c.Object.Name, c.Old.Labels, c.New.Labels))
				c.Patch.Apply(func(o *metav1.PartialObjectMetadata) { o.Annotations = map[string]string{"seen": "yes"} })
				return nil
			}, on.ID("u"), on.In(h.r), forWidgets)
			on.Delete(func(_ context.Context, c *kopf.Change[*metav1.PartialObjectMetadata]) error {
				w.note("delete " + c.Object.Name)
				return nil
			}, on.ID("d"), on.In(h.r), forWidgets)
		})
		w.resize("w1", 2) // is not even seen
		w.sleep(time.Minute)
		w.expect()
		w.update("w1", label("x", "y"))
		w.sleep(time.Minute)
		w.expect("update Widget w1 map[] → map[x:y]", "update Widget w1 map[x:y] → map[x:y]") // for its own annotation
		o := w.get("w1")
		if o.GetAnnotations()["seen"] != "yes" || strings.Contains(o.GetAnnotations()[lastHandledName], "spec") || o.Object["spec"] == nil {
			t.Errorf("got %v", o.Object)
		}
		w.delete("w1")
		w.sleep(time.Minute)
		w.expect("update Widget w1 map[] → map[x:y]", "update Widget w1 map[x:y] → map[x:y]", "delete w1")
		w.gone("w1")
		for _, r := range w.server.Requests(simulated.On{Resource: "widgets*"}) {
			if !strings.Contains(r.Accept, "as=PartialObjectMetadata") {
				t.Errorf("%s asks for %s", r.Verb, r.Accept)
			}
		}
		w.quiet(time.Hour)
	})
}

// A storage that keeps state outside of the metadata has to see it.
func TestMetadataAndStateInBody(t *testing.T) {
	for name, keep := range map[string]func(*settings.Persistence){
		"progress": func(s *settings.Persistence) { s.ProgressStorage = storage.StatusProgress(storage.StatusOptions{}) },
		"last handled": func(s *settings.Persistence) {
			s.DiffBaseStorage = storage.StatusLastHandled(storage.StatusLastHandledOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				keep(&w.settings.Persistence)
				w.create("w1", 1)
				w.start(func(h handlers) {
					on.Create(func(_ context.Context, c *kopf.Change[*metav1.PartialObjectMetadata]) error {
						w.note(fmt.Sprint("create ", c.Object.Name, " #", c.Retry))
						if c.Retry == 0 {
							return kopf.Retry(time.Second, errFlop)
						}
						return nil
					}, on.ID("c"), on.In(h.r), forWidgets)
				})
				w.sleep(time.Hour)
				w.expect("create w1 #0", "create w1 #1")
				w.quiet(time.Hour)
				for _, r := range w.server.Requests(simulated.On{Resource: "widgets*"}) {
					if strings.Contains(r.Accept, "PartialObjectMetadata") {
						t.Fatalf("%s asks for %s", r.Verb, r.Accept)
					}
				}
			})
		})
	}
}

// If one handler wants the whole object, it is read whole; the others get metadata.
func TestMetadataAndWhole(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 7)
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*metav1.PartialObjectMetadata]) error {
				w.note("meta " + e.Object.APIVersion + " " + e.Object.Kind + " " + e.Object.Name)
				return nil
			}, on.ID("meta"), on.In(h.r), on.Kind("Widget"))
			h.events()
		})
		w.expectSet("meta demo.example/v1 Widget w1", "event w1 LISTED 7")
		for _, r := range w.server.Requests(simulated.On{Resource: "widgets"}) {
			if strings.Contains(r.Accept, "PartialObjectMetadata") {
				t.Errorf("%s asks for %s", r.Verb, r.Accept)
			}
		}
	})
}

// A function that panics disables its own registration only.
func TestPanicInResourceFunc_OBS4(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resources cannot be selected")
		w.create("w1", 1)
		w.start(func(h handlers) {
			h.watch("bad", on.ResourceFunc(func(r on.APIResource) bool { return r.Categories[99] == "" }))
			h.watch("good", on.ResourceFunc(func(r on.APIResource) bool { return r.Kind == "Widget" }))
		})
		w.sleep(time.Minute)
		w.expectAnyTime("good LISTED Widget.v1.demo.example w1")
		w.expectLogged(1, "ERROR", "panic in the function of on.ResourceFunc: runtime error: index out of range")
	})
}

// Discovery may promise what the API server does not keep. It is said, once.
func TestDiscoveryIsWrong(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resource is in the API's discovery, but cannot be listed and watched")
		fixed := w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(simulated.Fail(404)))
		w.create("w1", 1)
		w.start(func(h handlers) { h.watch("w", on.Kind("Widget")) })
		w.sleep(time.Hour)
		w.expectLogged(1, "ERROR", "resource is in the API's discovery, but cannot be listed and watched")
		fixed()
		w.sleep(2 * time.Minute)
		w.expectAnyTime("w LISTED Widget.v1.demo.example w1")
	})
}
