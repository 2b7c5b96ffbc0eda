package webhook

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
)

// What others do is undone, whether an edit or a deletion, and nothing is written else.
func TestRepairsDrift_ADM14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		k.apply(t, "1", validating("a", widgets), mutating("b", widgets), rule)
		stop := k.run(t)
		defer stop()
		settle := func() { time.Sleep(10 * time.Minute); synctest.Wait() }
		settle()
		client := k.server.AdmissionregistrationV1()
		for name, edit := range map[string]func() error{
			"emptied": func() error {
				_, err := client.ValidatingWebhookConfigurations().Update(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "example.com"}}, metav1.UpdateOptions{})
				return err
			},
			"deleted": func() error {
				return client.MutatingWebhookConfigurations().Delete(t.Context(), "example.com", metav1.DeleteOptions{})
			},
			"policy deleted": func() error {
				return client.ValidatingAdmissionPolicies().Delete(t.Context(), "few.example.com", metav1.DeleteOptions{})
			},
			"binding deleted": func() error {
				return client.ValidatingAdmissionPolicyBindings().Delete(t.Context(), "few.example.com", metav1.DeleteOptions{})
			},
		} {
			k.server.ClearActions()
			if err := edit(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // a repair is at once
			if got := k.writes(); len(got) != 2 || strings.HasPrefix(got[1], "delete") {
				t.Errorf("%s: writes %v, want the edit and its repair", name, got)
			}
			k.server.ClearActions()
			settle()
			if got := k.writes(); len(got) > 0 {
				t.Errorf("%s: writes later %v", name, got)
			}
		}
		if got := k.webhooks(t); got != "a b" || !strings.Contains(k.log.String(), "changed by somebody else") {
			t.Errorf("%s after\n%s", got, &k.log)
		}
	})
}

// Labels of others are no drift.
func TestLeavesWhatIsNotOurs_ADM14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		k.apply(t, "1", validating("a", widgets))
		defer k.run(t)()
		synctest.Wait()
		v, err := k.validating.client.Get(t.Context(), "example.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.Labels = map[string]string{"theirs": "x"}
		if _, err := k.validating.client.Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := k.writes(); !slices.Equal(got, []string{"create " + ofValidating, "update " + ofValidating}) {
			t.Errorf("writes %v", got)
		}
	})
}

// Somebody who undoes each repair at once is not fought with more than now and then.
func TestDoesNotFight_ADM14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		k.apply(t, "1", validating("a", widgets))
		defer k.run(t)()
		synctest.Wait()
		k.server.ClearActions()
		repairs := 0
		for range 3600 {
			if k.webhooks(t) != "" {
				repairs++
				if _, err := k.validating.client.Update(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "example.com"}}, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if repairs < 50 || repairs > 80 {
			t.Errorf("%d repairs in an hour, want about one a minute", repairs)
		}
	})
}

// An operator that dies in between, or whose API server is away, goes on where it was.
func TestGoesOnAfterFailures_ADM14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		k.fails("create", ofMutating, times(3, errBroken))
		hooks := []Hook{validating("a", widgets), mutating("b", widgets)}
		if err := k.Apply(t.Context(), hooks, service{}, []byte("1")); !errors.Is(err, errBroken) {
			t.Fatalf("%v", err)
		}
		if got := k.webhooks(t); got != "a" || len(k.bundles) > 0 {
			t.Fatalf("half done: %s, applied %v", got, k.bundles)
		}
		stop := k.run(t)
		time.Sleep(time.Minute)
		stop()
		if got := k.webhooks(t); got != "a b" || !slices.Equal(k.bundles, []string{"1"}) {
			t.Errorf("after a minute: %s, applied %v\n%s", got, k.bundles, &k.log)
		}
		if strings.Contains(k.log.String(), "somebody else") {
			t.Errorf("blames others:\n%s", &k.log)
		}
	})
	// What a process that died has left is finished by the next one.
	k := keep()
	k.fails("create", ofMutating, times(1, errBroken))
	hooks := []Hook{validating("a", widgets), mutating("b", widgets)}
	if err := k.Apply(t.Context(), hooks, service{}, nil); !errors.Is(err, errBroken) {
		t.Fatalf("%v", err)
	}
	next := &keeping{server: k.server}
	next.Keeper = NewKeeper(k.server.AdmissionregistrationV1(), Options{Name: "example.com"}, slog.New(slog.DiscardHandler), nil)
	k.server.ClearActions()
	next.apply(t, "", hooks...)
	if got := next.writes(); !slices.Equal(got, []string{"create " + ofMutating}) {
		t.Errorf("writes %v", got)
	}
}

// Without the permission to watch, drift is found within a minute or two.
func TestLooksWhereItMayNotWatch_ADM14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		k.server.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, forbidden))
		k.apply(t, "1", validating("a", widgets))
		defer k.run(t)()
		synctest.Wait()
		if err := k.validating.client.Delete(t.Context(), "example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := k.webhooks(t); got != "a" || strings.Count(k.log.String(), "cannot be watched") != 2 {
			t.Errorf("%s\n%s", got, &k.log)
		}
	})
}
