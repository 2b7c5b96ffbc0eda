package peering

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
)

// scene is where an operator could run.
type scene struct {
	env   map[string]string
	user  string
	host  string
	names []string
	next  int
}

func (p *scene) Getenv(name string) string              { return p.env[name] }
func (p *scene) User() string                           { return p.user }
func (p *scene) Host() string                           { return p.host }
func (p *scene) Names(context.Context, string) []string { return p.names }
func (p *scene) Random(n int) int                       { p.next += 20; return p.next % n }

func TestIdentity_PEER4_T159(t *testing.T) {
	env := map[string]string{"LOGNAME": "me"}
	for name, c := range map[string]struct {
		at           scene
		run, command string
	}{
		"the pod's name wins":         {scene{env: map[string]string{"POD_ID": "pod-1", "USER": "me"}, host: "h"}, "pod-1", "pod-1"},
		"an empty one does not":       {scene{env: map[string]string{"POD_ID": "", "USER": "me"}, host: "h"}, "me@h/20000101000000/vf0", "me@h"},
		"user and host":               {scene{env: env, host: "laptop"}, "me@laptop/20000101000000/vf0", "me@laptop"},
		"a user without variables":    {scene{user: "1001", host: "laptop"}, "1001@laptop/20000101000000/vf0", "1001@laptop"},
		"variables in Python's order": {scene{env: map[string]string{"USERNAME": "d", "LNAME": "c", "USER": "b", "LOGNAME": "a"}, host: "h"}, "a@h/20000101000000/vf0", "a@h"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it is midnight, UTC
				if got := identify(t.Context(), &c.at, true); got != c.run {
					t.Errorf("of a run: %s", got)
				}
				if got := identify(t.Context(), &c.at, false); got != c.command {
					t.Errorf("of a command: %s", got)
				}
			})
		})
	}
}

func TestHostNames_PEER4_T159(t *testing.T) {
	for name, c := range map[string]struct {
		own   string
		names []string
		want  string
	}{
		"nothing else is known":          {"laptop", nil, "laptop"},
		"one with a dot":                 {"laptop", []string{"short", "laptop.example.com."}, "laptop.example.com"},
		"no name of an address":          {"laptop", []string{"1.0.0.127.in-addr.arpa", "0.ip6.arpa.", "short"}, "short"},
		"no address":                     {"laptop", []string{"10.0.0.1", "fe80::1", "short"}, "short"},
		"not localhost":                  {"laptop", []string{"localhost", "localhost.localdomain"}, "laptop"},
		"without what each has":          {"laptop.local.localdomain", nil, "laptop"},
		"without it, of found ones":      {"x", []string{"laptop.local"}, "laptop"},
		"localhost if there is no other": {"localhost", []string{"127.0.0.1"}, "localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hostName(c.own, c.names); got != c.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

// PEER-4: of the real machine it is at least in this form.
func TestOwnIdentity_PEER4(t *testing.T) {
	t.Setenv("POD_ID", "")
	if got := Identity(t.Context()); !regexp.MustCompile(`^[^@]+@[^@/]+/\d{14}/[a-z0-9]{3}$`).MatchString(got) {
		t.Error(got)
	}
	if got := CommandIdentity(t.Context()); !regexp.MustCompile(`^[^@]+@[^@/]+$`).MatchString(got) {
		t.Error(got)
	}
}
