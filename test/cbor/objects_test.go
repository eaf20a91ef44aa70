package cbor

import (
	"context"
	_ "embed"
	"encoding/base64"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeweir/kubeweir/test/seed"
)

//go:embed testdata/objects.yaml
var objectsYAML string

const valuesPath = "/apis/cbor.example.com/v1/namespaces/" + namespace + "/values"

// exactValue is a custom resource that survives JSON exactly: none of its floats is an integer.
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
	ca, err := seed.Authority()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := seed.New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	objects.Namespace, objects.Existing = namespace, true
	s.post(ctx, t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)
	text := strings.NewReplacer("NSNS", namespace, "@ca@", base64.StdEncoding.EncodeToString(ca)).Replace(string(types) + "---\n" + objectsYAML)
	if err := objects.Documents(ctx, []byte(text)); err != nil {
		t.Fatal(err)
	}
	// Embedded JSON that is not an object's own is kept as written, even with two members of the
	// same name.
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

// eventually waits for a condition, for example until a new custom resource is served.
func (s *server) eventually(ctx context.Context, t *testing.T, ready func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return ready(), nil })
	if err != nil {
		t.Fatal(err)
	}
}
