package settings_test

import (
	"strings"
	"testing"

	"github.com/kopf-go/kopf/settings"
)

// SET-2 is only partly about these, so that it is not named.
func TestPostingIsValidated(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		posting settings.Posting
		want    []string
	}{
		"nothing":     {settings.Posting{}, nil},
		"all":         {settings.Posting{Component: "example.com/My-Operator_1", Instance: "pod-7"}, nil},
		"the longest": {settings.Posting{Component: long[:63], Instance: long + long}, nil},
		"too much":    {settings.Posting{Component: long, Instance: long + long + "x"}, []string{"Component is", "Instance has 129 bytes"}},
		"a sentence":  {settings.Posting{Component: "my operator"}, []string{"Component is \"my operator\""}},
	} {
		err := c.posting.Validate()
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: got %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", name, err, want)
			}
		}
	}
}
