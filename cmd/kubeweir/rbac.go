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

// rbacSettings returns the gateway's flags that determine the rights it needs.
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
		Short: "Print the minimum RBAC permissions of a gateway.",
		Long: `Prints a ServiceAccount, a ClusterRole and a ClusterRoleBinding for a configuration of the
gateway. Comments explain what each rule is for and what happens without it. Pass the gateway's
file, and the flags on which its permissions depend. The namespace must exist.

Requests for resources that the gateway may not read are forwarded as their client: the responses
are the same, at the cluster's cost. The default is to cache all built-in resources except
Secrets. Whoever has the gateway's token can read all cached resources, so include Secrets, or all
resources (*), only if necessary. Custom resources can be included by group: *.cert-manager.io.`,
		Example: `  # For clients with tokens.
  kubeweir rbac | kubectl apply -f -

  # For clients with tokens or certificates, with a configuration file.
  kubeweir rbac --config gateway.yaml --client-ca-file ca.crt

  # Built-in resources, all resources of cert-manager, and Secrets.
  kubeweir rbac --resources 'default,*.cert-manager.io,secrets'

  # For the hub of the ClusterProfiles.
  kubeweir rbac --config gateway.yaml --hub

  # For a sidecar; add the permissions that its programs need for writes.
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
		"resources to cache: plural `names` such as pods, deployments.apps or *.cert-manager.io; default for all built-in ones except Secrets; * for all")
	f.StringVar(&cluster, "cluster", "", "`name` of the cluster, for a configuration with several")
	f.BoolVar(&hub, "hub", false, "print the permissions in the hub of the ClusterProfiles")
	f.StringVar(&how, "impersonation", constrainedImpersonation,
		"`kind` of impersonation for clients without tokens: constrained (KEP-5284, Kubernetes 1.36 and later, never as system:masters, nodes or service accounts) or unconstrained (as powerful as cluster-admin)")
	f.StringVarP(&names.Namespace, "namespace", "n", names.Namespace, "`namespace` of the ServiceAccount")
	f.StringVar(&names.ServiceAccount, "service-account", names.ServiceAccount, "`name` of the gateway's ServiceAccount")
	f.StringVar(&names.Role, "name", names.Role, "`name` of the ClusterRole and the ClusterRoleBinding")
	f.StringVarP(&output, "output", "o", "yaml", "`format`: yaml, or json, which has no comments")
	f.Lookup("resources").DefValue = rbac.Default // which pflag would put in brackets
	annotateChoices(c, "output", "yaml", "json")
	annotateChoices(c, "impersonation", constrainedImpersonation, unconstrainedImpersonation)
	f.VisitAll(func(flag *pflag.Flag) {
		_ = f.SetAnnotation(flag.Name, config.SectionAnnotation, []string{"Permissions"})
	})
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
			return usageErrorf("--%s selects permissions in a cluster, and --hub prints those in the hub; give one of them", other)
		}
	}
	if !cfg.ClusterProfiles.On() {
		return usageErrorf("--hub prints the permissions in the hub of ClusterProfiles, and --clusterprofile-provider-file, which turns them on, is not set")
	}
	if names.RoleNamespace = cfg.ClusterProfiles.Namespace; !c.Flags().Changed("name") {
		names.Role += "-hub" // the gateway may have other rights there, too
	}
	return writeRBAC(c, names, rbac.HubRules(), output)
}

// ofCluster returns the configuration of a cluster as if it were the only one.
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
		return nil, usageErrorf("--cluster requires a configuration with clusters; set --config")
	case name == "":
		return nil, usageErrorf("the configuration has several clusters; set --cluster to one of %s", strings.Join(names, ", "))
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
		return usageErrorf("--resources must not be empty; give plural names such as pods, or %s or %s", rbac.Default, rbac.Everything)
	}
	rules, err := rbac.Rules(cfg, options)
	if err != nil {
		return usageErrorf("--resources: %w", err)
	}
	return writeRBAC(c, names, rules, output)
}

func writeRBAC(c *cobra.Command, names rbac.Names, rules []rbac.Rule, output string) error {
	if problems := content.IsDNS1123Label(names.Namespace); len(problems) > 0 {
		return usageErrorf("--namespace must be a name of at most 63 lowercase letters, digits and '-', not %q", names.Namespace)
	}
	if problems := content.IsDNS1123Subdomain(names.ServiceAccount); len(problems) > 0 {
		return usageErrorf("--service-account must be a name of lowercase letters, digits, '-' and '.', not %q", names.ServiceAccount)
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
