package crd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: gadgets, kind: Gadget}
  conversion: {strategy: None}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {host: {type: string}, port: {type: integer}}}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {hostPort: {type: string}}}}}
`

// converter is a conversion webhook: v1 has host and port, v1beta1 hostPort.
func converter(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := &apiextensions.ConversionReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &apiextensions.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for i := range review.Request.Objects {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal(review.Request.Objects[i].Raw, &object.Object); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			convert(object, review.Request.DesiredAPIVersion)
			raw, err := json.Marshal(object.Object)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, rawExtension(raw))
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return server
}

func convert(object *unstructured.Unstructured, version string) {
	if object.GetAPIVersion() == version {
		return
	}
	spec, _ := object.Object["spec"].(map[string]any)
	switch version {
	case "example.com/v1beta1":
		object.Object["spec"] = map[string]any{"hostPort": fmt.Sprintf("%v:%v", spec["host"], spec["port"])}
	case "example.com/v1":
		host, port, _ := strings.Cut(fmt.Sprint(spec["hostPort"]), ":")
		var number int64
		_, _ = fmt.Sscan(port, &number)
		object.Object["spec"] = map[string]any{"host": host, "port": number}
	}
	object.SetAPIVersion(version)
}

func TestWebhookConversion(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	hook := converter(t)
	manifest := strings.Replace(gadgets, "conversion: {strategy: None}", fmt.Sprintf(
		`conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %q}}}`,
		hook.URL+"/convert", certificateOf(hook)), 1)
	define(t, c, manifest)
	now, old := c.Dynamic(t, "gadgets.v1.example.com"), c.Dynamic(t, "gadgets.v1beta1.example.com")

	object := chaintest.Object(t, `{apiVersion: example.com/v1beta1, kind: Gadget, metadata: {name: g}, spec: {hostPort: "a:80"}}`)
	made, err := old.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chaintest.Expect(t, made.Object, "a:80", "spec", "hostPort")
	read, err := now.Get(t.Context(), "g", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chaintest.Expect(t, read.Object, "a", "spec", "host")
	chaintest.Expect(t, read.Object, 80, "spec", "port")
	if _, err := now.Patch(t.Context(), "g", types.MergePatchType, []byte(`{"spec":{"port":81}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := old.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: %v %v", list, err)
	}
	chaintest.Expect(t, list.Items[0].Object, "a:81", "spec", "hostPort")
	response, _ := c.Do(t, http.MethodGet, "/apis/example.com/v1beta1/gadgets/g", "")
	if got := response.Header.Get("Warning"); got != `299 - "example.com/v1beta1 Gadget is deprecated; use example.com/v1 Gadget"` {
		t.Errorf("warning %q", got)
	}

	hook.Close()
	if _, err := old.List(t.Context(), metav1.ListOptions{}); !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), "conversion webhook for example.com/v1, Kind=Gadget failed") {
		t.Errorf("without the webhook: %v", err)
	}
	if _, err := now.Get(t.Context(), "g", metav1.GetOptions{}); err != nil {
		t.Errorf("the stored version needs no webhook: %v", err)
	}
}

func TestStorageVersion(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	define(t, c, gadgets)
	object := chaintest.Object(t, `{apiVersion: example.com/v1beta1, kind: Gadget, metadata: {name: g}}`)
	if _, err := c.Dynamic(t, "gadgets.v1beta1.example.com").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object2 := stored(t, c, "/registry/example.com/gadgets/g")
	chaintest.Expect(t, object2, "example.com/v1", "apiVersion")
	definition := stored(t, c, "/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.example.com")
	chaintest.Expect(t, definition, "apiextensions.k8s.io/v1beta1", "apiVersion")
	chaintest.Expect(t, definition, "[v1]", "status", "storedVersions")
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	for name, finalizers := range map[string][]string{"free": nil, "held": {"example.com/hold"}} {
		object := widget(t, name, `{}`)
		object.SetFinalizers(finalizers)
		if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()

	definitions := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for event := range watching.ResultChan() {
		object, _ := event.Object.(*unstructured.Unstructured)
		switch {
		case event.Type == watch.Deleted && object.GetName() == "free":
			seen["free"] = true
		case event.Type == watch.Modified && object.GetName() == "held" && object.GetDeletionTimestamp() != nil:
			seen["held"] = true
		default:
			t.Errorf("event %v", event)
		}
		if len(seen) == 2 {
			break
		}
	}
	terminating := c.WaitDefinition(t, "widgets.example.com", func(crd *apiextensions.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensions.Terminating)
	})
	if got := terminating.Finalizers; len(got) != 1 || got[0] != apiextensions.CustomResourceCleanupFinalizer {
		t.Errorf("finalizers %v", got)
	}
	_, err = client.Create(t.Context(), widget(t, "late", `{}`), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "create not allowed while custom resource definition is terminating") {
		t.Errorf("create while terminating: %v", err)
	}

	if _, err := client.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watching.ResultChan(); event.Type != watch.Deleted {
		t.Errorf("event %v", event)
	}
	// The watch ends, and nothing is left.
	if event, more := <-watching.ResultChan(); more {
		t.Errorf("event %v", event)
	}
	chaintest.Within(t, chaintest.Timeout, func() error {
		_, err := definitions.Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the definition is there: %w", err)
		}
		return nil
	})
	chaintest.Within(t, 2*time.Second, func() error {
		response, body := c.Do(t, http.MethodGet, "/apis/example.com/v1/widgets", "")
		if response.StatusCode != http.StatusNotFound {
			return fmt.Errorf("still served: %d %s", response.StatusCode, body)
		}
		return nil
	})
}

