package chaintest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Dynamic is a client of a resource, given as "resource.version.group".
func (c *Chain) Dynamic(t testing.TB, resource string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	gvr, _ := schema.ParseResourceArg(resource)
	if gvr == nil {
		t.Fatalf("%q is not resource.version.group", resource)
	}
	return client.Resource(*gvr)
}

// Extensions is a client of the definitions.
func (c *Chain) Extensions(t testing.TB) clientset.Interface {
	t.Helper()
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Do sends one request; header is "Name: value" lines. It returns the response with its body read.
func (c *Chain) Do(t testing.TB, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		req.Body = http.NoBody
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	response, err := (&http.Client{Transport: c.Config.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(read)
}

// Get reads a path into a JSON object and fails the test unless it is answered by 200.
func (c *Chain) Get(t testing.TB, path string, header ...string) map[string]any {
	t.Helper()
	response, body := c.Do(t, http.MethodGet, path, "", header...)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, response.StatusCode, body)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return object
}

// Object parses a manifest.
func Object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Define creates a definition and waits until it has the condition Established.
func (c *Chain) Define(t testing.TB, manifest string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensions.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(manifest), crd); err != nil {
		t.Fatal(err)
	}
	made, err := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.WaitDefinition(t, made.Name, func(crd *apiextensions.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensions.Established)
	})
}

// WaitDefinition waits until a definition is as wanted.
func (c *Chain) WaitDefinition(t testing.TB, name string, wanted func(*apiextensions.CustomResourceDefinition) bool) *apiextensions.CustomResourceDefinition {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	watch, err := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var last *apiextensions.CustomResourceDefinition
	for event := range watch.ResultChan() {
		crd, ok := event.Object.(*apiextensions.CustomResourceDefinition)
		if !ok {
			t.Fatalf("watching definitions: %v", event.Object)
		}
		if last = crd; wanted(crd) {
			return crd
		}
	}
	t.Fatalf("%s did not become what was wanted: %+v", name, last)
	return nil
}

// Within fails the test unless check succeeds before d is over, and returns how long it
// took.
func Within(t testing.TB, d time.Duration, check func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := check()
		took := time.Since(began)
		if err == nil && took <= d {
			return took
		}
		if took > d {
			t.Fatalf("not within %v: %v", d, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Field returns a field of a JSON object by its path, nil if there is none.
func Field(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}

// Expect fails the test unless a field is as wanted, compared as printed.
func Expect(t testing.TB, object map[string]any, want any, path ...string) {
	t.Helper()
	if got := Field(object, path...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", strings.Join(path, "."), got, want)
	}
}
