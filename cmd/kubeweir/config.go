package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/config"
)

// newConfig is `kubeweir config`.
func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print and check configuration files.",
		Long: `A YAML file (--config) can replace flags, and has settings without flags, such as rules. These
commands print a file with the defaults, and check a file without starting anything.`,
		Example: `  kubeweir config defaults gateway > gateway.yaml
  kubeweir config check gateway.yaml`,
	}
	group(c)
	c.AddCommand(newConfigDefaults(), newConfigCheck())
	return c
}

func newConfigDefaults() *cobra.Command {
	return &cobra.Command{
		Use:   "defaults [gateway|standalone]",
		Short: "Print a file with every setting at its default.",
		Long: `Comments describe each setting, its cost and the allowed values. The default is the file of the
gateway. A file needs only the settings that differ from the defaults.`,
		Example: `  kubeweir config defaults gateway > gateway.yaml
  kubeweir config defaults standalone > standalone.yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := checkMode(args[0]); err != nil {
					return err
				}
				args = args[1:]
			}
			return noArgs(c, args)
		},
		ValidArgsFunction: oneOf(config.Modes()...),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "standalone" {
				return config.StandaloneFlags().WriteDefaults(c.OutOrStdout())
			}
			return config.GatewayFlags().WriteDefaults(c.OutOrStdout())
		},
	}
}

func newConfigCheck() *cobra.Command {
	var mode string
	var skipFiles bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file.",
		Long: `Prints every mistake with its line, and exits with code 2 if there is any. The settings in the
file tell whether it is for a gateway or a standalone. The files that it names must exist, unless
it is for another machine (--skip-files). - is standard input.`,
		Example: `  kubeweir config check gateway.yaml
  kubeweir config check --mode standalone --skip-files /etc/kubeweir/standalone.yaml
  kubeweir config check --skip-files - < gateway.yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("a file is required; see %s --help", c.CommandPath())
			}
			return noArgs(c, args[1:])
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("mode") {
				if err := checkMode(mode); err != nil {
					return fmt.Errorf("--mode: %w", err)
				}
			}
			return checkConfig(c, args[0], mode, skipFiles)
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "`command` that the file is for: gateway or standalone (default by its settings)")
	c.Flags().BoolVar(&skipFiles, "skip-files", false, "do not check the files that it names")
	annotateChoices(c, "mode", config.Modes()...)
	return c
}

func checkMode(mode string) error {
	modes := config.Modes()
	for _, known := range modes {
		if mode == known {
			return nil
		}
	}
	if similar := config.Nearest(mode, modes); similar != "" {
		return usageErrorf("%q has no configuration; did you mean %s?", mode, similar)
	}
	return usageErrorf("%q has no configuration; use %s", mode, strings.Join(modes, " or "))
}

// checkConfig prints what is wrong with a file.
func checkConfig(c *cobra.Command, file, mode string, skipFiles bool) error {
	check := func() (config.Checked, error) { return config.CheckFile(file, mode, skipFiles) }
	if file == "-" {
		file = "standard input"
		check = func() (config.Checked, error) { return config.CheckInput(c.InOrStdin(), mode, skipFiles) }
	}
	checked, err := check()
	if err != nil {
		return usageError{err}
	}
	if len(checked.Errors) == 0 {
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: ok (%s)\n", file, checked.Mode)
		return err
	}
	for _, problem := range checked.Errors {
		fmt.Fprintln(c.ErrOrStderr(), problem)
	}
	if checked.Unsure {
		fmt.Fprintf(c.ErrOrStderr(), "%s was checked as a configuration of kubeweir %s; set --mode if it is for another command\n", file, checked.Mode)
	}
	return errReported
}
