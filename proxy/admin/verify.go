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

// VerifyPath is where a check of the collections is asked for, by POST. The parameter
// resource chooses plurals (pods, deployments.apps) and may be repeated.
const VerifyPath = "/debug/verify"

// Verified is the answer: a comparison of every collection with the upstream.
type Verified struct {
	Collections []VerifiedCollection `json:"collections"`
}

// VerifiedCollection is what was found of one collection.
type VerifiedCollection struct {
	Cluster  string `json:"cluster,omitempty"`
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Encoding string `json:"encoding"`
	// Result is same, differs or unfinished.
	Result string `json:"result"`
	// ResourceVersion is the version at which both were compared.
	ResourceVersion uint64 `json:"resourceVersion,omitempty"`
	Objects         int    `json:"objects"`
	Sampled         int    `json:"sampled"`
	// Differing counts the differences, of which Differences are the first.
	Differing   int                  `json:"differing,omitempty"`
	Differences []VerifiedDifference `json:"differences,omitempty"`
	// Error is why a check is unfinished.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

// VerifiedDifference is an object that differs: by name and versions, never contents.
type VerifiedDifference struct {
	Key        string `json:"key"`
	Difference string `json:"difference"` // missing, extra, version or bytes
	Cached     uint64 `json:"cached,omitempty"`
	Upstream   uint64 `json:"upstream,omitempty"`
}

// Verify checks the collections that which chooses.
type Verify func(ctx context.Context, which func(schema.GroupVersionResource) bool) []VerifiedCollection

// Found is what an answer says of a check.
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

// serveVerify checks for who is on this machine, whatever the listener's address: names of
// objects are told, and the upstream has work. One is under way at a time.
func serveVerify(verify Verify) http.Handler {
	busy := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := elsewhere(r); why != "" {
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
		found := Verified{Collections: verify(r.Context(), named(r.URL.Query()["resource"]))}
		if found.Collections == nil {
			found.Collections = []VerifiedCollection{}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	})
}

// elsewhere tells why a request is not from this machine, "" when it is.
func elsewhere(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return VerifyPath + " is for programs on the gateway's machine, or in its pod, alone"
	}
	return authn.CheckLocal(r.Host, r.Header.Values)
}

// named chooses the resources of these names, all if there are none.
func named(names []string) func(schema.GroupVersionResource) bool {
	return func(gvr schema.GroupVersionResource) bool {
		for _, name := range names {
			if gr := schema.ParseGroupResource(name); gr.Resource == gvr.Resource && (gr.Group == "" || gr.Group == gvr.Group) {
				return true
			}
		}
		return len(names) == 0
	}
}
