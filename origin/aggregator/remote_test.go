package aggregator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
)

const aggregatedDiscovery = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// extension is an API server elsewhere: things in ext.example.com/v1.
type extension struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		// users and groups of the requests for things.
		users, groups []string
	}
}

func newExtension(t *testing.T) *extension {
	t.Helper()
	e := &extension{}
	response := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/ext.example.com/v1", response(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"ext.example.com/v1",
		"resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list","create"]}]}`))
	mux.HandleFunc("/apis/ext.example.com/v1/namespaces/ns/things", func(w http.ResponseWriter, req *http.Request) {
		e.mu.Lock()
		e.mu.users = append(e.mu.users, req.Header.Get("X-Remote-User"))
		e.mu.groups = req.Header.Values("X-Remote-Group")
		e.mu.Unlock()
		response(`{"kind":"ThingList","apiVersion":"ext.example.com/v1","items":[{"metadata":{"name":"`+req.URL.Query().Get("labelSelector")+`"}}]}`)(w, req)
	})
	mux.HandleFunc("/openapi/v2", response(`{"swagger":"2.0","info":{"title":"ext","version":"1"},
		"paths":{"/apis/ext.example.com/v1/namespaces/{namespace}/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.ext.Thing"}}}}}},
		"definitions":{"com.example.ext.Thing":{"type":"object"}}}`))
	mux.HandleFunc("/openapi/v3", response(`{"paths":{"apis/ext.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/ext.example.com/v1?hash=1"}}}`))
	mux.HandleFunc("/openapi/v3/apis/ext.example.com/v1", response(`{"openapi":"3.0.0","info":{"title":"ext","version":"1"},"paths":{}}`))
	e.Server = httptest.NewTLSServer(mux)
	t.Cleanup(e.Close)
	return e
}

// startWith runs a chain for which service ext/api leads to e.
func startWith(t *testing.T, e *extension) *chaintest.Chain {
	t.Helper()
	address, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, name, ready := int32(443), "https", true
	return chaintest.Start(t, chaintest.Options{
		Services: func(namespace, name string, _ int32) (*url.URL, error) {
			if namespace != "ext" || name != "api" {
				return nil, fmt.Errorf("no service %s/%s", namespace, name)
			}
			found := *address // the caller changes it
			return &found, nil
		},
		Objects: []runtime.Object{
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ext", Name: "api"},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.9", Ports: []corev1.ServicePort{{Name: name, Port: port}}},
			},
			&discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Namespace: "ext", Name: "api-1", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			},
		},
	})
}

const thing = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.ext.example.com}
spec:
  group: ext.example.com
  version: v1
  groupPriorityMinimum: 2000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: ext, name: api}
`

func register(t *testing.T, c *chaintest.Chain, manifest string) {
	t.Helper()
	body, err := json.Marshal(chaintest.Object(t, manifest).Object)
	if err != nil {
		t.Fatal(err)
	}
	response, status := c.Do(t, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", string(body))
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("APIService: %d %s", response.StatusCode, status)
	}
}

// available returns the Available condition of an APIService.
func available(t *testing.T, c *chaintest.Chain, name string) (status, reason string) {
	t.Helper()
	conditions, _ := chaintest.Field(c.Get(t, "/apis/apiregistration.k8s.io/v1/apiservices/"+name), "status", "conditions").([]any)
	for _, condition := range conditions {
		if fields, _ := condition.(map[string]any); fields["type"] == "Available" {
			return fmt.Sprint(fields["status"]), fmt.Sprint(fields["reason"])
		}
	}
	return "", ""
}

func waitAvailable(t *testing.T, c *chaintest.Chain, name, want string) {
	t.Helper()
	chaintest.Within(t, chaintest.Timeout, func() error {
		if status, reason := available(t, c, name); status+" "+reason != want {
			return fmt.Errorf("Available is %s %s, want %s", status, reason, want)
		}
		return nil
	})
}

// groups of /apis in its old form.
func groups(t *testing.T, c *chaintest.Chain) []string {
	t.Helper()
	var found []string
	items, _ := c.Get(t, "/apis")["groups"].([]any)
	for _, item := range items {
		found = append(found, fmt.Sprint(chaintest.Field(item.(map[string]any), "name")))
	}
	return found
}

// aggregatedGroups are the groups of /apis in its aggregated form.
func aggregatedGroups(t *testing.T, c *chaintest.Chain) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	items, _ := c.Get(t, "/apis", aggregatedDiscovery)["items"].([]any)
	for _, item := range items {
		group := item.(map[string]any)
		found[fmt.Sprint(chaintest.Field(group, "metadata", "name"))] = group
	}
	return found
}

