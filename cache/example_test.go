package cache_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// fixedSource is an API server with one ConfigMap that never changes.
type fixedSource struct{}

const configMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"7"}}`

func (fixedSource) List(_ context.Context, _ *source.Resource, enc api.Encoding, _ source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	if enc != api.JSON {
		return source.ListMeta{}, source.ErrUnsupported
	}
	return source.ListMeta{ResourceVersion: 8, Kind: "ConfigMapList", APIVersion: "v1"}, visit([]byte(configMap))
}

func (fixedSource) Watch(ctx context.Context, _ *source.Resource, _ api.Encoding, o source.WatchOptions, handle func(source.Event) error) error {
	if o.SendInitialEvents {
		return source.ErrUnsupported // the reflector lists instead
	}
	if err := handle(source.Event{Type: source.WatchAccepted}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (fixedSource) CurrentVersion(context.Context, *source.Resource) (uint64, error) { return 8, nil }
func (fixedSource) Server(context.Context) (string, error)                           { return "", source.ErrUnsupported }
func (fixedSource) LastContact() time.Time                                           { return time.Now() }
func (fixedSource) Delay() time.Duration                                             { return 0 }

// ExampleSource serves the lists of a custom Source like kube-apiserver.
func ExampleSource() {
	manager, err := cache.NewManager(cache.Options{Source: fixedSource{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close()
	reader, err := read.New(read.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()

	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	configMaps := &source.Resource{GroupVersionResource: gvr, Kind: "ConfigMap", Namespaced: true, Schema: object.SchemaFor(gvr)}
	collection, err := manager.Collection(context.Background(), configMaps, api.JSON)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := reader.List(context.Background(), collection, &read.Request{
		Namespace: "default", Options: api.ListOptions{ResourceVersion: "0"}, Rep: api.Representation{Encoding: api.JSON},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s", resp.Status, resp.Body) // large lists have a BodyTo instead
	// Output: 200 {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[{"metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"7"}}]}
}
