package settings_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// mayBeNegative are numbers for which that means something.
var mayBeNegative = map[string]bool{"Process.CleanupTimeout": true, "Process.ExitTimeout": true, "Peering.Priority": true, "Posting.Level": true}

// Every number of every group is looked at.
func TestNoSettingIsNegative(t *testing.T) {
	groups := reflect.TypeFor[settings.Settings]()
	for g := range groups.NumField() {
		for f := range groups.Field(g).Type.NumField() {
			var s settings.Settings
			field := reflect.ValueOf(&s).Elem().Field(g).Field(f)
			if enabled := reflect.ValueOf(&s).Elem().Field(g).FieldByName("Enabled"); enabled.IsValid() {
				enabled.SetBool(true) // what is not used need not be right
			}
			group, name := groups.Field(g).Name, groups.Field(g).Type.Field(f).Name
			switch {
			case field.CanInt():
				field.SetInt(-1)
			case field.Type() == reflect.TypeFor[[]time.Duration]():
				field.Set(reflect.ValueOf([]time.Duration{time.Second, -1}))
			default:
				continue
			}
			err := s.Validate()
			if mayBeNegative[group+"."+name] {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), group) || !strings.Contains(err.Error(), name+" ") {
				t.Errorf("%s.%s is negative: got %v", group, name, err)
			}
		}
	}
}

// All mistakes are told together, each by its field.
func TestMistakesAreToldTogether(t *testing.T) {
	err := settings.Settings{
		Queueing:   settings.Queueing{WorkerLimit: -1, ErrorDelays: []time.Duration{-time.Second}},
		Networking: settings.Networking{RequestTimeout: -time.Second},
		Admission:  settings.Admission{Managed: "Mine", Namespace: "a.b", Port: 65536, Timeout: 31 * time.Second, Endpoint: webhook.URL{}},
	}.Validate()
	want := `Settings.Queueing: WorkerLimit is -1: it cannot be negative, and 0 stands for its default
Settings.Queueing: ErrorDelays has -1s, which is negative
Settings.Networking: RequestTimeout is -1s: it cannot be negative, and 0 stands for its default
Settings.Admission: Managed is "Mine", which configurations cannot be named: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
Settings.Admission: Namespace is "a.b", which no namespace is named
Settings.Admission: Port is 65536, not 1 to 65535
Settings.Admission: Timeout is 31s, not 1 to 30 whole seconds`
	if fmt.Sprint(err) != want {
		t.Errorf("got\n%v", err)
	}
	if err := (settings.Settings{}).Validate(); err != nil {
		t.Error("the zero value:", err)
	}
	if err := (settings.Settings{}).WithDefaults().Validate(); err != nil {
		t.Error("the defaults:", err)
	}
}

// What was chosen stays.
func TestDefaultsFillWhatIsZero(t *testing.T) {
	chosen := settings.Settings{
		Queueing:  settings.Queueing{WorkerLimit: 7, ErrorDelays: []time.Duration{time.Hour}},
		Admission: settings.Admission{Endpoint: webhook.URL{Host: "h", Port: 8443}},
	}
	got := chosen.WithDefaults()
	if got.Queueing.WorkerLimit != 7 || len(got.Queueing.ErrorDelays) != 1 || got.Queueing.LoopLimit != 50 {
		t.Errorf("%+v", got.Queueing)
	}
	if got.Admission.Port != 8443 || got.Admission.Endpoint != any(webhook.URL{Host: "h", Port: 8443}) {
		t.Errorf("%+v", got.Admission)
	}
	chosen.Admission = settings.Admission{Endpoint: webhook.URL{Host: "h"}, Port: 1443}
	if got := chosen.WithDefaults().Admission; got.Port != 1443 || got.Endpoint != any(webhook.URL{Host: "h", Port: 1443}) {
		t.Errorf("%+v", got)
	}
	again := chosen.WithDefaults().WithDefaults()
	if again.Execution.Lifecycle = nil; again.Admission.Port != 1443 || again.Execution.DefaultBackoff != time.Minute {
		t.Errorf("%+v", again)
	}
}
