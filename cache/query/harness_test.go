package query_test

import (
	"context"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"

	stdjson "encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
)

// listRequest is readRequest with the parameters of a query, which it escapes.
func listRequest(t testing.TB, path string, rep api.Representation) *read.Request {
	t.Helper()
	path, params, _ := strings.Cut(path, "?")
	var escaped []string
	for _, pair := range strings.Split(params, "&") {
		name, value, _ := strings.Cut(pair, "=")
		escaped = append(escaped, name+"="+url.QueryEscape(value))
	}
	params = strings.Join(escaped, "&")
	req := cachetest.ReadRequest(t, path+"?"+params, rep)
	req.MostRecent = true
	if info := api.ParseRequestInfo("GET", "/api/v1/pods", params); info.Query != nil {
		var err error
		if req.Query, err = query.Parse(info.Query); err != nil {
			t.Fatal(err)
		}
	}
	return req
}

// list performs a list with a query. names are those of its objects.
func (b *queryBench) list(t testing.TB, c *cache.Collection, path string) (list *metav1.PartialObjectMetadataList, names []string) {
	t.Helper()
	resp, err := b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{}))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	list = new(metav1.PartialObjectMetadataList)
	if err := stdjson.Unmarshal(cachetest.Body(t, resp), list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return list, names
}

// fillPhases creates pods in three phases with increasing numbers of restarts.
func (b *queryBench) fillPhases(n int) {
	for i := range n {
		pod := cachetest.Pod(fmt.Sprintf("ns-%d/web-%05d", i%4, i), fmt.Sprintf("node-%d", i%10), fmt.Sprintf("tenth=%d", i%10))
		pod.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[i%3]
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: int32(i / 10)}}
		b.source.Create(cachetest.Pods, pod)
	}
}

// transformedRequest is listRequest for a list of pods.
func (b *queryBench) transformedRequest(t testing.TB, path string, rep api.Representation) *read.Request {
	req := listRequest(t, path, rep)
	if rep.Encoding == api.Protobuf {
		req.ObjectsFrom = b.collection(cachetest.Pods, api.Protobuf)
	}
	return req
}

// queryBench is a source, its collections and a Reader.
type queryBench struct {
	t       testing.TB
	source  *cachetest.Source
	manager *cache.Manager
	reader  *read.Reader
	now     time.Time
	res     map[schema.GroupVersionResource]*source.Resource
}

func newQueryBench(t testing.TB) *queryBench { return newLimitedQueryBench(t, cache.Limits{}) }

func newLimitedQueryBench(t testing.TB, limits cache.Limits) *queryBench {
	t.Helper()
	b := &queryBench{t: t, now: time.Now().Add(time.Hour), res: map[schema.GroupVersionResource]*source.Resource{}}
	resources := []*source.Resource{cachetest.PodResource(), cachetest.NodeResource(), cachetest.WidgetResource()}
	for _, res := range resources {
		res.Printer = table.NewDefaultPrinter()
		b.res[res.GroupVersionResource] = res
	}
	b.source = cachetest.New(resources...)
	b.manager = cachetest.NewManager(t, b.source, limits)
	t.Cleanup(b.manager.Close)
	b.reader = cachetest.NewReader(t, read.Options{Now: func() time.Time { return b.now }, Wait: time.Millisecond})
	return b
}

// manage gives most objects managedFields, some of them so many that parts of their bytes are not
// copied.
func (b *queryBench) manage() {
	for gvr := range b.res {
		for i, o := range b.source.Objects(gvr) {
			if i%5 == 4 {
				continue
			}
			var managers []metav1.ManagedFieldsEntry
			for m := range i%3 + 1 {
				managers = append(managers, metav1.ManagedFieldsEntry{
					Manager: fmt.Sprint("<m", m, ">"), Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:x":"` + strings.Repeat("}", i%7*m*150) + `"}}`),
				})
			}
			o = o.DeepCopyObject().(cachetest.Object)
			o.SetManagedFields(managers)
			b.source.Update(gvr, o)
		}
	}
}

// collection returns a collection that holds everything the source has.
func (b *queryBench) collection(gvr schema.GroupVersionResource, enc api.Encoding) *cache.Collection {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	c, err := b.manager.Collection(ctx, b.res[gvr], enc)
	if err != nil {
		b.t.Fatal(err)
	}
	newest := uint64(0)
	for _, o := range b.source.Objects(gvr) {
		rv, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		newest = max(newest, rv)
	}
	if err := c.WaitFor(ctx, newest, 20*time.Second); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// representations returns all representations of lists.
func representations() map[string]api.Representation {
	all := map[string]api.Representation{
		"json":                    {},
		"json pretty":             {Pretty: true},
		"metadata":                {Transform: api.PartialMetadata},
		"metadata pretty":         {Transform: api.PartialMetadata, Pretty: true},
		"table":                   {Transform: api.Table},
		"table pretty":            {Transform: api.Table, Pretty: true},
		"table object":            {Transform: api.Table, IncludeObject: api.IncludeObjectFull},
		"table none":              {Transform: api.Table, IncludeObject: api.IncludeNone},
		"protobuf":                {Encoding: api.Protobuf},
		"protobuf metadata":       {Encoding: api.Protobuf, Transform: api.PartialMetadata},
		"protobuf table (served)": {Encoding: api.Protobuf, Transform: api.Table},
	}
	for name, rep := range maps.Clone(all) {
		rep.DropManagedFields = true
		all[name+" dropped"] = rep
	}
	return all
}