func TestWatchEndsWhenTheDefinitionChanges(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	patchDefinition(t, c, "widgets.example.com", `[{"op":"add","path":"/spec/names/shortNames/-","value":"wdg"}]`)
	late := time.NewTimer(chaintest.Timeout)
	defer late.Stop()
	select {
	case event, more := <-watching.ResultChan():
		if more {
			t.Errorf("event %v", event)
		}
	case <-late.C:
		t.Error("the watch goes on")
	}
}

func TestNameConflict(t *testing.T) {
	t.Parallel()
	c := start(t)
	crd := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "wodgets.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensions.ClusterScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "wodgets", Kind: "Widget", ListKind: "WodgetList", ShortNames: []string{"wd"}},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	definitions := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := c.WaitDefinition(t, "wodgets.example.com", func(crd *apiextensions.CustomResourceDefinition) bool {
		return apihelpers.FindCRDCondition(crd, apiextensions.NamesAccepted) != nil
	})
	accepted := apihelpers.FindCRDCondition(made, apiextensions.NamesAccepted)
	if accepted.Status != apiextensions.ConditionFalse || accepted.Reason != "KindConflict" {
		t.Errorf("NamesAccepted %+v", accepted)
	}
	if established := apihelpers.FindCRDCondition(made, apiextensions.Established); established.Status != apiextensions.ConditionFalse || established.Reason != "NotAccepted" {
		t.Errorf("Established %+v", established)
	}
	if response, body := c.Do(t, http.MethodGet, "/apis/example.com/v1/wodgets", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("served: %d %s", response.StatusCode, body)
	}
	// The name is free when the other definition is gone.
	if err := definitions.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitDefinition(t, "wodgets.example.com", func(crd *apiextensions.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensions.Established)
	})
}

func TestRejectedDefinitions(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	for name, test := range map[string]struct{ old, new, want string }{
		"no structural schema": {"properties: {spec: {type: object,", "properties: {spec: {", "Required value: must not be empty for specified object fields"},
		"protected group":      {"group: example.com", "group: storage.k8s.io", "protected groups must have approval annotation"},
		"two stored versions":  {"storage: false", "storage: true", "must have exactly one version marked as storage version"},
	} {
		manifest := strings.Replace(gadgets, test.old, test.new, 1)
		if strings.Contains(manifest, "storage.k8s.io") {
			manifest = strings.Replace(manifest, "gadgets.example.com", "gadgets.storage.k8s.io", 1)
		}
		body, err := json.Marshal(chaintest.Object(t, manifest).Object)
		if err != nil {
			t.Fatal(err)
		}
		response, status := c.Do(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(body))
		if response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(status, test.want) {
			t.Errorf("%s: %d %s", name, response.StatusCode, status)
		}
	}
}

// TestCreateAtOnce checks that a create right after Established waits for other servers, as in
// kube-apiserver, and then succeeds.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	c := chaintest.Start(t, chaintest.Options{})
	c.Define(t, gadgets)
	object := chaintest.Object(t, `{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g}}`)
	began := time.Now()
	if _, err := c.Dynamic(t, "gadgets.v1.example.com").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("created after %v", took)
	}
}

func TestServerSideApply(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	apply := func(manager, spec string, force bool) error {
		_, err := client.Apply(t.Context(), "w", widget(t, "w", spec), metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	if err := apply("one", `{replicas: 1, color: red}`, false); err != nil {
		t.Fatal(err)
	}
	if err := apply("two", `{replicas: 2}`, false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .spec.replicas`) {
		t.Errorf("conflict: %v", err)
	}
	if err := apply("two", `{replicas: 2}`, true); err != nil {
		t.Errorf("force: %v", err)
	}
	if err := apply("one", `{color: red}`, false); err != nil {
		t.Errorf("after the change of owner: %v", err)
	}
	if err := apply("one", `{nothing: 1}`, false); err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
		t.Errorf("undeclared: %v", err)
	}
}

func certificateOf(server *httptest.Server) string { return pemOf(server.Certificate().Raw) }
