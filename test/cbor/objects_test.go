package cbor

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
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

//go:embed testdata/objects.yaml
var objectsYAML string

const valuesPath = "/apis/cbor.example.com/v1/namespaces/" + namespace + "/values"

// exactValue is a custom resource whose JSON says all: no float of it is an integer.
const exactValue = `{"apiVersion":"cbor.example.com/v1","kind":"Value","metadata":{"name":"exact"},"spec":{
 "zero":0,"one":1,"minus":-1,"max":9223372036854775807,"min":-9223372036854775808,"beyond":9223372036854775808,"huge":1e300,"half":0.5,"third":0.3333333333333333,
 "single":0.10000000149011612,"subnormal":5.960464477539063e-8,"tiny":5e-324,"e":1.5e-3,"negative":-2.5,"minusZero":-0,
 "empty":{},"none":[],"null":null,"nested":[[],[{}],{"a":{"b":[null,true,false]}}],"base64":"YQ==","time":"2024-05-17T12:30:00Z",
 "string":"\u00e9\ud83d\ude00\u0000\u2028<>&\"\\","lone":"\ud800","":"empty key","k\"\n":"key","limited":7}}`

// createObjects creates an object of every built-in type, and those of testdata/objects.yaml.
func (s *server) createObjects(ctx context.Context, t *testing.T) {
	t.Helper()
	types, err := os.ReadFile("../conformance/testdata/types.yaml")
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	s.post(ctx, t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)
	text := strings.NewReplacer("NSNS", namespace, "@ca@", authority(t)).Replace(string(types) + "---\n" + objectsYAML)
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := d.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		createObject(ctx, t, client, mapper, object)
	}
	// What is no object's own JSON is left as it was written, with two members of one name.
	s.post(ctx, t, "/apis/apps/v1/namespaces/"+namespace+"/controllerrevisions",
		`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"raw"},"revision":1,"data":{"b":1.0,"a":[1e3, -0 ,"\ud800"],"a":2}}`)
	s.eventually(ctx, t, func() bool {
		return s.do(ctx, t, http.MethodPost, valuesPath, map[string]string{"Content-Type": typeJSON}, []byte(exactValue)).status == http.StatusCreated
	})
}

func (s *server) post(ctx context.Context, t *testing.T, path, body string) {
	t.Helper()
	if resp := s.do(ctx, t, http.MethodPost, path, map[string]string{"Content-Type": typeJSON}, []byte(body)); resp.status != http.StatusCreated {
		t.Fatalf("POST %s: %d %s", path, resp.status, resp.body)
	}
}

// eventually waits until a new custom resource is served, for instance.
func (s *server) eventually(ctx context.Context, t *testing.T, ready func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return ready(), nil })
	if err != nil {
		t.Fatal(err)
	}
}

func createObject(ctx context.Context, t *testing.T, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) {
	t.Helper()
	gvk := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		t.Fatal(err)
	}
	in := dynamic.ResourceInterface(client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		in = client.Resource(mapping.Resource).Namespace(namespace)
		object.SetNamespace(namespace)
	}
	status, hasStatus := object.Object["status"]
	created, err := in.Create(ctx, object, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err): // of another version
		return
	case err != nil:
		t.Errorf("%s %s: %v", gvk.Kind, object.GetName(), err)
		return
	}
	if hasStatus {
		created.Object["status"] = status
		if _, err := in.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			t.Errorf("status of %s %s: %v", gvk.Kind, object.GetName(), err)
		}
	}
}

// authority is the bundle of a certificate authority, in base64.
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
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
