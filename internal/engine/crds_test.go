package engine_test

import (
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

func TestCRDComesAndGoes_OBS6_X18(t *testing.T) {
	for name, selector := range map[string]on.AnyOption{
		"exact": on.Resource("a.example/v1", "gadgets"), "by kind in all groups": on.Kind("Gadget"), "by category": on.Category("things"),
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("resource is not served by the cluster, its handlers wait until it is")
				w.start(func(h handlers) {
					h.watch("w", selector)
					h.made("m", selector)
				})
				idle := w.server.Watches()
				for range 2 {
					w.sleep(time.Minute)
					w.mark()
					collection := w.server.Serve(gadgets("a.example", categories("things")))
					w.put(collection, "g1")
					w.sleep(2 * time.Second)
					w.expectSet("w LISTED Gadget.v1.a.example g1", "m create a.example/v1 g1", "w MODIFIED Gadget.v1.a.example g1")
					w.sleep(time.Minute)
					w.mark()
					w.sleep(time.Hour)
					if n := w.looks(); n != 0 {
						t.Errorf("%d requests to discovery in the steady state", n)
					}
					release := w.server.Hold() // the watches learn of the objects' end after that of the CRD
					w.server.Withdraw("a.example/v1", "gadgets")
					w.sleep(time.Second)
					release()
					w.sleep(5 * time.Second)
					w.expectAnyTime("w DELETED Gadget.v1.a.example g1")
					if n := w.server.Watches(); n != idle {
						t.Errorf("%d watches, %d before", n, idle)
					}
				}
			})
		})
	}
}

func TestCRDIsCreatedAnew_X18_OBS8(t *testing.T) {
	for name, held := range map[string]bool{"seen": false, "seen late": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.put(w.server.Serve(gadgets("a.example")), "g1")
				w.start(func(h handlers) { h.watch("w", on.Kind("Gadget")) })
				w.sleep(time.Minute)
				w.mark()
				release := func() {}
				if held {
					release = w.server.Hold()
				}
				w.server.Withdraw("a.example/v1", "gadgets")
				again := w.server.Serve(gadgets("a.example"))
				w.put(again, "g1")
				release()
				w.sleep(2 * time.Second)
				w.expectSet("w DELETED Gadget.v1.a.example g1", "w ADDED Gadget.v1.a.example g1") // two objects, two lanes
				w.mark()
				w.put(again, "g2")
				w.settle()
				w.expectAnyTime("w ADDED Gadget.v1.a.example g2")
			})
		})
	}
}

func TestCRDGoesBeforeItsObjects_OBS6(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("its handlers wait until it is")
		w.put(w.server.Serve(gadgets("a.example")), "g1")
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget")) })
		w.server.Mute() // what is open stays silent
		w.mark()
		w.server.CutWatches()
		stop := w.server.Before(simulated.On{Resource: "gadgets"}, simulated.Always(simulated.Fail(503)))
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(20 * time.Second)
		stop()
		w.sleep(time.Minute)
		w.expectAnyTime("w DELETED Gadget.v1.a.example g1")
	})
}

func TestCRDsAreForbidden_OBS7(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("its handlers wait until it is")
		w.settings.Scanning.Interval = 10 * time.Second
		w.server.Before(simulated.On{Resource: "customresourcedefinitions"}, simulated.Always(simulated.Fail(403)))
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget"), on.Group("a.example")) })
		w.sleep(10 * time.Minute)
		w.mark()
		w.put(w.server.Serve(gadgets("a.example")), "g1")
		w.sleep(11 * time.Second)
		w.expectAnyTime("w LISTED Gadget.v1.a.example g1")
		w.mark()
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(15 * time.Second)
		w.expectAnyTime("w DELETED Gadget.v1.a.example g1")
		w.mark()
		w.put(w.server.Serve(gadgets("a.example")), "g2")
		w.sleep(11 * time.Second)
		w.expectAnyTime("w LISTED Gadget.v1.a.example g2")
		w.expectLogged(1, "WARN", "custom resource definitions cannot be watched")
		w.mark()
		w.sleep(time.Minute)
		if n := w.looks(); n < 5 || n > 14 { // two requests each
			t.Errorf("%d requests to discovery in a minute", n)
		}
	})
}

func TestScanningDisabled_OBS7(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("its handlers wait until it is")
		w.settings.Scanning.Disabled = true
		w.create("w1", 1)
		w.start(func(h handlers) {
			h.watch("later", on.Kind("Gadget"))
			h.watch("now", on.Kind("Widget"))
		})
		w.put(w.server.Serve(gadgets("a.example")), "g1")
		w.sleep(time.Hour)
		w.expectAnyTime("now LISTED Widget.v1.demo.example w1")
		if looks, watches := w.looks(), w.server.Count(simulated.On{Resource: "customresourcedefinitions"}); looks != 2 || watches != 0 {
			t.Errorf("%d looks, CRDs were asked for %d times", looks, watches)
		}
		w.server.Withdraw("demo.example/v1", "widgets")
		w.sleep(time.Hour)
		w.expectLogged(1, "ERROR", "resource is not served any more")
	})
}

func TestScanningDisabledUntilThereIsAnAnswer(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("what the API serves cannot be read")
		w.settings.Scanning.Disabled = true
		w.create("w1", 1)
		w.server.Before(simulated.On{Verb: "discover", Times: 3}, simulated.Always(simulated.Fail(500)))
		w.start(func(h handlers) { h.watch("w", on.Kind("Widget")) })
		w.sleep(time.Minute)
		w.expectAnyTime("w LISTED Widget.v1.demo.example w1")
		w.expectLogged(1, "ERROR", "what the API serves cannot be read")
	})
}

