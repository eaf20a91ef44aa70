package discovery

import (
	"encoding/json"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOfflineDiscovery: which document is at a path, in which form.
func TestOfflineDiscovery(t *testing.T) {
	group := func(name, version, resource, kind string) *apidiscoveryv2.APIGroupDiscoveryList {
		return &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: version, Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: resource, ResponseKind: &metav1.GroupVersionKind{Group: name, Version: version, Kind: kind},
				Scope: apidiscoveryv2.ScopeNamespace, SingularResource: strings.ToLower(kind), ShortNames: []string{"short"}, Verbs: []string{"get", "list"},
			}}}},
		}}}
	}
	docs := &Documents{Core: group("", "v1", "pods", "Pod"), Groups: group("apps", "v1", "deployments", "Deployment"), Version: json.RawMessage(`{"major":"1"}`)}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
	for _, test := range []struct {
		path, accept string
		kind         string // "" for no document
		has          string
		form         string // of the aggregated one
	}{
		{"/api", aggregated, "APIGroupDiscoveryList", `"pods"`, "v2"},
		{"/apis", aggregated, "APIGroupDiscoveryList", `"deployments"`, "v2"},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "APIGroupDiscoveryList", `"apidiscovery.k8s.io/v2beta1"`, "v2beta1"},
		{"/api", "application/json", "APIVersions", `"v1"`, ""},
		{"/api", "", "APIVersions", `"v1"`, ""},
		{"/apis", "*/*", "APIGroupList", `"apps/v1"`, ""},
		{"/apis/apps", "application/json, */*", "APIGroup", `"apps/v1"`, ""},
		{"/apis/apps/v1", "application/json", "APIResourceList", `"shortNames":["short"]`, ""},
		{"/apis/apps/v1", aggregated, "APIResourceList", `"deployments"`, ""},
		{"/api/v1", "application/vnd.kubernetes.protobuf, application/json", "APIResourceList", `"singularName":"pod"`, ""},
		{"/version", "*/*", "", `"major"`, ""},
		{"/apis/apps/v2", "application/json", "", "", ""},
		{"/apis/none", "application/json", "", "", ""},
		{"/apis/apps/v1/", "application/json", "", "", ""},
		{"/api/", "application/json", "", "", ""},
		{"/openapi/v2", "application/json", "", "", ""},
		{"/apis", "application/vnd.kubernetes.protobuf", "", "", ""},
		{"/apis", "application/json;as=Table;v=v1;g=meta.k8s.io", "", "", ""},
		{"/apis", "nonsense;;", "", "", ""},
	} {
		body, contentType := Document(docs, test.path, test.accept)
		var is struct{ Kind string }
		if len(body) > 0 {
			if err := json.Unmarshal(body, &is); err != nil {
				t.Fatal(err)
			}
		}
		if is.Kind != test.kind || !strings.Contains(string(body), test.has) || (len(body) == 0) != (test.has == "") {
			t.Errorf("%s as %q: %s", test.path, test.accept, body)
		}
		if aggregated := strings.Contains(contentType, "v="+test.form+";as=APIGroupDiscoveryList"); aggregated != (test.form != "") {
			t.Errorf("%s as %q has the type %q", test.path, test.accept, contentType)
		}
	}
	if body, _ := Document(&Documents{}, "/apis", "*/*"); body != nil {
		t.Errorf("a document of an upstream that has none: %s", body)
	}
}
