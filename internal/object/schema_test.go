package object_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
	"github.com/kubeweir/kubeweir/internal/object"
)

// TestCanonicalField checks the labels that kube-apiserver v1.36.3 accepts (200) and rejects (400).
func TestCanonicalField(t *testing.T) {
	for _, c := range []struct {
		group, resource, yes, no string
	}{
		{"", "pods", "metadata.name metadata.namespace spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName", "name spec.foo"},
		{"", "nodes", "metadata.name spec.unschedulable", "metadata.namespace"},
		{"", "namespaces", "metadata.name status.phase", "metadata.namespace name"},
		{"", "secrets", "metadata.name metadata.namespace type", "data"},
		{"", "services", "metadata.name metadata.namespace spec.clusterIP spec.type", "spec.host"},
		{"", "replicationcontrollers", "metadata.name metadata.namespace status.replicas", "spec.replicas"},
		{"", "events", "metadata.name metadata.namespace involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type", "reportingController regarding.kind"},
		{"events.k8s.io", "events", "metadata.name metadata.namespace regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion regarding.resourceVersion regarding.fieldPath reason reportingController type", "source reportingComponent involvedObject.kind"},
		{"batch", "jobs", "metadata.name metadata.namespace status.successful", "status.succeeded"},
		{"batch", "cronjobs", "metadata.name metadata.namespace", "status.successful"},
		{"certificates.k8s.io", "certificatesigningrequests", "metadata.name spec.signerName", "metadata.namespace"},
		{"resource.k8s.io", "resourceslices", "metadata.name spec.nodeName spec.driver", "metadata.namespace"},
		{"apps", "replicasets", "metadata.name metadata.namespace", "status.replicas"},
		{"", "persistentvolumes", "metadata.name metadata.namespace", "name"},
		{"coordination.k8s.io", "leases", "metadata.name metadata.namespace", "spec.leaseName"},
	} {
		s := object.SchemaFor(gvr(c.group, "v1", c.resource))
		for _, label := range strings.Fields(c.yes) {
			if got, ok := s.CanonicalField(label); !ok || got != label {
				t.Errorf("%s: %s is %q, %v", c.resource, label, got, ok)
			}
		}
		for _, label := range strings.Fields(c.no) {
			if got, ok := s.CanonicalField(label); ok {
				t.Errorf("%s: %s is %q", c.resource, label, got)
			}
		}
	}
	if got, ok := object.SchemaFor(podResource).CanonicalField("spec.host"); got != "spec.nodeName" || !ok {
		t.Errorf("spec.host is %q, %v", got, ok)
	}
}

func TestCustomSchema(t *testing.T) {
	s := object.CustomSchema([]string{".spec.color", ".a-b.c_d.e", ".spec['x']", ".spec.list[0]", "spec.nodot", ".spec.*", `.spec.a\.b`, ".", "", ".metadata.uid"})
	if got := strings.Join(s.Fields, " "); got != "spec.color a-b.c_d.e" {
		t.Errorf("fields %q", got)
	}
	if _, ok := s.CanonicalField("metadata.namespace"); !ok {
		t.Error("namespaced resources select by metadata.namespace")
	}
	cluster := s.ClusterScoped()
	if _, ok := cluster.CanonicalField("metadata.namespace"); ok {
		t.Error("cluster-scoped custom resources do not select by metadata.namespace")
	}
	o := decode(t, cluster, api.JSON, []byte(`{"metadata":{"name":"n","resourceVersion":"1"},"spec":{"color":"red"},"a-b":{"c_d":{"e":true}}}`))
	if o.Fields[0] != "red" || o.Fields[1] != "true" {
		t.Errorf("fields %q", o.Fields)
	}
}

// TestCustomValues compares values with those of apiextensions-apiserver (selectableFields in
// pkg/registry/customresource/strategy.go) on random values, including values that no schema
// allows.
func TestCustomValues(t *testing.T) {
	paths := []string{".spec.color", ".spec.deep.er", ".top"}
	s := object.CustomSchema(paths)
	rng := rand.New(rand.NewSource(3))
	values := []string{
		`null`, `true`, `false`, `""`, `"text"`, `"é\n\"\\\/\u2028\ud83d\ude00\ud800x\udc00"`, `"<&>"`, `0`, `-0`, `1`, `-17`, `9223372036854775807`,
		`9223372036854775808`, `-9223372036854775808`, `123456789012345678`, `1234567890123456789`, `1.5`, `1e3`, `1E+2`, `1.0`, `-2.50e-7`, `1e21`,
		`{}`, `{"b":1,"a":[1,"x",null]}`, `[]`, `[1,2.5]`,
	}
	pick := func() string { return values[rng.Intn(len(values))] }
	for range 3000 {
		spec := fmt.Sprintf(`{"color":%s,"deep":{"er":%s,"other":%s}}`, pick(), pick(), pick())
		if rng.Intn(8) == 0 {
			spec = `{"deep":null}`
		}
		raw := fmt.Sprintf(`{"metadata":{"name":"n","resourceVersion":"1"},"other":%s,"spec":%s,"top":%s}`, pick(), spec, pick())
		o := decode(t, s, api.JSON, []byte(raw))
		var content map[string]any
		if err := utiljson.Unmarshal([]byte(raw), &content); err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			if want := selectableValue(t, path, content); o.Fields[i] != want {
				t.Fatalf("%s of %s: %q, want %q", path, raw, o.Fields[i], want)
			}
		}
	}
}

