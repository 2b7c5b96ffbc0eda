package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// usages has commands show their flags by sections. The many flags of settings are shown
// by run only, and not by every program without a command.
func (c *commands) usages(root *cobra.Command) {
	others := root.UsageFunc() // of commands that are cobra's own
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		sections, ours := c.sections[cmd]
		if !ours {
			return others(cmd)
		}
		c.usage(cmd.OutOrStderr(), cmd, sections)
		return nil
	})
}

func (c *commands) usage(out io.Writer, cmd *cobra.Command, sections []*section) {
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s COMMAND [flags]\n\nCommands:\n", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(out, "  %-11s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	for _, s := range sections {
		if s.title == settingsTitle && !cmd.HasParent() {
			fmt.Fprintf(out, "\nEvery setting has a flag, too: see %s run --help.\n", cmd.CommandPath())
			continue
		}
		fmt.Fprintf(out, "\n%s:\n%s", s.title, s.flags.FlagUsagesWrapped(width))
	}
	fmt.Fprintf(out, "\nEach flag can be given as a variable of the environment, such as $%s for --log-format.\n", sections[0].env+"LOG_FORMAT")
}

// width is that of most terminals, at least.
const width = 100
