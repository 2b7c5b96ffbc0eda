package command

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kopf-go/kopf/settings"
)

// shorthand is a setting that has a flag of another name than its path: those that Kopf's
// command line has, and the commonest ones.
type shorthand struct {
	path         string
	flag, letter string
	env          string // default: as the flag
	usage        string // default: what the setting says
}

// shorthands are in the order in which they are shown. Groups may be missing.
var shorthands = []shorthand{
	{path: "LeaderElection.Enabled", flag: "leader-elect"},
	{path: "Endpoints.Address", flag: "health-address"},
	{path: "Endpoints.Liveness", flag: "liveness", letter: "L", env: "LIVENESS_ENDPOINT"},
	{path: "Peering.Name", flag: "peering", letter: "P", usage: "get along with the operators that meet in the peering object of this `name`, which must be there"},
	{path: "Peering.Priority", flag: "priority", letter: "p"},
	{path: "Peering.Standalone", flag: "standalone"},
}

// devPriority is that of --dev.
const devPriority = 666

// concludePeering says what follows from flags for the peering (CLI-4).
func (c *commands) concludePeering() {
	peering := &c.invoked.Settings.Peering
	if c.given["Peering.Name"] {
		peering.Mandatory = true
	}
	if c.given["Peering.Standalone"] && peering.Standalone {
		peering.Mandatory = false
	}
	if c.choices.dev {
		peering.Priority = devPriority
	}
}

// setting is a field of the invocation's settings, by its path.
func (c *commands) setting(path string) (field reflect.Value, known bool) {
	group, name, _ := strings.Cut(path, ".")
	if field = reflect.ValueOf(&c.invoked.Settings).Elem().FieldByName(group); !field.IsValid() {
		return field, false
	}
	field = field.FieldByName(name)
	return field, field.IsValid()
}

// tunable is a setting that can be given as a text.
type tunable struct {
	path string // such as Queueing.WorkerLimit
	flag string // such as queueing-worker-limit
	env  string // such as KOPF_RUN_QUEUEING_WORKER_LIMIT
}

// tunables are all, in order, also those that have flags of other names.
func tunables() (all []tunable) {
	groups := reflect.TypeFor[settings.Settings]()
	for g := range groups.NumField() {
		for f := range groups.Field(g).Type.NumField() {
			field := groups.Field(g).Type.Field(f)
			if !scalar(field.Type) {
				continue
			}
			t := tunable{path: groups.Field(g).Name + "." + field.Name, flag: hyphenated(groups.Field(g).Name) + "-" + hyphenated(field.Name)}
			t.env = envRun + envName(t.flag)
			for _, short := range shorthands {
				if short.path == t.path {
					t.flag, t.env = short.flag, envRun+envName(short.flag)
					if short.env != "" {
						t.env = envRun + short.env
					}
				}
			}
			all = append(all, t)
		}
	}
	return all
}

// hyphenated is a name of Go in the form of flags: worker-limit for WorkerLimit, client-cas
// for ClientCAs.
func hyphenated(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(runes[i-1]) || i+2 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsLower(runes[i+2]))
		if begins {
			out.WriteByte('-')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// settingsFlags are those of all settings that have no other flag.
func (c *commands) settingsFlags(cmd *cobra.Command) {
	s := c.section(cmd, settingsTitle, envRun)
	effective := reflect.ValueOf(c.Settings.WithDefaults())
	for _, t := range tunables() {
		if cmd.Flags().Lookup(t.flag) != nil {
			continue
		}
		field, _ := c.setting(t.path)
		group, name, _ := strings.Cut(t.path, ".")
		v := valueOf(field)
		v.text = shown(effective.FieldByName(group).FieldByName(name))
		s.define(v, t.flag, "", texts[t.path])
	}
	s.add(cmd)
}

const settingsTitle = "Settings"
