package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeweir/kubeweir/config"
)

// newRoot returns the root command. Each subcommand is a function newX in its own file and is added
// here. It declares its flags as local variables, writes to OutOrStdout and ErrOrStderr, and
// returns a usageError for mistakes in the command line.
func newRoot() *cobra.Command {
	// cobra would offer the flags that linked packages of Kubernetes have added there.
	pflag.CommandLine = pflag.NewFlagSet("kubeweir", pflag.ContinueOnError)
	c := &cobra.Command{
		Use:   "kubeweir",
		Short: "kubeweir serves the Kubernetes API.",
		Long: `As a gateway in front of a cluster it serves lists, gets and watches from a cache, which one watch
per resource keeps current. As a standalone it is a Kubernetes API server with its own store.`,
		Example: `  kubeweir standalone                                 # a Kubernetes API server, in ./kubeweir-data
  kubeweir gateway --kubeconfig $HOME/.kube/config    # a caching gateway for that cluster`,
		SilenceErrors:     true, // command prints them
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	printsVersion := c.Flags().Bool("version", false, "print the version, like the version command")
	group(c)
	help := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *printsVersion {
			return printVersion(c.OutOrStdout())
		}
		return help(c, args)
	}
	c.AddCommand(newStandalone(), newGateway(), newConfig(), newCompletion(), newRBAC(), newVerify(), newTop(), newKubeconfig(), newEnvtestAssets(), newMigrate(), newVersion(), newMan())
	c.SetHelpCommand(newHelp())
	completeFlags(c)
	c.SetFlagErrorFunc(flagError)
	return c
}

// flagError returns the usage error for err, the failure to parse the flags of c.
func flagError(c *cobra.Command, err error) error {
	if unknown := new(pflag.NotExistError); !c.HasParent() && errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		return usageErrorf("--%s is no flag without a command; see %s --help", unknown.GetSpecifiedName(), c.CommandPath())
	}
	if unknown := new(pflag.NotExistError); errors.As(err, &unknown) && renamedFlags[unknown.GetSpecifiedName()] != "" {
		return usageErrorf("--%s is now --%s", unknown.GetSpecifiedName(), renamedFlags[unknown.GetSpecifiedName()])
	}
	return usageError{config.FlagError(err, c.Flags(), c.CommandPath())}
}

// renamedFlags maps former names of flags to the present ones.
var renamedFlags = map[string]string{"sort-askers": "sort-clients"}

// group makes c a command that only has subcommands: it fails if none is given.
func group(c *cobra.Command) {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(c, args[0])
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return errors.Join(printHelp(c.ErrOrStderr(), c), errReported)
	}
}

// unknownCommand returns the error for a name that is not a subcommand of c.
func unknownCommand(c *cobra.Command, name string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			names = append(names, sub.Name())
		}
	}
	if len(names) == 0 {
		return usageErrorf("%s has no command %q; see %s --help", c.CommandPath(), name, c.CommandPath())
	}
	if similar := config.Nearest(name, names); similar != "" {
		return usageErrorf("unknown command %q; did you mean %s %s?", name, c.CommandPath(), similar)
	}
	last := len(names) - 1
	return usageErrorf("unknown command %q: use %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// noArgs rejects arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf("unexpected argument %q; see %s --help", args[0], c.CommandPath())
}

// newHelp is `kubeweir help [COMMAND]`.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command.",
		Long:    "The same as COMMAND --help.",
		Example: "  kubeweir help gateway",
		RunE: func(c *cobra.Command, args []string) error {
			about, unknown, err := c.Root().Find(args)
			switch {
			case err != nil:
				return usageError{err}
			case len(unknown) > 0:
				return unknownCommand(about, unknown[0])
			}
			return printHelp(c.OutOrStdout(), about)
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			about, unknown, err := c.Root().Find(args)
			if err != nil || len(unknown) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range about.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
