package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
)

// rbacSettings are the gateway's flags that its rights depend on.
func rbacSettings() []string {
	return []string{
		"config", "listen", "insecure-listen", "service-account-dir", "client-ca-file", "requestheader-client-ca-file", "cache-aggregated-groups", "upstream-servers",
		"clusterprofile-provider-file", "clusterprofile-namespace",
	}
}

// newRBAC is `kubeweir rbac`.
func newRBAC() *cobra.Command {
	var (
		settings = config.GatewayFlags()
		names    = rbac.DefaultNames()
		options  rbac.Options
		how      string
		output   string
		cluster  string
		hub      bool
	)
	c := &cobra.Command{
		Use:   "rbac",
		Short: "Print the least rights that a gateway needs at its cluster.",
		Long: `Prints a ServiceAccount, a ClusterRole and a ClusterRoleBinding for a configuration of the
gateway, with what each rule is for and what happens without it. The gateway's file, and those
of its flags that its rights depend on, are given as to the gateway. The namespace has to be
there already.

What the gateway may not read it forwards, each request as its client: the answers are the
same, the cluster has the work. So the default, all that is built into Kubernetes but Secrets,
costs nothing but speed where more is read. Whoever has the gateway's token can read what is
in its cache: RBAC cannot say "all but", and Secrets, or everything (*), should be asked for
because they are needed. Custom resources are named as well: *.cert-manager.io is a group.`,
		Example: `  # For clients with tokens.
  kubeweir rbac | kubectl apply -f -

  # For clients with certificates as well, of a gateway with a configuration file.
  kubeweir rbac --config gateway.yaml --client-ca-file ca.crt

  # Besides what is built in: everything of cert-manager, and Secrets.
  kubeweir rbac --resources 'default,*.cert-manager.io,secrets'

  # At the hub whose ClusterProfiles the gateway serves.
  kubeweir rbac --config gateway.yaml --hub

  # For a sidecar, whose programs add rights for what they write.
  kubeweir rbac --listen "" --insecure-listen 127.0.0.1:8080 --resources pods --namespace shop`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := settings.LoadElsewhere()
			if err != nil {
				return usageError{err}
			}
			if hub {
				return printHubRBAC(c, cfg, names, output)
			}
			if cfg, err = ofCluster(cfg, cluster); err != nil {
				return err
			}
			if options.UnconstrainedImpersonation, err = unconstrained(c, cfg, how); err != nil {
				return err
			}
			return printRBAC(c, cfg, names, options, output)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&options.Resources, "resources", []string{rbac.Default},
		"what is to be cached: plural `names` such as pods, deployments.apps or *.cert-manager.io; default for all built-in ones but Secrets; * for everything")
	f.StringVar(&cluster, "cluster", "", "`name` of the cluster whose rights are printed, of a configuration with several")
	f.BoolVar(&hub, "hub", false, "the rights at the hub whose ClusterProfiles are served, instead of those at a cluster")
	f.StringVar(&how, "impersonation", constrainedImpersonation,
		"`kind` of rights by which clients without tokens are forwarded: constrained (KEP-5284, from Kubernetes 1.36 on, never as system:masters, nodes or service accounts) or unconstrained (as good as cluster-admin)")
	f.StringVarP(&names.Namespace, "namespace", "n", names.Namespace, "`namespace` of the ServiceAccount")
	f.StringVar(&names.ServiceAccount, "service-account", names.ServiceAccount, "`name` of the ServiceAccount that the gateway runs as")
	f.StringVar(&names.Role, "name", names.Role, "`name` of the ClusterRole and the ClusterRoleBinding")
	f.StringVarP(&output, "output", "o", "yaml", "`format`: yaml, or json, which has no comments")
	f.Lookup("resources").DefValue = rbac.Default // which pflag would put in brackets
	annotateChoices(c, "output", "yaml", "json")
	annotateChoices(c, "impersonation", constrainedImpersonation, unconstrainedImpersonation)
	f.VisitAll(func(flag *pflag.Flag) { _ = f.SetAnnotation(flag.Name, config.SectionAnnotation, []string{"Rights"}) })
	settings.Set().VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(rbacSettings(), flag.Name) {
			f.AddFlag(flag)
		}
	})
	return c
}

