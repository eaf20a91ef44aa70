package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// acceptDiscovery requests the aggregated form, which kube-apiserver has since 1.30; older ones
	// respond in another.
	acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	// maxDiscovery bounds one discovery document: those of large clusters have a few megabytes.
	maxDiscovery = 64 << 20
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

// discover reads what the server serves. Group versions whose own server does not respond keep the
// resources that they had in last.
func (c *Client) discover(ctx context.Context, last *discovered) (*discovered, error) {
	known := newDiscovered(time.Now())
	for _, path := range []string{"/api", "/apis"} {
		doc, err := c.readDocument(ctx, path, last.documents[path])
		if err != nil {
			return nil, err
		}
		known.add(path, doc, last)
	}
	return known, nil
}

// readDocument reads one of the two documents, which is last if it has not changed.
func (c *Client) readDocument(ctx context.Context, path string, last *document) (*document, error) {
	call := &call{purpose: forDiscovery, rt: c.own.shared, path: path, accept: acceptDiscovery, compress: true}
	if last != nil {
		call.etag = last.etag
	}
	a, err := c.get(ctx, call)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	doc := &document{etag: a.Header.Get("Etag"), list: &apidiscoveryv2.APIGroupDiscoveryList{}}
	switch {
	case a.StatusCode == http.StatusNotModified && last != nil:
		return last, nil
	case a.StatusCode == http.StatusNotFound:
		return doc, nil // a server with only the other document
	case a.StatusCode != http.StatusOK:
		return nil, a.rejection("get", schema.GroupResource{})
	case !isAggregated(a.Header.Get("Content-Type")):
		return nil, fmt.Errorf("discovery document %s: the server does not have the aggregated form of Kubernetes 1.30", path)
	}
	body, err := a.decoded()
	if err == nil {
		err = json.NewDecoder(io.LimitReader(body, maxDiscovery)).Decode(doc.list)
	}
	if err != nil {
		return nil, fmt.Errorf("discovery document %s: %w", path, err)
	}
	return doc, nil
}

func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2"
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
