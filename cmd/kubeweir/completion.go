package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/config"
)

// newCompletion is `kubeweir completion SHELL`.
func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the completion script of a shell.",
		Long: `The script completes commands, flags and, if there are few, their values. Bash needs the
package bash-completion.`,
		Example: `  # For the current shell.
  source <(kubeweir completion bash)
  source <(kubeweir completion zsh)
  kubeweir completion fish | source
  kubeweir completion powershell | Out-String | Invoke-Expression

  # For all future shells.
  kubeweir completion bash > /etc/bash_completion.d/kubeweir
  kubeweir completion zsh > "${fpath[1]}/_kubeweir"
  kubeweir completion fish > ~/.config/fish/completions/kubeweir.fish`,
		ValidArgsFunction: oneOf(shells...),
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageErrorf("a shell is required: use %s SHELL, with %s", c.CommandPath(), strings.Join(shells, ", "))
			case !slices.Contains(shells, args[0]):
				return usageErrorf("there is no completion for %q; there is for %s", args[0], strings.Join(shells, ", "))
			}
			return noArgs(c, args[1:])
		},
		RunE: func(c *cobra.Command, args []string) error {
			root, out := c.Root(), c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return root.GenPowerShellCompletionWithDesc(out)
		},
	}
}

// oneOf completes the first argument.
func oneOf(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// annotateChoices records the values of a flag for completion, as config does for its own flags.
func annotateChoices(c *cobra.Command, flag string, values ...string) {
	c.Flags().Lookup(flag).Annotations = map[string][]string{config.ChoicesAnnotation: values}
}

// completeFlags registers completions for all flags of c and its commands: file names, choices, and
// contexts of a kubeconfig. Other flags get no completion.
func completeFlags(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		kind, _ := pflag.UnquoteUsage(f)
		switch choices := f.Annotations[config.ChoicesAnnotation]; {
		case len(choices) > 0:
			complete = cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
		case f.Name == "context":
			complete = completeContexts
		case kind == "file":
			complete = nil // which is files
		case kind == "folder":
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		}
		if complete != nil {
			// It fails for a flag that has a function only.
			_ = c.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}

// completeContexts names the contexts of the kubeconfig that the command line has.
func completeContexts(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := clientcmd.LoadFromFile(c.Flags().Lookup("kubeconfig").Value.String())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
