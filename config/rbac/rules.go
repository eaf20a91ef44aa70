package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/apiservers"
)

// Options describe a gateway's rights, in addition to its configuration.
type Options struct {
	// Resources are the resources to cache, see ParseResources; nil selects the defaults.
	Resources []string
	// UnconstrainedImpersonation requests the verb impersonate, which amounts to cluster-admin,
	// instead of the rules of KEP-5284. Clusters before Kubernetes 1.36 support only this verb.
	UnconstrainedImpersonation bool
}

// Rule is a rule of a ClusterRole with its purpose.
type Rule struct {
	rbacv1.PolicyRule
	// For states the purpose of the rule and what happens without it, in one or more lines.
	For []string
}

const (
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
	rbacGroup           = "rbac.authorization.k8s.io"
	extensionsGroup     = "apiextensions.k8s.io"
	discoveryGroup      = "discovery.k8s.io"
	registrationGroup   = "apiregistration.k8s.io"
	profilesGroup       = "multicluster.x-k8s.io"

	// credentialID is an extra field that API servers add to every user who authenticates by a
	// certificate.
	credentialID = "userextras/authentication.kubernetes.io/credential-id"
)

// Rules are the rules of the ClusterRole of a gateway that is configured by c. The
// error is about Options.Resources.
//
// They do not include the permissions of every authenticated client: a cluster lets all of them
// read /version, discovery and OpenAPI (system:discovery, system:public-info-viewer).
func Rules(c *config.Gateway, o Options) ([]Rule, error) {
	cached, err := ParseResources(o.Resources)
	if err != nil {
		return nil, err
	}
	for _, group := range c.CacheAggregatedGroups {
		cached.addGroup(group)
	}
	followed := followedBy(c)
	rules := cached.rules(followed)
	rules = append(rules, followed.rules(cached)...)
	if c.State.Dir != "" {
		rules = append(rules, stateRule())
	}
	if !c.ReviewsClients() {
		return rules, nil
	}
	rules = append(rules, reviewRules()...)
	if c.Impersonates() {
		rules = append(rules, impersonationRules(c, o.UnconstrainedImpersonation)...)
	}
	return rules, nil
}

// HubRules returns the rules for reading the ClusterProfiles of a hub.
func HubRules() []Rule {
	return []Rule{{policy([]string{"list", "watch"}, profilesGroup, "clusterprofiles"), []string{
		"The list of clusters. Without it the clusters of ClusterProfiles do not change, or are unknown.",
	}}}
}

// stateRule returns the rule for state that is saved for a restart.
func stateRule() Rule {
	identity := policy([]string{"get"}, "", "namespaces")
	identity.ResourceNames = []string{"kube-system"}
	return Rule{identity, []string{
		"The UID of kube-system identifies the cluster, so that checkpoints of another cluster are not used. Without it",
		"no checkpoints are saved.",
	}}
}

// Policy returns the rules in the form of a ClusterRole.
func Policy(rules []Rule) []rbacv1.PolicyRule {
	policy := make([]rbacv1.PolicyRule, 0, len(rules))
	for i := range rules {
		policy = append(policy, rules[i].PolicyRule)
	}
	return policy
}

// own is a resource that the gateway lists and watches for itself.
type own struct{ group, resource string }

// ownResources are resources that the gateway watches for itself, with the purpose.
type ownResources struct {
	resources []own
	purpose   []string
}

// followed is all of them.
type followed []ownResources

// followedBy returns the resources that a gateway configured by c watches for itself.
func followedBy(c *config.Gateway) followed {
	all := followed{
		{[]own{{extensionsGroup, "customresourcedefinitions"}}, []string{
			"The definitions of custom resources.",
			"Without it custom resources are forwarded, not cached.",
		}},
		{[]own{{registrationGroup, "apiservices"}}, []string{
			"The API groups of aggregated API servers, which are forwarded.",
			"Without it a custom resource is still served from the cache after such a server has taken over its group.",
		}},
	}
	if servers, _, err := apiservers.Parse(c.UpstreamServers); err == nil && servers.Slices {
		all = append(all, ownResources{[]own{{discoveryGroup, "endpointslices"}}, []string{
			"The API servers of the cluster: endpoints of the Service kubernetes in the namespace default.",
			"Without it only the kubeconfig's server is used.",
		}})
	}
	if !c.ReviewsClients() {
		return all // decides nothing
	}
	return append(all, ownResources{
		[]own{{rbacGroup, "clusterrolebindings"}, {rbacGroup, "clusterroles"}, {rbacGroup, "rolebindings"}, {rbacGroup, "roles"}},
		[]string{
			"Changes of RBAC objects invalidate cached permissions and end watches.",
			"Without it a revocation takes effect after --authorization-allowed-ttl, for watches --authorization-watch-recheck-period.",
		},
	})
}

func (f followed) has(group, resource string) bool {
	return slices.ContainsFunc(f, func(r ownResources) bool { return slices.Contains(r.resources, own{group, resource}) })
}

// rules returns the rules for the followed resources. They include the verb get for resources that
// are also cached for clients, unless a wildcard rule covers them.
func (f followed) rules(cached *Resources) (rules []Rule) {
	for _, r := range f {
		byVerbs := map[bool][]string{} // by whether clients are served it, too
		for _, o := range r.resources {
			if !cached.covers(o.group) {
				served := cached.has(o.group, o.resource)
				byVerbs[served] = append(byVerbs[served], o.resource)
			}
		}
		for _, served := range []bool{true, false} {
			if names := byVerbs[served]; len(names) > 0 {
				rules = append(rules, Rule{policy(followVerbs(served), r.resources[0].group, names...), r.purpose})
			}
		}
	}
	return rules
}

func followVerbs(served bool) []string {
	if served {
		return readVerbs()
	}
	return []string{"list", "watch"}
}

// readVerbs are what is needed of a resource that is cached: list and watch feed the
// cache, and lists are revalidated by list; get is for reads of single objects that
// ask for the most recent state, of which simultaneous ones share a request.
func readVerbs() []string { return []string{"get", "list", "watch"} }

func policy(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

// reviewRules are what the ClusterRole system:auth-delegator has, too. They are spelled
// out, so that the role can be read, and holds no more when a cluster's own role does.
func reviewRules() []Rule {
	return []Rule{
		{policy([]string{"create"}, authenticationGroup, "tokenreviews"), []string{
			"Authentication of tokens. Without it clients with tokens get 503.",
		}},
		{policy([]string{"create"}, authorizationGroup, "subjectaccessreviews"), []string{
			"Authorization of cached reads. Without it reads that the cache could serve get 503.",
		}},
	}
}
