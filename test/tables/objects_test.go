package tables

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

//go:embed testdata/objects.yaml
var objectsYAML string

// createObjects creates the objects of testdata/objects.yaml in their order.
func createObjects(ctx context.Context, t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	text := strings.NewReplacer("@csr@", certificateRequest(t), "@bundle@", authority(t)).Replace(objectsYAML)
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		createObject(ctx, t, client, mapper, object)
	}
}

func createObject(ctx context.Context, t *testing.T, client dynamic.Interface, mapper meta.ResettableRESTMapper, object *unstructured.Unstructured) {
	t.Helper()
	gvk := object.GroupVersionKind()
	resources := client.Resource(resourceOf(ctx, t, mapper, gvk))
	in := dynamic.ResourceInterface(resources)
	if ns := object.GetNamespace(); ns != "" {
		in = resources.Namespace(ns)
	}
	// A new custom resource is served a moment after its definition.
	var created *unstructured.Unstructured
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		created, err = in.Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
		if gvk.Group == "tables.example.com" && err != nil {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		t.Errorf("%s %s: %v", gvk.Kind, object.GetName(), err)
		return
	}
	status, ok := object.Object["status"]
	if !ok {
		return
	}
	created.Object["status"] = status
	if _, err := in.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Errorf("status of %s %s: %v", gvk.Kind, object.GetName(), err)
	}
}

func resourceOf(ctx context.Context, t *testing.T, mapper meta.ResettableRESTMapper, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			mapper.Reset()
			return false, nil
		}
		gvr = mapping.Resource
		return true, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", gvk, err)
	}
	return gvr
}

// certificateRequest is what a CertificateSigningRequest's spec.request takes.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// authority is a certificate for a ClusterTrustBundle, as YAML holds it between double quotes.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), "\n", `\n`)
}
