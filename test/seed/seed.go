// Package seed creates the objects that tests read, each with its status.
package seed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// A Seeder creates objects of any type.
type Seeder struct {
	// Client is the client that creates the objects.
	Client dynamic.Interface
	// Namespace is the namespace of namespaced objects without one.
	Namespace string
	// Existing skips objects that already exist, perhaps in another version.
	Existing bool
	// OtherRelease skips objects of resources that the server does not have.
	OtherRelease bool

	disco  discovery.DiscoveryInterface
	mapper meta.RESTMapper
}

// New returns a Seeder with the client configuration's rights.
func New(cfg *rest.Config) (*Seeder, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "seeder"
	// Deprecated versions are created on purpose.
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	s := &Seeder{Client: client, disco: disco}
	return s, s.discover()
}

func (s *Seeder) discover() error {
	groups, err := restmapper.GetAPIGroupResources(s.disco)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

// Documents creates the objects of a YAML stream.
func (s *Seeder) Documents(ctx context.Context, stream []byte) error {
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		var content map[string]any
		if err := d.Decode(&content); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		if len(content) == 0 {
			continue
		}
		err := s.Create(ctx, &unstructured.Unstructured{Object: content})
		if err != nil && !(s.OtherRelease && meta.IsNoMatchError(err)) {
			return err
		}
	}
}

// Create creates an object, and writes its status if it has one. If the object defines a resource,
// Create returns when that is served.
func (s *Seeder) Create(ctx context.Context, u *unstructured.Unstructured) error {
	client, err := s.resource(u)
	if err != nil {
		return err
	}
	status, hasStatus := u.Object["status"]
	created, err := client.Create(ctx, u, metav1.CreateOptions{})
	if s.Existing && apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if hasStatus {
		created.Object["status"] = status
		if _, err := client.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("status of %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	if u.GetKind() == "CustomResourceDefinition" {
		return s.established(ctx, client, u.GetName())
	}
	return nil
}

func (s *Seeder) resource(u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := u.GroupVersionKind()
	m, err := s.Mapping(gvk)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return s.Client.Resource(m.Resource), nil
	}
	return s.Client.Resource(m.Resource).Namespace(cmp.Or(u.GetNamespace(), s.Namespace)), nil
}

// Mapping returns the resource of a type.
func (s *Seeder) Mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// established waits until a new resource is served and in discovery.
func (s *Seeder) established(ctx context.Context, crds dynamic.ResourceInterface, name string) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		if err := s.discover(); err != nil {
			return false, nil // a group without versions yet
		}
		m, err := s.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
		return err == nil && m.Resource.Resource == plural, nil
	})
}
