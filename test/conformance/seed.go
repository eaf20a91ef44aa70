package conformance

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

//go:embed testdata/seed.yaml
var seedYAML []byte

// A seeder writes the state that the cases read.
type seeder struct {
	client dynamic.Interface
	disco  discovery.DiscoveryInterface
	mapper meta.RESTMapper
	// otherRelease passes over objects of resources that the server does not have.
	otherRelease bool
}

func newSeeder(cfg *rest.Config) (*seeder, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "seeder"
	// Objects of deprecated versions are seeded on purpose.
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	s := &seeder{client: client, disco: disco}
	return s, s.discover()
}

func (s *seeder) discover() error {
	groups, err := restmapper.GetAPIGroupResources(s.disco)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

// documents creates the objects of a YAML stream.
func (s *seeder) documents(ctx context.Context, stream []byte) error {
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
		err := s.create(ctx, &unstructured.Unstructured{Object: content})
		if err != nil && !(s.otherRelease && meta.IsNoMatchError(err)) {
			return err
		}
	}
}

// create creates an object, and writes its status if it has one.
func (s *seeder) create(ctx context.Context, u *unstructured.Unstructured) error {
	client, err := s.resource(u)
	if err != nil {
		return err
	}
	status, hasStatus := u.Object["status"]
	created, err := client.Create(ctx, u, metav1.CreateOptions{})
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

func (s *seeder) resource(u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := u.GroupVersionKind()
	m, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(m.Resource), nil
	}
	return s.client.Resource(m.Resource).Namespace(u.GetNamespace()), nil
}

// established waits until a new resource is served and known to discovery.
func (s *seeder) established(ctx context.Context, crds dynamic.ResourceInterface, name string) error {
	return poll(ctx, func() (bool, error) {
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

// poll asks ready until it is true, fails, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// csr is a certificate signing request, whose key nobody keeps.
func csr() (*unstructured.Unstructured, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone"}}, key)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "csr-1"},
		"spec": map[string]any{
			"signerName": "example.com/signer",
			"usages":     []any{"client auth"},
			"request":    base64Std(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
		},
	}}, nil
}
