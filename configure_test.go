package kopf

import (
	"reflect"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/engine"
)

// The defaults that are told are those that the engine has.
func TestDefaultsAreTheEngines(t *testing.T) {
	told, used := engineSettings(Settings{}.WithDefaults()), engine.Settings{}.WithDefaults()
	told.Lifecycle = nil                     // a function
	used.InactivityTimeout = 3 * time.Minute // internal/stream knows it
	if !reflect.DeepEqual(told, used) {
		t.Errorf("told %+v\nused %+v", told, used)
	}
}
