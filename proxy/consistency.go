package proxy

import (
	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// consistency returns the Mode of a most-recent read: that of the client's rule, or
// ModeStrict with Cache-Control: no-cache (RFC 9111, section 5.2.1.4).
func (x *exchange) consistency() policy.Mode {
	if x.settings.Mode != policy.ModeStrict && httpguts.HeaderValuesContainsToken(x.request.Header.Values("Cache-Control"), "no-cache") {
		return policy.ModeStrict
	}
	return x.settings.Mode
}

// mode is the Mode of a most-recent read of res. Of what aggregated API servers
// serve, the answers to writes do not tell how new the cache must be.
func (x *exchange) mode(res *source.Resource) policy.Mode {
	if res.Aggregated {
		return policy.ModeStrict
	}
	return x.consistency()
}
