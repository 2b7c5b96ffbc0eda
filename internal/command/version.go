package command

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const libraryPath = "github.com/kopf-go/kopf"

func (c *commands) versionCommand() *cobra.Command {
	return c.command("version", "Print the versions of the program and of what it is made of", func(_ context.Context, out io.Writer, _ Invocation) error {
		_, err := fmt.Fprintln(out, buildVersion())
		return err
	})
}

// buildVersion is what the Go command has written into the program.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	text := info.Main.Path + " " + orDevel(info.Main.Version)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		text += " at " + revision
		if settings["vcs.modified"] == "true" {
			text += ", changed"
		}
	}
	for _, m := range info.Deps {
		if m.Path == libraryPath {
			text += "\n" + m.Path + " " + orDevel(m.Version)
		}
	}
	return text + "\n" + info.GoVersion
}

func orDevel(version string) string {
	if version == "" {
		return "(devel)"
	}
	return version
}
