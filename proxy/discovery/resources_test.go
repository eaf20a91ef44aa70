package discovery

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

var projects = schema.GroupVersionResource{Group: "project.example.com", Version: "v1", Resource: "projects"}

func TestReadAPIService(t *testing.T) {
	gv := projects.GroupVersion()
	for raw, want := range map[string]string{
		`{"spec":{"group":"project.example.com","version":"v1"}}`:                        "",
		`{"spec":{"group":"project.example.com","version":"v1","service":null}}`:         "",
		`{"spec":{"group":"project.example.com","version":"v1","service":{"name":"a"}}}`: `{"name":"a"}`,
		`{"spec":{"group":"project.example.com","version":"v1","service":{}}}`:           `{}`,
		`{"spec":{"group":1}}`: "json",
	} {
		got, service := readAPIService(&object.Object{Name: "v1.project.example.com", Encoded: encoding.Encoded{Raw: []byte(raw)}})
		if got != gv || service != want && !(want == "json" && strings.HasPrefix(service, "json")) {
			t.Errorf("%s: %v %q", raw, got, service)
		}
	}
}

// TestDropManagedFields: of the resources that the configuration names, and of no others,
// what is kept is without managedFields.
func TestDropManagedFields(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	raw := []byte(`{"metadata":{"name":"a","resourceVersion":"1","managedFields":[{}]}}`)
	for _, test := range []struct {
		names []string
		bytes int
	}{{nil, len(raw)}, {[]string{"nodes", "pods.example.com"}, len(raw)}, {[]string{"nodes", "pods"}, len(`{"metadata":{"name":"a","resourceVersion":"1"}}`)}, {[]string{"*"}, len(`{"metadata":{"name":"a","resourceVersion":"1"}}`)}} {
		r := NewResources(nil, nil, nil, nil, Options{DropManagedFields: test.names})
		o, err := r.cachedSchema(pods, object.SchemaFor(pods)).Decode(api.JSON, raw)
		if err != nil || len(o.Raw) != test.bytes {
			t.Errorf("%q: %q, %v", test.names, o.Raw, err)
		}
	}
}

// servedPods is the discovery of a cluster that serves pods.
type servedPods struct{}

func (servedPods) Lookup(gvr schema.GroupVersionResource) (ServerResource, bool) {
	return ServerResource{GroupVersionResource: gvr, Kind: "Pod", Verbs: []string{"list", "watch"}}, gvr.Resource == "pods"
}

func (s servedPods) Known(gvr schema.GroupVersionResource) (ServerResource, bool) {
	return s.Lookup(gvr)
}

func (servedPods) Refresh(context.Context) error { return nil }

// anyPrinter prints all kinds.
type anyPrinter struct{}

func (anyPrinter) For(schema.GroupVersionKind) (table.Printer, bool) {
	return table.NewDefaultPrinter(), true
}

// TestFindReportsTheReason: a resource is not served from the cache if a definition names it that is not
// established, or if another server serves its group version.
func TestFindReportsTheReason(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for want, change := range map[reason.Forward]func(*Resources){
		reason.NotForwarded: func(*Resources) {},
		reason.Unserved:     func(r *Resources) { r.mu.definitions["pods."] = &definition{} },
		reason.Aggregated:   func(r *Resources) { r.changeServer(pods.GroupVersion(), `{"name":"other"}`, false) },
	} {
		r := NewResources(servedPods{}, anyPrinter{}, nil, slog.New(slog.DiscardHandler), Options{})
		change(r)
		if _, why := r.Find(pods); why != want {
			t.Errorf("%v, want %v", why, want)
		}
	}
}
