package discovery

import (
	"encoding/json"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServerResource is the discovery entry of one resource.
type ServerResource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Verbs are the verbs of the resource itself; a resource that exists only for its subresources
	// has none.
	Verbs []string
}

// Supports reports whether the resource has the verb.
func (r *ServerResource) Supports(verb string) bool { return slices.Contains(r.Verbs, verb) }

// Documents are the upstream's last discovery documents. They are shared and must not be modified.
type Documents struct {
	// At is when they were read; zero before that.
	At time.Time `json:"at"`
	// Core and Groups are the aggregated discovery documents of /api and /apis, and their ETags.
	Core       *apidiscoveryv2.APIGroupDiscoveryList `json:"core,omitempty"`
	Groups     *apidiscoveryv2.APIGroupDiscoveryList `json:"groups,omitempty"`
	CoreETag   string                                `json:"coreETag,omitempty"`
	GroupsETag string                                `json:"groupsETag,omitempty"`
	// Version is the body of /version, nil if that is not known.
	Version json.RawMessage `json:"version,omitempty"`
}

// discovered is the result of one reading. It is immutable.
type discovered struct {
	resources map[schema.GroupVersionResource]ServerResource
	// documents are the two aggregated documents by path, which are revalidated by their ETag.
	documents map[string]*document
	at        time.Time // when the upstream sent it; zero before it has sent anything
	restored  bool      // it was sent to an earlier process
}

type document struct {
	etag string
	list *apidiscoveryv2.APIGroupDiscoveryList
}

func newDiscovered(at time.Time) *discovered {
	return &discovered{resources: make(map[schema.GroupVersionResource]ServerResource), documents: make(map[string]*document), at: at}
}

// add adds the resources of a document.
func (d *discovered) add(path string, doc *document, last *discovered) {
	d.documents[path] = doc
	for _, group := range doc.list.Items {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale && len(version.Resources) == 0 {
				for gvr, r := range last.resources {
					if gvr.GroupVersion() == gv {
						d.resources[gvr] = r
					}
				}
			}
			for _, in := range version.Resources {
				r := ServerResource{
					GroupVersionResource: gv.WithResource(in.Resource),
					Namespaced:           in.Scope == apidiscoveryv2.ScopeNamespace,
					Verbs:                in.Verbs,
				}
				if in.ResponseKind != nil {
					r.Kind = in.ResponseKind.Kind
				}
				d.resources[r.GroupVersionResource] = r
			}
		}
	}
}
