package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan is `kubeweir man`, which those use who make packages. It is hidden from users:
// the pages say what --help does.
func newMan() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:     "man",
		Short:   "Write the man pages.",
		Long:    "One page for each command, in section 1.",
		Example: "  kubeweir man --dir /usr/local/share/man/man1",
		Hidden:  true,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return usageErrorf("--dir must name the folder for the man pages")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("--dir: %w", err)
			}
			return writeManPages(c.Root(), dir)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`folder` for the pages; created if necessary")
	return c
}

// writeManPages writes the page of c and those of its commands.
func writeManPages(c *cobra.Command, dir string) error {
	name := manName(c) + ".1"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(manPage(c)), 0o644); err != nil {
		return fmt.Errorf("man page %s: %w", name, err)
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeManPages(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// manName is "kubeweir-config-check".
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// roff escapes text: what it has of backslashes, hyphens that are to be typed, and dots
// that would begin a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// manPage is the page of c in the macros of man(7).
func manPage(c *cobra.Command) string {
	var p strings.Builder
	b := thisBuild()
	day, _, _ := strings.Cut(b.Date, "T")
	fmt.Fprintf(&p, ".TH \"%s\" 1 \"%s\" \"kubeweir %s\" \"kubeweir\"\n", roff(strings.ToUpper(manName(c))), day, roff(b.Version))
	summary := strings.TrimPrefix(strings.TrimSuffix(c.Short, "."), "kubeweir ")
	summary = strings.ToLower(summary[:1]) + summary[1:]
	fmt.Fprintf(&p, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(summary))
	path, rest := c.CommandPath(), strings.TrimPrefix(useLine(c), c.CommandPath())
	fmt.Fprintf(&p, ".SH SYNOPSIS\n\\fB%s\\fR%s\n", roff(path), roff(rest))
	fmt.Fprintf(&p, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff(c.Long), "\n\n", "\n.PP\n"))
	manCommands(&p, c)
	manOptions(&p, c)
	if c.Example != "" {
		fmt.Fprintf(&p, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	p.WriteString(".SH EXIT STATUS\n0 if it did what it was asked, also when SIGTERM ended it; 1 if it could not; 2 if it was asked wrongly.\n")
	manSeeAlso(&p, c)
	return p.String()
}

func manCommands(p *strings.Builder, c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	p.WriteString(".SH COMMANDS\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(p, ".TP\n\\fB%s\\fR\n%s\n", roff(sub.Name()), roff(sub.Short))
		}
	}
}

func manOptions(p *strings.Builder, c *cobra.Command) {
	sections := flagSections(c)
	if len(sections) == 0 {
		return
	}
	p.WriteString(".SH OPTIONS\n")
	for _, section := range sections {
		if len(sections) > 1 {
			fmt.Fprintf(p, ".SS %s\n", roff(section.title))
		}
		section.flags.VisitAll(func(f *pflag.Flag) {
			kind, usage := pflag.UnquoteUsage(f)
			p.WriteString(".TP\n")
			if f.Shorthand != "" {
				fmt.Fprintf(p, "\\fB\\-%s\\fR, ", roff(f.Shorthand))
			}
			fmt.Fprintf(p, "\\fB\\-\\-%s\\fR", roff(f.Name))
			if f.Value.Type() != "bool" {
				fmt.Fprintf(p, " \\fI%s\\fR", roff(kind))
			}
			if f.DefValue != "" && f.DefValue != "false" {
				usage += " (default " + f.DefValue + ")"
			}
			fmt.Fprintf(p, "\n%s\n", roff(usage))
		})
	}
}

// manSeeAlso names the pages above, beside and below.
func manSeeAlso(p *strings.Builder, c *cobra.Command) {
	var names []string
	if c.HasParent() {
		names = append(names, manName(c.Parent()))
		for _, beside := range c.Parent().Commands() {
			if beside != c && beside.IsAvailableCommand() {
				names = append(names, manName(beside))
			}
		}
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, manName(sub))
		}
	}
	p.WriteString(".SH SEE ALSO\n")
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		fmt.Fprintf(p, ".BR %s (1)%s\n", roff(name), end)
	}
}
