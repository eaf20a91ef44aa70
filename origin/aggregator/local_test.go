package aggregator_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
)

const bolts = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bolts.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: bolts, kind: Bolt}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

func services(t *testing.T, c *chaintest.Chain) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	items, _ := c.Get(t, "/apis/apiregistration.k8s.io/v1/apiservices")["items"].([]any)
	for _, item := range items {
		service := item.(map[string]any)
		found[fmt.Sprint(chaintest.Field(service, "metadata", "name"))] = service
	}
	return found
}

func TestOwnGroups(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	own := services(t, c)["v1.apiextensions.k8s.io"]
	chaintest.Expect(t, own, "onstart", "metadata", "labels", "kube-aggregator.kubernetes.io/automanaged")
	chaintest.Expect(t, own, 16700, "spec", "groupPriorityMinimum")
	chaintest.Expect(t, own, 15, "spec", "versionPriority")
	if status, reason := available(t, c, "v1.apiextensions.k8s.io"); status+reason != "TrueLocal" {
		t.Errorf("Available %s %s", status, reason)
	}
	if got := fmt.Sprint(groups(t, c)); got != "[apiregistration.k8s.io apiextensions.k8s.io]" {
		t.Errorf("groups %s", got)
	}
	items, _ := c.Get(t, "/apis", aggregatedDiscovery)["items"].([]any)
	if first := items[0].(map[string]any); chaintest.Field(first, "metadata", "name") != "apiregistration.k8s.io" {
		t.Errorf("first group %v", first)
	}
	response, body := c.Do(t, http.MethodGet, "/apis/nothing.example.com/v1/things", "")
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("no such group: %d %s", response.StatusCode, body)
	}
}

func TestGroupsOfDefinitions(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	c.Define(t, bolts)
	chaintest.Within(t, 2*time.Second, func() error {
		found := services(t, c)
		if found["v1.example.com"] == nil || found["v2alpha1.example.com"] == nil {
			return fmt.Errorf("APIServices: %v", found)
		}
		return nil
	})
	found := services(t, c)
	if found["v1beta1.example.com"] != nil {
		t.Error("a version that is not served has an APIService")
	}
	chaintest.Expect(t, found["v1.example.com"], "true", "metadata", "labels", "kube-aggregator.kubernetes.io/automanaged")
	chaintest.Expect(t, found["v1.example.com"], 1000, "spec", "groupPriorityMinimum")
	chaintest.Expect(t, found["v1.example.com"], 100, "spec", "versionPriority")
	chaintest.Within(t, 2*time.Second, func() error { // discovery follows the APIServices
		if response, body := c.Do(t, http.MethodGet, "/apis/example.com", ""); response.StatusCode != http.StatusOK {
			return fmt.Errorf("the group: %d %s", response.StatusCode, body)
		}
		return nil
	})
	group := c.Get(t, "/apis/example.com")
	chaintest.Expect(t, group, "v1", "preferredVersion", "version")

	// One that somebody deletes comes back.
	if response, body := c.Do(t, http.MethodDelete, "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com", ""); response.StatusCode != http.StatusOK {
		t.Fatalf("delete: %d %s", response.StatusCode, body)
	}
	uid := chaintest.Field(found["v1.example.com"], "metadata", "uid")
	chaintest.Within(t, chaintest.Timeout, func() error {
		now := services(t, c)["v1.example.com"]
		if now == nil || chaintest.Field(now, "metadata", "uid") == uid {
			return fmt.Errorf("APIService: %v", now)
		}
		return nil
	})

	if err := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "bolts.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	chaintest.Within(t, 2*time.Second, func() error {
		if found := services(t, c); found["v1.example.com"] != nil || found["v2alpha1.example.com"] != nil {
			return fmt.Errorf("APIServices: %v", found)
		}
		if slices.Contains(groups(t, c), "example.com") {
			return fmt.Errorf("the group is listed")
		}
		return nil
	})
}

// TestRestart checks a server that starts on the store of a previous server. It serves definitions
// immediately, keeps the APIServices that others registered, and removes those that are no longer
// served.
func TestRestart(t *testing.T) {
	t.Parallel()
	engine := chaintest.Memory(t)
	t.Run("first", func(t *testing.T) {
		c := chaintest.Start(t, chaintest.Options{Engine: engine})
		c.Define(t, bolts)
		register(t, c, thing)
		for _, left := range []string{"onstart", "true"} {
			register(t, c, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.`+left+`.example.com, labels: {kube-aggregator.kubernetes.io/automanaged: "`+left+`"}}
spec: {group: `+left+`.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1}`)
		}
	})
	t.Run("second", func(t *testing.T) {
		c := chaintest.Start(t, chaintest.Options{Engine: engine})
		if response, body := c.Do(t, http.MethodGet, "/apis/example.com/v1/bolts", ""); response.StatusCode != http.StatusOK {
			t.Errorf("bolts: %d %s", response.StatusCode, body)
		}
		chaintest.Within(t, chaintest.Timeout, func() error {
			found := services(t, c)
			if found["v1.onstart.example.com"] != nil || found["v1.true.example.com"] != nil {
				return fmt.Errorf("what is not served is registered: %v", found)
			}
			return nil
		})
		if found := services(t, c); found["v1.ext.example.com"] == nil || found["v1.example.com"] == nil {
			t.Errorf("APIServices: %v", found)
		}
	})
}

// stuckWriter is a client that takes no byte before it is released.
type stuckWriter struct {
	http.ResponseWriter
	reached, release chan struct{}
	once             sync.Once
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.reached) })
	<-w.release
	return w.ResponseWriter.Write(b)
}

// TestSlowReader checks that a slow client does not block other clients from the documents.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	slow := &stuckWriter{ResponseWriter: httptest.NewRecorder(), reached: make(chan struct{}), release: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.Handler.ServeHTTP(slow, httptest.NewRequest(http.MethodGet, "https://chain.test/openapi/v3/apis/apiextensions.k8s.io/v1", nil))
	}()
	<-slow.reached
	c.Define(t, bolts)
	chaintest.Within(t, 2*time.Second, func() error {
		if chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/example.com/v1") == nil {
			return errors.New("the definition is not told of")
		}
		return nil
	})
	close(slow.release)
	<-served
}
