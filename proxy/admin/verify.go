package admin

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

// VerifyPath compares the collections with the upstream, by POST. The parameter resource selects
// plurals (pods, deployments.apps) and may be repeated.
const VerifyPath = "/debug/verify"

// Verified is the response.
type Verified struct {
	Collections []VerifiedCollection `json:"collections"`
}

// VerifiedCollection is the result for one collection.
type VerifiedCollection struct {
	Cluster  string `json:"cluster,omitempty"`
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Encoding string `json:"encoding"`
	// Result is same, differs or unfinished.
	Result string `json:"result"`
	// ResourceVersion is the version that was compared.
	ResourceVersion uint64 `json:"resourceVersion,omitempty"`
	Objects         int    `json:"objects"`
	Sampled         int    `json:"sampled"`
	// Differing counts the differences, of which Differences are the first.
	Differing   int                  `json:"differing,omitempty"`
	Differences []VerifiedDifference `json:"differences,omitempty"`
	// Error is the reason why a check is unfinished.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

// VerifiedDifference is an object that differs: its name and versions, never its contents.
type VerifiedDifference struct {
	Key        string `json:"key"`
	Difference string `json:"difference"` // missing, extra, version or bytes
	Cached     uint64 `json:"cached,omitempty"`
	Upstream   uint64 `json:"upstream,omitempty"`
}

// Verify compares the collections that which selects.
type Verify func(ctx context.Context, which func(schema.GroupVersionResource) bool) []VerifiedCollection

// Found returns the result of a check.
func Found(c *selfcheck.Report) VerifiedCollection {
	out := VerifiedCollection{
		Group: c.Resource.Group, Version: c.Resource.Version, Resource: c.Resource.Resource, Encoding: c.Encoding.String(),
		Result: c.Result.String(), ResourceVersion: c.RV, Objects: c.Objects, Sampled: c.Sampled, Differing: c.Differing,
		Seconds: c.Took.Round(time.Millisecond).Seconds(),
	}
	if c.Err != nil {
		out.Error = c.Err.Error()
	}
	for _, d := range c.Differences {
		out.Differences = append(out.Differences, VerifiedDifference{d.Key, d.Kind.String(), d.Cached, d.Upstream})
	}
	return out
}

// serveVerify serves clients on this machine only, whatever the listener's address: the response
// names objects, and the upstream has to work for it. One check is in progress at a time.
func serveVerify(verify Verify) http.Handler {
	busy := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := checkLocal(r); why != "" {
			http.Error(w, "forbidden: "+why, http.StatusForbidden)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "the collections are compared with the upstream by POST", http.StatusMethodNotAllowed)
			return
		}
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			http.Error(w, "the collections are being compared for somebody else", http.StatusTooManyRequests)
			return
		}
		found := Verified{Collections: verify(r.Context(), Named(r.URL.Query()["resource"]))}
		if found.Collections == nil {
			found.Collections = []VerifiedCollection{}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	})
}

// checkLocal returns why a request is not from this machine, "" if it is.
func checkLocal(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return VerifyPath + " is for programs on the gateway's machine, or in its pod, alone"
	}
	return authn.CheckLocal(r.Host, r.Header.Values)
}

// Named selects the resources of these names, all without names.
func Named(names []string) func(schema.GroupVersionResource) bool {
	return func(gvr schema.GroupVersionResource) bool {
		for _, name := range names {
			if gr := schema.ParseGroupResource(name); gr.Resource == gvr.Resource && (gr.Group == "" || gr.Group == gvr.Group) {
				return true
			}
		}
		return len(names) == 0
	}
}
