package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf/settings"
)

// PEER-2, PEER-3: what is right by itself and together; all mistakes are told.
func TestPeeringIsValidated(t *testing.T) {
	for name, c := range map[string]struct {
		of       settings.Peering
		mistakes []string
	}{
		"defaults":   {settings.Peering{}, nil},
		"everything": {settings.Peering{Name: "my.peering-1", Mandatory: true, Priority: -5, Lifetime: 5 * time.Second, Stealth: true}, nil},
		"all wrong": {
			settings.Peering{Name: "My_Peering", Mandatory: true, Standalone: true, Lifetime: 1500 * time.Millisecond},
			[]string{`Name "My_Peering" is no name of an object`, "Mandatory and Standalone exclude each other", "Lifetime is 1.5s"},
		},
		"a negative lifetime": {settings.Peering{Lifetime: -time.Second}, []string{"Lifetime is -1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.of.Validate()
			if (err == nil) != (len(c.mistakes) == 0) {
				t.Fatal(err)
			}
			for _, text := range c.mistakes {
				if !strings.Contains(err.Error(), "Settings.Peering: "+text) {
					t.Errorf("%v does not say %q", err, text)
				}
			}
		})
	}
}
