package read_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
)

// FuzzListQuery follows a list with arbitrary parameters to its last page. All pages must show one
// version and, together, the selected objects in order.
func FuzzListQuery(f *testing.F) {
	b := newReadBench(f)
	b.fill(60, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	for _, query := range []string{
		"", "resourceVersion=0", "limit=7", "limit=1&labelSelector=tenth%3D3", "labelSelector=tenth+notin+(1,2),app&limit=4", "resourceVersion=160&limit=9",
		"fieldSelector=metadata.name%3Dweb-00007", "fieldSelector=metadata.name!%3Dweb-00007,metadata.namespace%3Dns-1&limit=3", "fieldSelector=spec.nodeName%3Dnode-3&limit=2",
		"resourceVersionMatch=NotOlderThan&resourceVersion=5&limit=50", "labelSelector=!app", "resourceVersion=0&limit=3&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL25zLTEvYSJ9",
	} {
		f.Add("", query)
		f.Add("ns-2", query)
	}
	f.Fuzz(func(t *testing.T, namespace, query string) {
		opts, err := api.ParseListOptions(query)
		if err != nil || opts.Watch || opts.Continue != "" {
			return
		}
		names, ok := followPages(t, b, c, namespace, opts)
		if !ok {
			return
		}
		if want := matching(b, namespace, opts); !slices.Equal(names, want) {
			t.Errorf("%q %q: %v\nwant %v", namespace, query, names, want)
		}
	})
}

// followPages lists page by page. ok is false for lists that are forwarded or rejected.
func followPages(t *testing.T, b *readBench, c *cache.Collection, namespace string, opts api.ListOptions) (names []string, ok bool) {
	version := ""
	for range 200 {
		resp, err := b.reader.List(t.Context(), c, &read.Request{Namespace: namespace, Options: opts, MostRecent: true, Rep: api.Representation{Transform: api.PartialMetadata}})
		var status apierrors.APIStatus
		if errors.Is(err, read.ErrForward) || errors.As(err, &status) {
			return nil, false
		}
		if err != nil {
			t.Fatal(err)
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(cachetest.Body(t, resp), &list); err != nil {
			t.Fatal(err)
		}
		if version != "" && list.ResourceVersion != version {
			t.Fatalf("pages at %s and %s", version, list.ResourceVersion)
		}
		version = list.ResourceVersion
		for _, o := range list.Items {
			names = append(names, o.Namespace+"/"+o.Name)
		}
		if list.Continue == "" {
			return names, true
		}
		if _, narrowed := opts.FieldSelector.RequiresExactMatch("metadata.namespace"); narrowed && namespace == "" {
			// As upstream: the token is relative to the namespace that the selector names, while
			// the next page is looked for in all namespaces.
			return nil, false
		}
		opts.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = list.Continue, "", ""
	}
	t.Fatal("the list does not end")
	return nil, false
}

// matching returns the expected objects.
func matching(b *readBench, namespace string, opts api.ListOptions) []string {
	var names []string
	exact, _ := api.ParseResourceVersion(opts.ResourceVersion)
	for _, o := range b.source.Objects(cachetest.Pods) {
		rv, _ := api.ParseResourceVersion(o.GetResourceVersion())
		if exactly := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0; exactly && exact > 0 && rv > exact {
			continue
		}
		node := o.(*corev1.Pod).Spec.NodeName
		set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "spec.nodeName": node, "status.phase": "Running"}
		if (namespace == "" || namespace == o.GetNamespace()) && opts.LabelSelector.Matches(labels.Set(o.GetLabels())) && opts.FieldSelector.Matches(set) {
			names = append(names, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return names
}

func TestReadStopsWithItsContext(t *testing.T) {
	b := newReadBench(t)
	b.fill(3, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.reader.List(ctx, c, cachetest.ReadRequest(t, "?resourceVersion=999999", api.Representation{})); !errors.Is(err, context.Canceled) || errors.Is(err, read.ErrForward) {
		t.Errorf("%v", err)
	}
	if _, err := b.reader.Get(ctx, c, cachetest.ReadRequest(t, "ns-1/web-00001?resourceVersion=999999", api.Representation{})); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