// printHubRBAC prints the rights of the gateway as a reader of ClusterProfiles.
func printHubRBAC(c *cobra.Command, cfg *config.Gateway, names rbac.Names, output string) error {
	for _, other := range []string{"cluster", "resources", "impersonation"} {
		if c.Flags().Changed(other) {
			return usageErrorf("--%s is about the rights at a cluster, and --hub prints those at the hub", other)
		}
	}
	if !cfg.ClusterProfiles.On() {
		return usageErrorf("--hub prints the rights at the hub of ClusterProfiles, and --clusterprofile-provider-file, which turns them on, is not set")
	}
	if names.RoleNamespace = cfg.ClusterProfiles.Namespace; !c.Flags().Changed("name") {
		names.Role += "-hub" // the gateway may have other rights there, too
	}
	return writeRBAC(c, names, rbac.HubRules(), output)
}

// ofCluster is the configuration of a cluster by itself.
func ofCluster(cfg *config.Gateway, name string) (*config.Gateway, error) {
	if name == "" && len(cfg.Clusters) == 0 {
		return cfg, nil
	}
	var names []string
	for i := range cfg.Clusters {
		if names = append(names, cfg.Clusters[i].Name); cfg.Clusters[i].Name == name {
			return &cfg.Clusters[i].Gateway, nil
		}
	}
	switch {
	case len(names) == 0:
		return nil, usageErrorf("--cluster chooses among the clusters of a configuration, and none has been given")
	case name == "":
		return nil, usageErrorf("the rights of which cluster? --cluster names one of %s", strings.Join(names, ", "))
	}
	return nil, usageErrorf("--cluster must be one of %s, not %q", strings.Join(names, ", "), name)
}

// The values of --impersonation.
const (
	constrainedImpersonation   = "constrained"
	unconstrainedImpersonation = "unconstrained"
)

// unconstrained reads --impersonation.
func unconstrained(c *cobra.Command, cfg *config.Gateway, how string) (bool, error) {
	if c.Flags().Changed("impersonation") && !cfg.Impersonates() {
		return false, usageErrorf("--impersonation has no effect without --client-ca-file or --requestheader-client-ca-file: clients with tokens are not impersonated")
	}
	if how != constrainedImpersonation && how != unconstrainedImpersonation {
		return false, usageErrorf("--impersonation must be %s or %s, not %q", constrainedImpersonation, unconstrainedImpersonation, how)
	}
	return how == unconstrainedImpersonation, nil
}

func printRBAC(c *cobra.Command, cfg *config.Gateway, names rbac.Names, options rbac.Options, output string) error {
	if len(options.Resources) == 0 {
		return usageErrorf("--resources must name what is to be cached, or be %s or %s", rbac.Default, rbac.Everything)
	}
	rules, err := rbac.Rules(cfg, options)
	if err != nil {
		return usageErrorf("--resources: %w", err)
	}
	return writeRBAC(c, names, rules, output)
}

func writeRBAC(c *cobra.Command, names rbac.Names, rules []rbac.Rule, output string) error {
	if problems := content.IsDNS1123Label(names.Namespace); len(problems) > 0 {
		return usageErrorf("--namespace must be a name of at most 63 lower case letters, digits and '-', not %q", names.Namespace)
	}
	if problems := content.IsDNS1123Subdomain(names.ServiceAccount); len(problems) > 0 {
		return usageErrorf("--service-account must be a name of lower case letters, digits, '-' and '.', not %q", names.ServiceAccount)
	}
	if problems := content.IsPathSegmentName(names.Role); len(problems) > 0 || names.Role == "" {
		return usageErrorf("--name must be the name of a ClusterRole, not %q", names.Role)
	}
	switch output {
	case "yaml":
		return rbac.WriteYAML(c.OutOrStdout(), names, rules)
	case "json":
		return rbac.WriteJSON(c.OutOrStdout(), names, rules)
	}
	return usageErrorf("--output must be yaml or json, not %q", output)
}