func selectableValue(t *testing.T, path string, content map[string]any) string {
	t.Helper()
	p := jsonpath.New("selectableField").AllowMissingKeys(true)
	if err := p.Parse("{" + path + "}"); err != nil {
		t.Fatal(err)
	}
	results, err := p.FindResults(content)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 || len(results[0]) == 0 {
		return ""
	}
	if value := results[0][0].Interface(); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// FuzzDecodeJSON checks that the scanner accepts what encoding/json accepts, finds the same, and
// returns an error for everything else.
func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"1","labels":{"a":"b"}},"spec":{"color":"red"}}`,
		`{"kind":"K","apiVersion":"v1","metadata":{"name":"\u00e9\n","resourceVersion":"5"}}`,
		`{"a":[1,-2.5e+7,true,false,null,{"b":"\ud83d\ude00"}]}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"215","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`,
		`{"metadata":{"labels":{"a":null}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Add(encodingtest.Raw(f, api.JSON, encodingtest.Pod(1)))
	s := object.CustomSchema([]string{".spec.color"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := s.Decode(api.JSON, raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted %q", raw)
		}
		if utf8.Valid(raw) { // encoding/json replaces invalid UTF-8
			compareMeta(t, raw, o)
		}
		if restamped, err := o.AtRV(api.JSON, o.RV+1); err != nil {
			t.Fatal(err)
		} else if again := decode(t, s, api.JSON, restamped.Raw); again.RV != o.RV+1 || again.Key != o.Key || again.MetaEnd != restamped.MetaEnd {
			t.Fatalf("restamped %q", restamped.Raw)
		}
	})
}

// compareMeta reads the metadata with encoding/json into maps, because struct fields match keys
// case-insensitively.
func compareMeta(t *testing.T, raw []byte, o *object.Object) {
	t.Helper()
	var top, meta map[string]json.RawMessage
	var labels map[string]*string
	must := func(data []byte, into any) {
		if len(data) == 0 {
			return
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
	}
	text := func(key string) (s string) { must(meta[key], &s); return s }
	must(raw, &top)
	must(top["metadata"], &meta)
	must(meta["labels"], &labels)
	if o.Name != text("name") || o.Namespace != text("namespace") || o.UID != text("uid") || len(o.Labels) != len(labels) {
		t.Fatalf("%q: got %+v", raw, o)
	}
	for k, v := range labels {
		if got, ok := o.Labels.Lookup(k); !ok || v != nil && got != *v || v == nil && got != "" {
			t.Fatalf("%q: label %q is %q, %v", raw, k, got, ok)
		}
	}
}

// FuzzDecodeProtobuf checks that nothing panics and that accepted objects can be restamped.
func FuzzDecodeProtobuf(f *testing.F) {
	f.Add(encodingtest.Raw(f, api.Protobuf, encodingtest.Pod(1)))
	f.Add([]byte{0x0a, 6, 0x0a, 1, 'n', 0x32, 1, '7'})
	s := object.SchemaFor(podResource)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = protobuf.Open(raw)
		if tmpl, err := object.Codec(api.Protobuf).LearnBookmark(raw); err == nil {
			tmpl.AppendObject(nil, 7, true)
			tmpl.AppendObject(nil, 7, false)
		}
		o, err := s.Decode(api.Protobuf, raw)
		if err != nil {
			return
		}
		if o.Name == "" || o.MetaStart > o.MetaEnd || int(o.MetaEnd) > len(raw) {
			t.Fatalf("got %+v", o)
		}
		if restamped, err := o.AtRV(api.Protobuf, o.RV+1); err == nil {
			if again := decode(t, s, api.Protobuf, restamped.Raw); again.RV != o.RV+1 || again.Name != o.Name {
				t.Fatalf("restamped %q", restamped.Raw)
			}
		}
	})
}

// TestSince checks that selectors require the newest release of their fields.
func TestSince(t *testing.T) {
	services, pods := object.SchemaFor(gvr("", "v1", "services")), object.SchemaFor(podResource)
	for _, tc := range []struct {
		schema   *object.Schema
		selector string
		want     int
	}{
		{services, "", 0}, {services, "metadata.name=a", 0}, {services, "metadata.name=a,spec.type!=b", 31}, {services.WithoutManagedFields(), "spec.clusterIP=", 31},
		{services, "spec.none=x", 0}, {pods, "spec.host=x,status.phase=y", 0},
	} {
		if got := tc.schema.Since(fields.ParseSelectorOrDie(tc.selector)); got != tc.want {
			t.Errorf("%q: %d, want %d", tc.selector, got, tc.want)
		}
	}
}
