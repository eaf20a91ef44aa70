package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubeweir/kubeweir/config"
)

// The gateway forwards requests of a client with a token with that token. A client that is known by
// a certificate, or by the word of an authenticating proxy, has no credentials that the gateway
// could forward. The gateway names it in Impersonate-* headers: the user, its groups, its UID if it
// has one, and its extra fields. A certificate always has the extra field credential-id; a proxy
// may name any, for which RBAC has no wildcard but that of all resources in the API group.

func impersonationRules(c *config.Gateway, unconstrained bool) []Rule {
	attributes := []string{"uids", credentialID}
	if c.Authentication.RequestHeader.CAFile != "" {
		attributes = []string{"*"}
	}
	if !unconstrained {
		return constrainedRules(attributes)
	}
	return []Rule{
		{policy([]string{"impersonate"}, "", "groups", "serviceaccounts", "users"), []string{
			"Impersonation, to forward requests of clients without a token (certificates, authenticating proxies).",
			"Without it their requests get 503 unless the cache can serve them. It is as powerful as cluster-admin: whoever",
			"has the gateway's token can impersonate any user. Restrict it with resourceNames, or use constrained --impersonation.",
		}},
		{policy([]string{"impersonate"}, authenticationGroup, attributes...), []string{
			"UIDs and extra fields of those clients; every certificate has the field credential-id.",
		}},
	}
}

// forwardedVerbs returns the verbs of requests to resources, pathVerbs the verbs of requests to
// other paths.
func forwardedVerbs() []string {
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
}

func pathVerbs() []string { return []string{"get"} }

// constrainedRules returns the rules of constrained impersonation (KEP-5284): the right to
// impersonate the user, and the right to act as the user. The mode user-info covers all users
// except nodes and service accounts. Their own modes grant a name without groups and extra fields.
// No mode allows the group system:masters.
func constrainedRules(attributes []string) []Rule {
	const mode = "user-info"
	who := policy([]string{"impersonate:" + mode}, authenticationGroup, attributes...)
	if attributes[0] != "*" {
		who.Resources = append([]string{"groups", "users"}, attributes...)
	}
	on := func(verbs []string) (out []string) {
		for _, verb := range verbs {
			out = append(out, "impersonate-on:"+mode+":"+verb)
		}
		return out
	}
	return []Rule{
		{who, []string{
			"Constrained impersonation (KEP-5284), to forward requests of clients without a token (certificates, authenticating",
			"proxies). It excludes nodes, service accounts and the group system:masters, which need tokens. Without it, and on",
			"clusters before Kubernetes 1.36, which do not support it, requests of those clients get 503 unless the cache can",
			"serve them.",
		}},
		{policy(on(forwardedVerbs()), "*", "*"), []string{
			"Verbs and resources allowed to impersonated clients; remove those that they do not need.",
		}},
		{rbacv1.PolicyRule{Verbs: on(pathVerbs()), NonResourceURLs: []string{"*"}}, []string{
			"The same for non-resource paths: discovery, OpenAPI, /version, /metrics.",
		}},
	}
}