func TestExtensionServer(t *testing.T) {
	t.Parallel()
	e := newExtension(t)
	c := startWith(t, e)
	// Documents that were asked for before take it up, too.
	c.Get(t, "/openapi/v3")
	c.Get(t, "/openapi/v2")
	register(t, c, thing)
	waitAvailable(t, c, "v1.ext.example.com", "True Passed")

	chaintest.Within(t, 2*time.Second, func() error {
		response, body := c.Do(t, http.MethodGet, "/apis/ext.example.com/v1/namespaces/ns/things?labelSelector=a", "")
		if response.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"a"`) {
			return fmt.Errorf("%d %s", response.StatusCode, body)
		}
		return nil
	})
	e.mu.Lock()
	if !slices.Contains(e.mu.users, "system:admin") || !slices.Contains(e.mu.groups, "system:masters") {
		t.Errorf("asked as %v in %v", e.mu.users, e.mu.groups)
	}
	e.mu.Unlock()

	if got := fmt.Sprint(groups(t, c)); got != "[apiregistration.k8s.io apiextensions.k8s.io ext.example.com]" {
		t.Errorf("groups %s", got)
	}
	chaintest.Within(t, 2*time.Second, func() error {
		group := aggregatedGroups(t, c)["ext.example.com"]
		versions, _ := group["versions"].([]any)
		if len(versions) != 1 {
			return fmt.Errorf("aggregated: %v", group)
		}
		version := versions[0].(map[string]any)
		if resources, _ := version["resources"].([]any); version["freshness"] != "Current" || len(resources) != 1 {
			return fmt.Errorf("aggregated: %v", version)
		}
		return nil
	})
	chaintest.Within(t, 2*time.Second, func() error {
		if chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/ext.example.com/v1") == nil {
			return fmt.Errorf("not in /openapi/v3")
		}
		if chaintest.Field(c.Get(t, "/openapi/v2"), "definitions", "com.example.ext.Thing") == nil {
			return fmt.Errorf("not in /openapi/v2")
		}
		return nil
	})
	chaintest.Expect(t, c.Get(t, "/openapi/v3/apis/ext.example.com/v1"), "ext", "info", "title")

	response, _ := c.Do(t, http.MethodDelete, "/apis/apiregistration.k8s.io/v1/apiservices/v1.ext.example.com", "")
	if response.StatusCode != http.StatusOK {
		t.Fatalf("delete: %d", response.StatusCode)
	}
	chaintest.Within(t, 2*time.Second, func() error {
		response, body := c.Do(t, http.MethodGet, "/apis/ext.example.com/v1/namespaces/ns/things", "")
		if response.StatusCode != http.StatusNotFound {
			return fmt.Errorf("still served: %d %s", response.StatusCode, body)
		}
		if aggregatedGroups(t, c)["ext.example.com"] != nil {
			return fmt.Errorf("still in aggregated discovery")
		}
		if chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/ext.example.com/v1") != nil {
			return fmt.Errorf("still in /openapi/v3")
		}
		return nil
	})
}

// TestDocumentsAreMerged checks that the documents of remote API servers are merged soon after the
// servers become available.
func TestDocumentsAreMerged(t *testing.T) {
	t.Parallel()
	c := startWith(t, newExtension(t))
	register(t, c, thing)
	waitAvailable(t, c, "v1.ext.example.com", "True Passed")
	chaintest.Within(t, 2*time.Second, func() error {
		response, body := c.Do(t, http.MethodGet, "/apis/ext.example.com/v1/namespaces/ns/things", "")
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %s", response.StatusCode, body)
		}
		return nil
	})
	chaintest.Within(t, 3*time.Second, func() error {
		if chaintest.Field(c.Get(t, "/openapi/v3"), "paths", "apis/ext.example.com/v1") == nil {
			return errors.New("not in /openapi/v3")
		}
		if chaintest.Field(c.Get(t, "/openapi/v2"), "definitions", "com.example.ext.Thing") == nil {
			return errors.New("not in /openapi/v2")
		}
		return nil
	})
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	c := startWith(t, newExtension(t))
	register(t, c, strings.ReplaceAll(strings.ReplaceAll(thing, "name: api}", "name: other}"), "ext.example.com", "gone.example.com"))
	waitAvailable(t, c, "v1.gone.example.com", "False ServiceNotFound")
	chaintest.Within(t, 2*time.Second, func() error {
		response, body := c.Do(t, http.MethodGet, "/apis/gone.example.com/v1/things", "")
		if response.StatusCode != http.StatusServiceUnavailable || strings.TrimSpace(body) != "service unavailable" {
			return fmt.Errorf("%d %s", response.StatusCode, body)
		}
		return nil
	})
	// It does not keep the documents of the others from being read.
	c.Get(t, "/openapi/v3")
	c.Get(t, "/openapi/v2")
	chaintest.Within(t, 7*time.Second, func() error {
		versions, _ := aggregatedGroups(t, c)["gone.example.com"]["versions"].([]any)
		if len(versions) != 1 || versions[0].(map[string]any)["freshness"] != "Stale" {
			return fmt.Errorf("aggregated: %v", versions)
		}
		return nil
	})
}
