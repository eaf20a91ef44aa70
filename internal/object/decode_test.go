package object_test

import (
	stdjson "encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	certsv1 "k8s.io/api/certificates/v1"
	certsv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// builtin is a built-in type with the field set that its registry computes (*ToSelectableFields in
// k8s.io/kubernetes/pkg/registry), written for the v1 type.
type builtin struct {
	gvr    schema.GroupVersionResource
	new    func() runtime.Object
	fields func(runtime.Object) map[string]string
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func builtins() []builtin {
	return []builtin{
		{gvr("", "v1", "pods"), func() runtime.Object { return &corev1.Pod{} }, func(o runtime.Object) map[string]string {
			p := o.(*corev1.Pod)
			return map[string]string{
				"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.schedulerName": p.Spec.SchedulerName,
				"spec.serviceAccountName": p.Spec.ServiceAccountName, "spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork),
				"status.phase": string(p.Status.Phase), "status.podIP": p.Status.PodIP, "status.podIPs": "",
				"status.nominatedNodeName": p.Status.NominatedNodeName,
			}
		}},
		{gvr("", "v1", "nodes"), func() runtime.Object { return &corev1.Node{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"spec.unschedulable": fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable)}
		}},
		{gvr("", "v1", "namespaces"), func() runtime.Object { return &corev1.Namespace{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
		}},
		{gvr("", "v1", "secrets"), func() runtime.Object { return &corev1.Secret{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"type": string(o.(*corev1.Secret).Type)}
		}},
		{gvr("", "v1", "services"), func() runtime.Object { return &corev1.Service{} }, func(o runtime.Object) map[string]string {
			s := o.(*corev1.Service)
			return map[string]string{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		}},
		{gvr("", "v1", "replicationcontrollers"), func() runtime.Object { return &corev1.ReplicationController{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"status.replicas": strconv.Itoa(int(o.(*corev1.ReplicationController).Status.Replicas))}
		}},
		{gvr("", "v1", "events"), func() runtime.Object { return &corev1.Event{} }, func(o runtime.Object) map[string]string {
			e := o.(*corev1.Event)
			fields := reference("involvedObject", e.InvolvedObject)
			fields["reason"], fields["type"], fields["reportingComponent"] = e.Reason, e.Type, e.ReportingController
			fields["source"] = e.Source.Component
			if e.Source.Component == "" {
				fields["source"] = e.ReportingController
			}
			return fields
		}},
		{gvr("events.k8s.io", "v1", "events"), func() runtime.Object { return &eventsv1.Event{} }, func(o runtime.Object) map[string]string {
			e := o.(*eventsv1.Event)
			fields := reference("regarding", e.Regarding)
			fields["reason"], fields["type"], fields["reportingController"] = e.Reason, e.Type, e.ReportingController
			return fields
		}},
		{gvr("batch", "v1", "jobs"), func() runtime.Object { return &batchv1.Job{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"status.successful": strconv.Itoa(int(o.(*batchv1.Job).Status.Succeeded))}
		}},
		{gvr("certificates.k8s.io", "v1", "certificatesigningrequests"), func() runtime.Object { return &certsv1.CertificateSigningRequest{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"spec.signerName": o.(*certsv1.CertificateSigningRequest).Spec.SignerName}
		}},
		{gvr("certificates.k8s.io", "v1beta1", "clustertrustbundles"), func() runtime.Object { return &certsv1beta1.ClusterTrustBundle{} }, func(o runtime.Object) map[string]string {
			return map[string]string{"spec.signerName": o.(*certsv1beta1.ClusterTrustBundle).Spec.SignerName}
		}},
		{gvr("certificates.k8s.io", "v1beta1", "podcertificaterequests"), func() runtime.Object { return &certsv1beta1.PodCertificateRequest{} }, func(o runtime.Object) map[string]string {
			spec := o.(*certsv1beta1.PodCertificateRequest).Spec
			return map[string]string{"spec.signerName": spec.SignerName, "spec.podName": spec.PodName, "spec.nodeName": string(spec.NodeName)}
		}},
		{gvr("resource.k8s.io", "v1", "resourceslices"), func() runtime.Object { return &resourcev1.ResourceSlice{} }, func(o runtime.Object) map[string]string {
			spec := o.(*resourcev1.ResourceSlice).Spec
			fields := map[string]string{"spec.driver": spec.Driver, "spec.nodeName": ""}
			if spec.NodeName != nil {
				fields["spec.nodeName"] = *spec.NodeName
			}
			return fields
		}},
		{gvr("", "v1", "configmaps"), func() runtime.Object { return &corev1.ConfigMap{} }, func(runtime.Object) map[string]string { return nil }},
	}
}

func reference(prefix string, r corev1.ObjectReference) map[string]string {
	return map[string]string{
		prefix + ".kind": r.Kind, prefix + ".namespace": r.Namespace, prefix + ".name": r.Name, prefix + ".uid": string(r.UID),
		prefix + ".apiVersion": r.APIVersion, prefix + ".resourceVersion": r.ResourceVersion, prefix + ".fieldPath": r.FieldPath,
	}
}

// filler returns a filler of random content: strings with quotes, escapes and all planes of
// Unicode, absent and present fields.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) {
			alphabet := []rune("ab/\"\\<>&\n\t\x01é日\u2028😀")
			var sb strings.Builder
			for range c.Intn(12) {
				sb.WriteRune(alphabet[c.Intn(len(alphabet))])
			}
			*s = sb.String()
		},
		func(o *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(o)
			o.Name = fmt.Sprintf("name-%d", c.Intn(1000))
			if c.Bool() {
				o.Namespace = fmt.Sprintf("ns-%d", c.Intn(10))
			} else {
				o.Namespace = ""
			}
			o.ResourceVersion = strconv.FormatUint(c.Uint64(), 10)
			o.UID = types.UID(fmt.Sprint(c.Uint64()))
		},
		func(t *metav1.Time, c randfill.Continue) {
			*t = metav1.Time{}
			if c.Bool() {
				*t = metav1.NewTime(time.Unix(c.Int63n(1<<32), 0).UTC())
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawString(`{"f:spec":{"f:a\"b":{}}}`) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":1}`) },
	)
}

func fillObject(f *randfill.Filler, obj runtime.Object, gvr schema.GroupVersionResource) {
	f.Fill(obj)
	kind := reflect.TypeOf(obj).Elem().Name()
	obj.GetObjectKind().SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
}

// TestDecodeBuiltins compares the scanner's result with the typed object for random objects of
// every type with a schema of its own.
func TestDecodeBuiltins(t *testing.T) {
	for _, b := range builtins() {
		t.Run(b.gvr.Resource+"."+b.gvr.Group, func(t *testing.T) {
			s := object.SchemaFor(b.gvr)
			f := filler(1)
			for range soak.Cases(15, 60) {
				obj := b.new()
				fillObject(f, obj, b.gvr)
				for _, enc := range encodingtest.Encodings {
					checkDecoded(t, decode(t, s, enc, encodingtest.Raw(t, enc, obj)), enc, s, obj, b.fields(obj))
				}
			}
		})
	}
}

func checkDecoded(t *testing.T, o *object.Object, enc api.Encoding, s *object.Schema, obj runtime.Object, want map[string]string) {
	t.Helper()
	m := obj.(metav1.Object)
	key := m.GetName()
	if ns := m.GetNamespace(); ns != "" {
		key = ns + "/" + key
	}
	rv, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	created := int64(0)
	if ts := m.GetCreationTimestamp(); !ts.IsZero() {
		created = ts.Unix()
	}
	got := []any{o.Key, o.Namespace, o.Name, o.UID, o.RV, o.CreationUnix}
	if expect := []any{key, m.GetNamespace(), m.GetName(), string(m.GetUID()), rv, created}; !reflect.DeepEqual(got, expect) {
		t.Fatalf("%s: got %q, want %q", enc, got, expect)
	}
	if len(o.Labels) != len(m.GetLabels()) {
		t.Fatalf("%s: labels %q, want %q", enc, o.Labels, m.GetLabels())
	}
	for i, l := range o.Labels {
		if m.GetLabels()[l.Key] != l.Value || i > 0 && o.Labels[i-1].Key >= l.Key {
			t.Fatalf("%s: labels %q, want %q sorted", enc, o.Labels, m.GetLabels())
		}
	}
	if len(o.Fields) != len(want) || len(s.Fields) != len(want) {
		t.Fatalf("%s: %d values of %d fields, want %d", enc, len(o.Fields), len(s.Fields), len(want))
	}
	for i, label := range s.Fields {
		if value, ok := want[label]; !ok || o.Fields[i] != value {
			t.Fatalf("%s: %s is %q, want %q", enc, label, o.Fields[i], value)
		}
	}
	checkParts(t, o, enc, obj)
}

// checkParts decodes the parts of Raw that the offsets delimit.
func checkParts(t *testing.T, o *object.Object, enc api.Encoding, obj runtime.Object) {
	t.Helper()
	var meta metav1.ObjectMeta
	var err error
	if enc == api.JSON {
		if o.ListOffset == 0 {
			t.Fatal("typed object has no ListOffset")
		}
		open, rest := json.Item(o.Raw, o.ListOffset)
		item := append([]byte(open), rest...)
		var fields map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(item, &fields); err != nil || fields["kind"] != nil || fields["metadata"] == nil {
			t.Fatalf("list item %s: %v", item, err)
		}
		err = stdjson.Unmarshal(o.Metadata(), &meta)
	} else {
		err = meta.Unmarshal(o.Metadata())
	}
	if err != nil || string(meta.UID) != o.UID {
		t.Fatalf("metadata %q: %v", o.Metadata(), err)
	}
}

func TestDecodeJSON(t *testing.T) {
	s := object.CustomSchema([]string{".spec.color", ".spec.size"})
	t.Run("sorted keys", func(t *testing.T) {
		raw := `{"apiVersion":"x.io/v1","kind":"Thing","metadata":{"creationTimestamp":"2024-01-02T03:04:05Z","labels":{"b":"2","a":"1"},"name":"n","namespace":"s","resourceVersion":"7","uid":"u"},"spec":{"color":"r\u00e9d","size":-3}}`
		o := decode(t, s, api.JSON, []byte(raw))
		if o.Key != "s/n" || o.RV != 7 || o.ListOffset != 0 || o.Fields[0] != "réd" || o.Fields[1] != "-3" || o.CreationUnix != 1704164645 ||
			!reflect.DeepEqual(o.Labels, object.Labels{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}) {
			t.Errorf("got %+v", o)
		}
		if open, rest := json.Item(o.Raw, o.ListOffset); open+string(rest) != raw {
			t.Errorf("list item %s%s", open, rest)
		}
	})
	t.Run("white space and order", func(t *testing.T) {
		raw := "{ \"spec\" : { \"size\" : 4 ,\n\"color\":null } , \"metadata\" :\t{ \"resourceVersion\" : \"8\" , \"n\\u0061me\" : \"n\" , \"labels\":null,\"creationTimestamp\":null } , \"kind\" : \"Thing\" }"
		o := decode(t, s, api.JSON, []byte(raw))
		if o.Key != "n" || o.RV != 8 || o.Fields[0] != "" || o.Fields[1] != "4" || o.Labels != nil {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("last of equal keys", func(t *testing.T) {
		raw := `{"metadata":{"name":"a","resourceVersion":"1","labels":{"x":"1","w":"0","x":"2"},"name":"b"},"spec":{"color":"1","color":"2"}}`
		o := decode(t, s, api.JSON, []byte(raw))
		if o.Name != "b" || labelOf(o, "x") != "2" || len(o.Labels) != 2 || o.Fields[0] != "2" {
			t.Errorf("got %+v", o)
		}
	})
}

func TestDecodeErrors(t *testing.T) {
	const ok = `"metadata":{"name":"n","resourceVersion":"1"}`
	for _, c := range []struct{ raw, want string }{
		{``, "not a JSON object"},
		{`[]`, "not a JSON object"},
		{`{`, "unexpected end"},
		{`{}`, "metadata.name is missing"},
		{`{"metadata":{"name":"n"}}`, "metadata.resourceVersion is missing"},
		{`{"metadata":{"name":"n","resourceVersion":"x"}}`, "invalid syntax"},
		{`{"metadata":{"name":"n","resourceVersion":"18446744073709551616"}}`, "value out of range"},
		{`{"metadata":{"name":"n","resourceVersion":1}}`, "metadata.resourceVersion is not a string"},
		{`{"metadata":[]}`, "metadata is not an object"},
		{`{"metadata":{"name":"n","resourceVersion":"1","labels":{"a":1}}}`, "not a map of strings"},
		{`{"metadata":{"name":"n","resourceVersion":"1","labels":[]}}`, "not a map of strings"},
		{`{"metadata":{"name":"n","resourceVersion":"1","creationTimestamp":"yesterday"}}`, "metadata.creationTimestamp"},
		{`{"metadata":{"name":"n","resourceVersion":"1","creationTimestamp":1}}`, "metadata.creationTimestamp"},
		{`{` + ok, "unexpected end"},
		{`{` + ok + `} `, "data after the object"},
		{`{` + ok + `}{}`, "data after the object"},
		{`{` + ok + `,}`, "malformed JSON"},
		{`{` + ok + `,"a":}`, "malformed JSON"},
		{`{` + ok + `,"a":[1,]}`, "malformed JSON"},
		{`{` + ok + `,"a":[1}]`, "malformed JSON"},
		{`{` + ok + `,"a":01}`, "malformed JSON"},
		{`{` + ok + `,"a":1.}`, "malformed JSON"},
		{`{` + ok + `,"a":1e}`, "malformed JSON"},
		{`{` + ok + `,"a":tru}`, "malformed JSON"},
		{`{` + ok + `,"a":"\x"}`, "malformed JSON"},
		{`{` + ok + `,"a":"\u12g4"}`, "malformed JSON"},
		{"{" + ok + ",\"a\":\"\n\"}", "malformed JSON"},
		{`{` + ok + `,"a":` + strings.Repeat("[", 10001), "malformed JSON"},
	} {
		_, err := object.CustomSchema(nil).Decode(api.JSON, []byte(c.raw))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: got %v, want %q", c.raw, err, c.want)
		}
	}
	pod := encodingtest.Raw(t, api.Protobuf, encodingtest.Pod(1))
	for n := range len(pod) {
		o, err := object.SchemaFor(podResource).Decode(api.Protobuf, pod[:n])
		if err == nil && (o.Name == "" || o.RV == 0) {
			t.Fatalf("truncated at %d: %+v", n, o)
		}
	}
	if _, err := object.CustomSchema(nil).Decode(api.Protobuf, []byte{8, 1}); err == nil {
		t.Error("metadata as varint accepted")
	}
	if _, err := object.CustomSchema(nil).Decode(api.Protobuf, nil); err == nil {
		t.Error("empty message accepted")
	}
	if _, err := object.CustomSchema(nil).Decode(api.Encoding(9), []byte("{}")); err == nil {
		t.Error("unknown encoding accepted")
	}
}

// TestDecodeAllocations allows the object, its labels, its fields and one backing string.
func TestDecodeAllocations(t *testing.T) {
	want := 4.0
	if raceEnabled {
		want += 4
	}
	for _, enc := range encodingtest.Encodings {
		s := object.SchemaFor(podResource)
		raw := encodingtest.Raw(t, enc, encodingtest.Pod(3))
		decode(t, s, enc, raw)
		if n := testing.AllocsPerRun(100, func() { decode(t, s, enc, raw) }); n > want {
			t.Errorf("%s: %v allocations per object, want %v", enc, n, want)
		}
	}
}

// TestDecodeShares checks that repeated strings are shared and that the table is bounded, so that a
// flood of unique values takes no more than its own objects.
func TestDecodeShares(t *testing.T) {
	s := object.CustomSchema(nil)
	rng := rand.New(rand.NewSource(1))
	for i := range 20000 {
		value := fmt.Sprint("value-", rng.Intn(5000))
		raw := fmt.Sprintf(`{"metadata":{"name":"n","resourceVersion":"%d","labels":{"app":"web","l":%q}}}`, i+1, value)
		o := decode(t, s, api.JSON, []byte(raw))
		if labelOf(o, "app") != "web" || labelOf(o, "l") != value {
			t.Fatalf("%d: %+v", i, o.Labels)
		}
	}
}

func TestDecodeIDs(t *testing.T) {
	raw := []byte(`{"metadata":{"name":"n","resourceVersion":"1"}}`)
	a, b := decode(t, object.CustomSchema(nil), api.JSON, raw), decode(t, object.CustomSchema(nil), api.JSON, raw)
	if a.ID == b.ID || a.ID == 0 {
		t.Errorf("IDs %d and %d", a.ID, b.ID)
	}
}

func decode(t testing.TB, s *object.Schema, enc api.Encoding, raw []byte) *object.Object {
	t.Helper()
	o, err := s.Decode(enc, raw)
	if err != nil {
		t.Fatalf("decode: %v\n%q", err, raw)
	}
	return o
}

func labelOf(o *object.Object, key string) string {
	value, _ := o.Labels.Lookup(key)
	return value
}
