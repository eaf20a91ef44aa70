package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1 "k8s.io/api/core/v1"
)

// A countingManager is a controller-runtime manager whose controllers record the version in the
// cache of each object that they reconcile.
type countingManager struct {
	manager    ctrl.Manager
	reconciled atomic.Int64

	mu struct {
		sync.Mutex
		held map[schema.GroupVersionResource]versions
	}
}

// startManager starts a manager that ends with the test.
func startManager(ctx context.Context, t *testing.T, cfg *rest.Config) *countingManager {
	t.Helper()
	logger := logr.Discard()
	ctrl.SetLogger(logger)
	m := &countingManager{}
	m.mu.held = map[schema.GroupVersionResource]versions{configMapsResource: {}, widgetsResource: {}}
	var err error
	m.manager, err = ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme.Scheme, Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"},
		// Read from the cache that also delivers the events. A live read may be ahead of the events, and
		// an object that it returned may be deleted before the cache has seen it.
		Client: crclient.Options{Cache: &crclient.CacheOptions{Unstructured: true}},
	})
	must(t, err)
	must(t, m.control("configmaps", configMapsResource, func() crclient.Object { return &corev1.ConfigMap{} }))
	must(t, m.control("widgets", widgetsResource, func() crclient.Object { return newWidget() }))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	return m
}

func newWidget() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	return u
}

// control adds a controller of one resource.
func (m *countingManager) control(name string, resource schema.GroupVersionResource, object func() crclient.Object) error {
	skipNameCheck := true // several tests in the process have managers
	return ctrl.NewControllerManagedBy(m.manager).Named(name).
		WithOptions(controller.Options{SkipNameValidation: &skipNameCheck, MaxConcurrentReconciles: 2}).
		Watches(object(), &handler.EnqueueRequestForObject{}).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			m.reconciled.Add(1)
			return reconcile.Result{}, m.reconcile(ctx, resource, r, object())
		}))
}

func (m *countingManager) reconcile(ctx context.Context, resource schema.GroupVersionResource, r reconcile.Request, obj crclient.Object) error {
	err := m.manager.GetClient().Get(ctx, r.NamespacedName, obj)
	if err != nil && !errors.IsNotFound(err) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := objectKey(r.Namespace, r.Name)
	if err != nil {
		delete(m.mu.held[resource], key)
	} else {
		m.mu.held[resource][key] = obj.GetResourceVersion()
	}
	return nil
}

// equals compares the versions that the controllers have recorded with the upstream's.
func (m *countingManager) equals(want map[schema.GroupVersionResource]versions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for resource, held := range m.mu.held {
		if difference := held.firstDifference(want[resource]); difference != "" {
			return fmt.Errorf("manager: %s: %s", resource.Resource, difference)
		}
	}
	return nil
}
