package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeweir/kubeweir/config"
)

// helpWidth is the maximum width of help lines.
const helpWidth = 100

// help implements --help. Its arguments may include a mistaken command.
func help(c *cobra.Command) error {
	if c.HasAvailableSubCommands() && c.Flags().NArg() > 0 {
		return unknownCommand(c, c.Flags().Arg(0))
	}
	return printHelp(c.OutOrStdout(), c)
}

// printHelp writes what c does, examples, its commands and its flags.
func printHelp(out io.Writer, c *cobra.Command) error {
	var b strings.Builder
	if c.HasParent() {
		fmt.Fprintf(&b, "Usage: %s\n\n%s\n", useLine(c), c.Short)
	} else {
		fmt.Fprintf(&b, "%s\n\nUsage: %s\n", c.Short, useLine(c))
	}
	if c.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", c.Long)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	for _, section := range flagSections(c) {
		fmt.Fprintf(&b, "\n%s:\n%s", section.title, section.flags.FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nRun '%s COMMAND --help' for details of a command.\n", c.CommandPath())
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// useLine returns the usage line of c.
func useLine(c *cobra.Command) string {
	_, args, _ := strings.Cut(c.Use, " ")
	line := c.CommandPath()
	switch {
	case args != "":
		line += " " + args
	case c.HasAvailableSubCommands():
		line += " COMMAND"
	}
	if len(flagSections(c)) > 0 && !strings.Contains(line, "[") {
		line += " [flags]"
	}
	return line
}

// flagSection is a titled group of flags of a command.
type flagSection struct {
	title string
	flags *pflag.FlagSet
}

// flagSections returns the flags of c as they are grouped in the help, without --help.
func flagSections(c *cobra.Command) []flagSection {
	var sections []flagSection
	c.Flags().SortFlags = false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		title := "Flags"
		if group := f.Annotations[config.SectionAnnotation]; len(group) == 1 {
			title = group[0]
		}
		i := 0
		for i < len(sections) && sections[i].title != title {
			i++
		}
		if i == len(sections) {
			flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
			flags.SortFlags = false
			sections = append(sections, flagSection{title, flags})
		}
		sections[i].flags.AddFlag(f)
	})
	return sections
}
