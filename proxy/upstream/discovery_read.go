package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

const (
	// acceptDiscovery requests the aggregated form; servers without it respond in the old one.
	acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	// maxDiscovery bounds one discovery document: those of large clusters have a few megabytes.
	maxDiscovery = 64 << 20
	// discoveryParallel is how many group versions are read at a time if there is no aggregated form.
	discoveryParallel = 8
)

// discovered is the result of one reading. It is immutable.
type discovered struct {
	resources map[schema.GroupVersionResource]*ServerResource
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
	return &discovered{resources: make(map[schema.GroupVersionResource]*ServerResource), documents: make(map[string]*document), at: at}
}

// of returns the resources of one group version.
func (d *discovered) of(gv schema.GroupVersion) []*ServerResource {
	var of []*ServerResource
	for gvr, r := range d.resources {
		if gvr.GroupVersion() == gv {
			of = append(of, r)
		}
	}
	return of
}

func (d *discovered) add(r *ServerResource) { d.resources[r.GroupVersionResource] = r }

// discover reads what the server serves. Group versions whose own server does not respond keep the
// resources that they had in last.
func (c *Client) discover(ctx context.Context, last *discovered) (*discovered, error) {
	known := newDiscovered(time.Now())
	for _, path := range []string{"/api", "/apis"} {
		body, doc, err := c.discoveryRoot(ctx, path, last.documents[path])
		if err != nil {
			return nil, err
		}
		if doc == nil {
			if err := c.discoverGroups(ctx, path, body, known, last); err != nil {
				return nil, err
			}
			continue
		}
		known.documents[path] = doc
		for i := range doc.list.Items {
			known.addGroup(&doc.list.Items[i], last)
		}
	}
	return known, nil
}

// discoveryRoot reads one of the two roots: a document if the server has the aggregated form, else
// the body.
func (c *Client) discoveryRoot(ctx context.Context, path string, last *document) ([]byte, *document, error) {
	call := &call{path: path, accept: acceptDiscovery}
	if last != nil {
		call.etag = last.etag
	}
	a, body, err := c.getDiscovery(ctx, call)
	switch {
	case err != nil:
		return nil, nil, err
	case a.StatusCode == http.StatusNotModified && last != nil:
		return nil, last, nil
	case a.StatusCode == http.StatusNotFound:
		// A server with only the other root.
		return nil, &document{list: &apidiscoveryv2.APIGroupDiscoveryList{}}, nil
	case a.StatusCode != http.StatusOK:
		return nil, nil, status.Error(a.Response, bytes.NewReader(body), "get", schema.GroupResource{})
	case !isAggregated(a.Header.Get("Content-Type")):
		return body, nil, nil
	}
	doc := &document{etag: a.Header.Get("Etag"), list: &apidiscoveryv2.APIGroupDiscoveryList{}}
	if err := json.Unmarshal(body, doc.list); err != nil {
		return nil, nil, fmt.Errorf("discovery document %s: %w", path, err)
	}
	return nil, doc, nil
}

func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2"
}

// getDiscovery reads one complete document.
func (c *Client) getDiscovery(ctx context.Context, call *call) (*answer, []byte, error) {
	call.purpose, call.rt, call.compress = forDiscovery, c.own.shared, true
	a, err := c.get(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = a.Close() }()
	var body []byte
	reader, err := a.decoded()
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(reader, maxDiscovery+1))
	}
	if err == nil && len(body) > maxDiscovery {
		err = fmt.Errorf("it is larger than %d bytes", maxDiscovery)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("discovery document %s: %w", call.path, err)
	}
	return a, body, nil
}

// addGroup adds a group in the aggregated form.
func (d *discovered) addGroup(group *apidiscoveryv2.APIGroupDiscovery, last *discovered) {
	for i := range group.Versions {
		version := &group.Versions[i]
		gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
		if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale && len(version.Resources) == 0 {
			for _, r := range last.of(gv) {
				d.add(r)
			}
		}
		for j := range version.Resources {
			d.add(aggregatedResource(gv, &version.Resources[j]))
		}
	}
}

func aggregatedResource(gv schema.GroupVersion, in *apidiscoveryv2.APIResourceDiscovery) *ServerResource {
	r := &ServerResource{
		GroupVersionResource: gv.WithResource(in.Resource),
		Namespaced:           in.Scope == apidiscoveryv2.ScopeNamespace,
		Verbs:                in.Verbs,
		Kind:                 kindOf(in.ResponseKind).Kind,
	}
	for _, sub := range in.Subresources {
		r.Subresources = append(r.Subresources, Subresource{Name: sub.Subresource, Kind: kindOf(sub.ResponseKind), Verbs: sub.Verbs})
	}
	return r
}

func kindOf(kind *metav1.GroupVersionKind) schema.GroupVersionKind {
	if kind == nil {
		return schema.GroupVersionKind{}
	}
	return schema.GroupVersionKind(*kind)
}

// discoverGroups reads the old form: a document for each group version that the root in body lists.
func (c *Client) discoverGroups(ctx context.Context, root string, body []byte, known, last *discovered) error {
	versions, err := groupVersions(root, body)
	if err != nil {
		return fmt.Errorf("discovery document %s: %w", root, err)
	}
	lists := make([][]*ServerResource, len(versions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(discoveryParallel)
	for i, gv := range versions {
		group.Go(c.panics.Func("background", func() error {
			list, err := c.discoverVersion(ctx, root, gv)
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				c.log.Warn("a group version's discovery cannot be read", "groupVersion", gv.String(), "error", err)
				list = last.of(gv)
			}
			lists[i] = list
			return nil
		}))
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, list := range lists {
		for _, r := range list {
			known.add(r)
		}
	}
	return nil
}

func groupVersions(root string, body []byte) ([]schema.GroupVersion, error) {
	var versions []schema.GroupVersion
	if root == "/api" {
		var legacy metav1.APIVersions
		if err := json.Unmarshal(body, &legacy); err != nil {
			return nil, err
		}
		for _, v := range legacy.Versions {
			versions = append(versions, schema.GroupVersion{Version: v})
		}
		return versions, nil
	}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(body, &groups); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	return versions, nil
}

func (c *Client) discoverVersion(ctx context.Context, root string, gv schema.GroupVersion) ([]*ServerResource, error) {
	a, body, err := c.getDiscovery(ctx, &call{path: root + "/" + gv.String(), accept: "application/json"})
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, status.Error(a.Response, bytes.NewReader(body), "get", schema.GroupResource{})
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	return plainResources(gv, list.APIResources), nil
}

// plainResources joins resources with their subresources, which the old form lists beside them, in
// any order.
func plainResources(gv schema.GroupVersion, list []metav1.APIResource) []*ServerResource {
	byName := make(map[string]*ServerResource)
	var resources []*ServerResource
	get := func(name string) *ServerResource {
		r := byName[name]
		if r == nil {
			r = &ServerResource{GroupVersionResource: gv.WithResource(name)}
			byName[name] = r
			resources = append(resources, r)
		}
		return r
	}
	for i := range list {
		in := &list[i]
		name, sub, isSub := strings.Cut(in.Name, "/")
		r := get(name)
		if isSub {
			kind := schema.GroupVersionKind{Group: in.Group, Version: in.Version, Kind: in.Kind}
			r.Subresources = append(r.Subresources, Subresource{Name: sub, Kind: kind, Verbs: in.Verbs})
			continue
		}
		r.Kind, r.Namespaced, r.Verbs = in.Kind, in.Namespaced, in.Verbs
	}
	return resources
}
