package crd_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
)

const aggregatedDiscovery = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// names lists a field of the objects in a list.
func names(object map[string]any, list, field string) []string {
	var found []string
	items, _ := object[list].([]any)
	for _, item := range items {
		found = append(found, fmt.Sprint(chaintest.Field(item.(map[string]any), field)))
	}
	return found
}

// TestDiscoveryAndOpenAPI checks that all discovery and OpenAPI endpoints list a new resource
// within 2 s of the creation of its definition, and no longer list it within 2 s of its deletion.
func TestDiscoveryAndOpenAPI(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	groups := func() []string {
		var found []string
		items, _ := c.Get(t, "/apis", aggregatedDiscovery)["items"].([]any)
		for _, item := range items {
			found = append(found, fmt.Sprint(chaintest.Field(item.(map[string]any), "metadata", "name")))
		}
		return found
	}
	sources := map[string]func() bool{
		"/apis":            func() bool { return slices.Contains(names(c.Get(t, "/apis"), "groups", "name"), "example.com") },
		"/apis aggregated": func() bool { return slices.Contains(groups(), "example.com") },
		"/apis/example.com": func() bool {
			response, _ := c.Do(t, http.MethodGet, "/apis/example.com", "")
			return response.StatusCode == http.StatusOK
		},
		"/apis/example.com/v1": func() bool {
			response, body := c.Do(t, http.MethodGet, "/apis/example.com/v1", "")
			return response.StatusCode == http.StatusOK && len(body) > 0
		},
		"/openapi/v3": func() bool {
			return chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/example.com/v1") != nil
		},
		"/openapi/v3/apis/example.com/v1": func() bool {
			response, _ := c.Do(t, http.MethodGet, "/openapi/v3/apis/example.com/v1", "")
			return response.StatusCode == http.StatusOK
		},
		"/openapi/v2": func() bool {
			return chaintest.Field(c.Get(t, "/openapi/v2"), "definitions", "com.example.v1.Widget") != nil
		},
	}
	for path, listed := range sources {
		if listed() {
			t.Errorf("%s tells of it before", path)
		}
	}
	check := func(want bool) {
		began := time.Now()
		for path, listed := range sources {
			chaintest.Within(t, 2*time.Second, func() error {
				if listed() != want {
					return fmt.Errorf("%s: told is %v", path, !want)
				}
				return nil
			})
			t.Logf("told=%v %s after %v", want, path, time.Since(began))
		}
	}
	c.Define(t, widgets)
	check(true)
	// A change of the schema shows, too.
	patchDefinition(t, c, "widgets.example.com", `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape","value":{"type":"string"}}]`)
	for path, at := range map[string][]string{
		"/openapi/v2":                     {"definitions", "com.example.v1.Widget", "properties", "spec", "properties", "shape"},
		"/openapi/v3/apis/example.com/v1": {"components", "schemas", "com.example.v1.Widget", "properties", "spec", "properties", "shape"},
	} {
		chaintest.Within(t, 2*time.Second, func() error {
			if chaintest.Field(c.Get(t, path), at...) == nil {
				return fmt.Errorf("%s does not show the field", path)
			}
			return nil
		})
	}
	if err := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check(false)
}

func TestDiscoveryDocument(t *testing.T) {
	t.Parallel()
	c := start(t)
	chaintest.Within(t, time.Minute, func() error { // the document follows the definition
		if response, _ := c.Do(t, http.MethodGet, "/apis/example.com/v1", ""); response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	resources := c.Get(t, "/apis/example.com/v1")
	if got := fmt.Sprint(names(resources, "resources", "name")); got != "[widgets widgets/status widgets/scale]" {
		t.Errorf("resources %s", got)
	}
	first, _ := resources["resources"].([]any)[0].(map[string]any)
	for field, want := range map[string]any{
		"kind": "Widget", "singularName": "widget", "namespaced": true, "shortNames": "[wd]", "categories": "[all]",
		"verbs": "[delete deletecollection get list patch create update watch]",
	} {
		chaintest.Expect(t, first, want, field)
	}
	// A document is found under the hash that the root tells, and nowhere else.
	path, _ := chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/example.com/v1", "serverRelativeURL").(string)
	response, _ := c.Do(t, http.MethodGet, path, "")
	if response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "public, immutable" {
		t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
	}
	response, _ = c.Do(t, http.MethodGet, "/openapi/v3/apis/example.com/v1?hash=other", "")
	if response.StatusCode != http.StatusMovedPermanently || response.Header.Get("Location") != path {
		t.Errorf("another hash: %d %v", response.StatusCode, response.Header)
	}
	if response, _ := c.Do(t, http.MethodGet, "/openapi/v3/apis/nothing/v1", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("no such group: %d", response.StatusCode)
	}
}