func TestBrokenGroup_OBS1(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("group cannot be read", "resource is not found")
		aggregated := w.server.Serve(gadgets("broken.k8s.io"))
		w.put(aggregated, "g")
		w.create("w1", 1)
		mend := w.server.Break("broken.k8s.io/v1")
		w.start(func(h handlers) {
			h.watch("kind", on.Kind("Widget"))
			h.watch("broken", on.Kind("Gadget"), on.Group("broken.k8s.io"))
		})
		w.expectAnyTime("kind LISTED Widget.v1.demo.example w1")
		w.sleep(time.Hour)
		w.expectLogged(1, "ERROR", "group cannot be read, new resources in it wait until it can group=broken.k8s.io/v1")
		w.expectLogged(1, "ERROR", "resource is not found, its handlers wait resource=Gadget.broken.k8s.io handler=broken source=")
		w.mark()
		w.sleep(time.Hour)
		if n := w.looks(); n > 2*65 {
			t.Errorf("%d requests to discovery in an hour", n)
		}
		mend()
		w.mark()
		w.sleep(2 * time.Minute)
		w.expectAnyTime("broken LISTED Gadget.v1.broken.k8s.io g")
		w.mark()
		defer w.server.Break("broken.k8s.io/v1")()
		w.server.CutWatches()
		w.put(w.server.Serve(gadgets("c.example")), "g") // has the API looked at
		w.sleep(10 * time.Minute)
		w.expect()
	})
}

func TestCRDListing_T039(t *testing.T) {
	scenario(t, func(w *world) {
		w.put(w.server.Serve(gadgets("a.example")), "g")
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget")) })
		w.sleep(time.Hour)
		if n := w.looks(); n != 2 {
			t.Errorf("%d requests to discovery", n)
		}
		w.mark()
		w.server.Serve(gadgets("a.example", categories("new"))) // modified
		w.sleep(time.Hour)
		if n := w.server.Count(simulated.On{Verb: "discover", Resource: "apis/a.example"}); n != 2 || w.looks() != 4 {
			t.Errorf("%d looks at the group of a CRD that was changed, %d requests", n, w.looks())
		}
		w.expect()
	})
}

func TestForeignCRD_OBS3(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.watch("w", forWidgets) })
		w.mark()
		w.server.Serve(gadgets("a.example"))
		w.sleep(time.Hour)
		if n := w.looks(); n != 0 {
			t.Errorf("%d requests to discovery", n)
		}
	})
}

func TestNoCRDsForBuiltInGroups_OBS6(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(simulated.Kind{GroupVersion: "apps/v1", Kind: "Deployment", Plural: "deployments", Namespaced: true})
		w.start(func(h handlers) { h.watch("w", on.Resource("apps/v1", "deployments")) })
		w.sleep(time.Hour)
		if n := w.server.Count(simulated.On{Resource: "customresourcedefinitions"}); n != 0 || w.looks() != 1 {
			t.Errorf("CRDs were asked for %d times, discovery %d", n, w.looks())
		}
	})
}

func TestLateDiscovery_OBS6(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("its handlers wait until it is")
		w.start(func(h handlers) {
			h.watch("crd", on.Kind("Gadget"), on.Group("a.example"))
			h.watch("aggregated", on.Kind("Gadget"), on.Group("x.k8s.io"))
		})
		w.sleep(time.Minute)
		w.mark()
		late := w.server.Before(simulated.On{Verb: "discover", Resource: "apis/a.example"}, simulated.Always(simulated.Fail(404)))
		w.put(w.server.Serve(gadgets("a.example")), "g")
		w.put(w.server.Serve(gadgets("x.k8s.io")), "g")
		w.sleep(5 * time.Second)
		w.expect()
		late()
		w.sleep(5 * time.Second)
		w.expectAnyTime("crd LISTED Gadget.v1.a.example g")
		w.sleep(time.Minute)
		w.expectSet("crd LISTED Gadget.v1.a.example g", "aggregated LISTED Gadget.v1.x.k8s.io g")
	})
}

func TestDiscoveryIsEmptyForAMoment(t *testing.T) {
	scenario(t, func(w *world) {
		w.put(w.server.Serve(gadgets("a.example")), "g")
		w.start(func(h handlers) { h.watch("w", on.Kind("Gadget"), on.Group("a.example")) })
		w.sleep(time.Minute)
		w.mark()
		w.server.Before(simulated.On{Verb: "discover", Resource: "apis/a.example", Times: 1}, simulated.Always(simulated.Fail(404)))
		w.server.Serve(gadgets("a.example", categories("new")))
		w.sleep(time.Hour)
		w.expect()
	})
}

func TestCategoryGrows_OBS6(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(gadgets("a.example", categories("things")))
		b := w.server.Serve(gadgets("b.example"))
		c := w.server.Serve(gadgets("c.example"))
		w.start(func(h handlers) {
			h.watch("category", on.Category("things"))
			h.watch("c", on.Resource("c.example/v1", "gadgets"))
		})
		w.put(b, "g")
		w.put(c, "g")
		w.settle()
		w.expectAnyTime("c ADDED Gadget.v1.c.example g")
		w.mark()
		w.server.Serve(gadgets("b.example", categories("things")))
		w.server.Serve(gadgets("c.example", categories("things")))
		w.sleep(time.Minute)
		w.expectAnyTime("category LISTED Gadget.v1.b.example g")
		w.expectLogged(1, "WARN", "one more handler for it is called only after a restart resource=gadgets.c.example handler=category")
	})
}
