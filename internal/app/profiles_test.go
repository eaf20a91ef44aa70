package app

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// profileDefinition serves ClusterProfiles, whatever is in them.
const profileDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterprofiles.multicluster.x-k8s.io}
spec:
  group: multicluster.x-k8s.io
  names: {kind: ClusterProfile, listKind: ClusterProfileList, plural: clusterprofiles, singular: clusterprofile}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// fleet is a hub, which a gateway follows.
type fleet struct {
	*severalClusters
	profiles dynamic.NamespaceableResourceInterface
}

// startFleet starts standalones, the first of which is the hub, and a gateway of the clusters of the hub's profiles
// besides entries. settings are more of clusterProfiles.
func startFleet(t *testing.T, names []string, settings string, entries ...string) *fleet {
	t.Helper()
	f := &fleet{severalClusters: prepareSeveral(t, append([]string{"hub"}, names...))}
	for _, name := range names {
		m := f.upstreams[name].Material()
		credential, err := json.Marshal(map[string]any{
			"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
			"status": map[string]string{"clientCertificateData": string(m.Admin.CertPEM), "clientKeyData": string(m.Admin.KeyPEM)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.dir, name+".json"), credential, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.writeProviders("file")
	hub, err := dynamic.NewForConfig(f.upstreams["hub"].RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(profileDefinition), &definition.Object); err != nil {
		t.Fatal(err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := hub.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.profiles = hub.Resource(schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"})
	for t.Context().Err() == nil { // until the definition is established
		if _, err := f.profiles.List(t.Context(), metav1.ListOptions{}); err == nil {
			break
		}
	}
	f.settings = fmt.Sprintf("clusterProfiles: {kubeconfig: hub.kubeconfig, providerFile: providers.json%s}\n", settings)
	f.write(entries...)
	return f
}

// writeProviders writes the file of the access providers: one, which takes credentials out of a file that a profile names.
func (f *fleet) writeProviders(name string) {
	f.t.Helper()
	text := fmt.Sprintf(`{"providers": [{"name": %q, "profileSourcedEnvVarsPolicy": "Replace", "execConfig": {
		"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", "cat %s/$CLUSTER.json"]}}]}`, name, f.dir)
	if err := os.WriteFile(filepath.Join(f.dir, "providers.json"), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// add makes a profile of a standalone; change may make it another.
func (f *fleet) add(namespace, name, upstream string, change func(p *unstructured.Unstructured)) {
	f.t.Helper()
	p := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "spec": map[string]any{"clusterManager": map[string]any{"name": "test"}},
	}}
	p.SetNamespace(namespace)
	p.SetName(name)
	ctx := f.t.Context()
	made, err := f.profiles.Namespace(namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	made.Object["status"] = map[string]any{"accessProviders": []any{map[string]any{"name": "file", "cluster": map[string]any{
		"server":                     f.upstreams[upstream].URL(),
		"certificate-authority-data": base64.StdEncoding.EncodeToString(f.upstreams[upstream].Material().CA.CertPEM),
		"extensions": []any{map[string]any{
			"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": map[string]any{"CLUSTER": upstream},
		}},
	}}}}
	if change != nil {
		change(made)
	}
	if _, err := f.profiles.Namespace(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// awaitPath asks a cluster by a name until the answer has a status: 401 comes of one that is served and does not know who
// asks, for no profile says whose certificates are good.
func (f *fleet) awaitPath(name string, code int) {
	f.t.Helper()
	client := f.client("hub", "")
	for f.t.Context().Err() == nil {
		if got, _ := f.get(client, "", "/clusters/"+name+"/api/v1/namespaces"); got == code {
			return
		}
	}
}

// awaitLog waits for a line of the log.
func (f *fleet) awaitLog(text string) {
	f.t.Helper()
	for !strings.Contains(f.log.String(), text) && f.t.Context().Err() == nil {
		runtime.Gosched()
	}
}

// patch changes the status of a profile.
func (f *fleet) patch(name, patch string) {
	f.t.Helper()
	if _, err := f.profiles.Namespace("default").Patch(f.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		f.t.Fatal(err)
	}
}

// rejected waits until so many profiles are rejected for each reason.
func (f *fleet) rejected(t *testing.T, name, access, cluster, most float64) {
	t.Helper()
	want := map[string]float64{rejectedName: name, rejectedAccess: access, rejectedCluster: cluster, rejectedMax: most}
	for t.Context().Err() == nil {
		got := make(map[string]float64)
		families, err := f.gatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "kubeweir_clusterprofiles_rejected" {
				for _, m := range family.GetMetric() {
					got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if maps.Equal(got, want) {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("not as many are refused as %v", want)
}

// TestClusterProfiles: clusters come, change and go with the profiles of a hub; what is wrong, or a hub that is away, changes
// nothing of the others.
func TestClusterProfiles(t *testing.T) {
	f := startFleet(t, []string{"a", "b", "own"}, ", namespace: default", entry("own"))
	f.settings += "authentication: {clientCAFile: a.crt}\n" // of profiles
	f.write(entry("own"))
	f.add("default", "a", "a", nil)
	f.add("default", "none", "a", func(p *unstructured.Unstructured) { delete(p.Object, "status") })
	f.add("default", "own", "a", nil) // the name is taken
	f.add("kube-public", "c", "a", nil)
	f.start(func() {})

	// At once: the start has waited for them.
	f.createNamespace("a", "of-a")
	if code, body := f.get(f.client("own", ""), "", "/clusters/own/api/v1/namespaces"); code != 200 || strings.Contains(body, "of-a") {
		t.Errorf("%d %s", code, body)
	}
	for _, name := range []string{"none", "c"} {
		f.awaitPath(name, 404)
	}
	if !strings.Contains(f.log.String(), "it names no access provider yet") {
		t.Errorf("the log does not tell of none: %s", f.log.String())
	}

	f.rejected(t, 1, 1, 0, 0)

	onA := f.watch("a", "")
	f.add("default", "b", "b", nil)
	f.awaitPath("b", 401)
	// The gateway does not have the provider of this profile: b stays.
	f.patch("b", `{"status": {"accessProviders": [{"name": "other", "cluster": {"server": "https://127.0.0.1:1"}}]}}`)
	f.awaitLog("the cluster stays as it was")
	f.awaitPath("b", 401)
	f.rejected(t, 1, 2, 0, 0)
	if err := f.profiles.Namespace("default").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitPath("b", 404)
	f.rejected(t, 1, 1, 0, 0)

	// The hub goes.
	f.upstreams["hub"].Cut()
	f.awaitLog("ClusterProfiles cannot be read")
	f.createNamespace("a", "still-of-a")
	if err := f.change(entry("own", "watchListCompression: false")); err != nil {
		t.Error(err)
	}
	select {
	case text := <-onA.ended:
		t.Errorf("the watch of a ended: %s", text)
	default:
	}
	if strings.Count(f.log.String(), "it names no access provider yet") != 1 {
		t.Errorf("what is wrong is told more than once: %s", f.log.String())
	}
}

// TestClusterProfilesOfAllNamespaces: the names of clusters begin with the namespace, and no more than are allowed are served.
func TestClusterProfilesOfAllNamespaces(t *testing.T) {
	f := startFleet(t, []string{"a"}, ", max: 2")
	f.start(func() {})
	client := f.client("hub", "")
	if code, body := f.get(client, "", "/readyz"); code != 200 {
		t.Errorf("no profiles: %d %s", code, body)
	}
	f.add("default", "x", "a", nil)
	f.awaitPath("default.x", 401)
	f.add("kube-system", "x", "a", nil)
	f.awaitPath("kube-system.x", 401)
	f.add("default", "y", "a", nil)
	f.reload(t.Context(), true)
	f.awaitPath("default.y", 404)
	f.add("default", "z", "a", nil)
	if err := f.profiles.Namespace("default").Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitPath("default.y", 401) // there is a place now
	f.awaitPath("default.x", 404)
	f.rejected(t, 0, 0, 0, 1)
	// Another access provider, which no profile names: all stay.
	f.writeProviders("other")
	f.awaitLog("the provider file has none of its access providers")
	f.awaitPath("default.y", 401)
	f.rejected(t, 0, 2, 0, 1)
}

// TestClusterProfilesWithoutHub: a gateway whose hub does not answer starts, serves what it knows, and tells of it.
func TestClusterProfilesWithoutHub(t *testing.T) {
	f := startFleet(t, []string{"own"}, "")
	f.upstreams["hub"].Cut()
	for name, c := range map[string]struct {
		entries []string
		ready   int
	}{"with other clusters": {[]string{entry("own")}, 200}, "alone": {nil, 500}} {
		t.Run(name, func(t *testing.T) {
			g := &severalClusters{t: t, dir: f.dir, file: f.file, settings: f.settings, upstreams: f.upstreams, clients: make(map[string]*http.Client)}
			g.write(c.entries...)
			g.start(func() {})
			if code, body := g.get(g.client("own", ""), "", "/readyz"); code != c.ready {
				t.Errorf("%d %s", code, body)
			}
			if code, body := g.get(g.client("own", ""), "", "/clusters/own/api/v1/namespaces"); (code == 200) != (c.entries != nil) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

// TestClusterProfilesAreRetained: a gateway that starts while its hub is away serves the clusters that the hub had last, unless
// they were those of other settings.
func TestClusterProfilesAreRetained(t *testing.T) {
	f := startFleet(t, []string{"a"}, "")
	f.settings += "state: {dir: state}\n"
	f.write()
	f.add("default", "x", "a", nil)
	f.start(func() {})
	f.awaitPath("default.x", 401)
	f.Close()
	f.upstreams["hub"].Cut()
	for _, selector := range []string{"", "other=yes"} {
		g := &severalClusters{t: t, dir: f.dir, file: f.file, settings: f.settings, upstreams: f.upstreams, clients: make(map[string]*http.Client)}
		want, ready, message := 401, 200, "serving the clusters of the saved ClusterProfiles until it responds"
		if selector != "" {
			g.settings = strings.Replace(g.settings, "providerFile:", "labelSelector: "+selector+", providerFile:", 1)
			want, ready, message = 404, 500, "they are of another hub, namespace or selector"
		}
		g.write()
		g.start(func() {})
		(&fleet{severalClusters: g}).awaitPath("default.x", want)
		if code, body := g.get(g.client("hub", ""), "", "/readyz"); code != ready {
			t.Errorf("%d %s", code, body)
		}
		if !strings.Contains(g.log.String(), message) {
			t.Errorf("the log does not tell: %s", g.log.String())
		}
		g.Close()
	}
}
