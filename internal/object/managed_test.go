package object_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// managedPod returns a pod with managedFields as kube-apiserver writes them: its creator owns the
// spec and the metadata, the kubelet the status.
func managedPod(t *testing.T, i int) *corev1.Pod {
	pod := encodingtest.Pod(i)
	pod.ManagedFields = nil
	var whole map[string]any
	if err := json.Unmarshal(encodingtest.Raw(t, api.JSON, pod), &whole); err != nil {
		t.Fatal(err)
	}
	metadata := whole["metadata"].(map[string]any)
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		delete(metadata, name)
	}
	for manager, of := range map[string]map[string]any{"kube-controller-manager": {"metadata": metadata, "spec": whole["spec"]}, "kubelet": {"status": whole["status"]}} {
		fields, err := json.Marshal(fieldsOf(of))
		if err != nil {
			t.Fatal(err)
		}
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Update", APIVersion: "v1", Time: &pod.CreationTimestamp, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
		})
	}
	return pod
}

// fieldsOf returns the FieldsV1 of a value: lists of named or typed items have keys, others are one
// field.
func fieldsOf(v any) map[string]any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			out["f:"+name] = fieldsOf(member)
		}
	case []any:
		for _, item := range v {
			element, _ := item.(map[string]any)
			for _, key := range []string{"name", "type", "uid", "ip"} {
				if value, ok := element[key]; ok {
					fields := fieldsOf(element)
					fields["."] = map[string]any{}
					out[fmt.Sprintf("k:{%q:%q}", key, value)] = fields
					break
				}
			}
		}
	}
	return out
}

// TestWithoutManagedFields checks that objects are stored as the libraries encode them without
// managedFields, which are a third or more of the usual memory.
func TestWithoutManagedFields(t *testing.T) {
	whole := object.SchemaFor(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	without := whole.WithoutManagedFields()
	for _, enc := range encodingtest.Encodings {
		raws := make([][]byte, soak.Cases(150, 500))
		for i := range raws {
			pod := managedPod(t, i)
			raws[i] = encodingtest.Raw(t, enc, pod)
			o, err := without.Decode(enc, raws[i])
			if err != nil {
				t.Fatal(err)
			}
			pod.ManagedFields = nil
			encodingtest.Same(t, pod.Name, o.Raw, encodingtest.Raw(t, enc, pod))
			if o.Name != pod.Name || strings.Join(o.Fields, " ") == "" || o.ManagedEnd != 0 {
				t.Errorf("%+v", o)
			}
		}
		full, less := retained(t, whole, enc, raws), retained(t, without, enc, raws)
		t.Logf("%v: %d bytes an object, %d without managedFields (%.2f)", enc, full/len(raws), less/len(raws), float64(less)/float64(full))
		if less*10 > full*7 {
			t.Errorf("%v: %d bytes of %d are retained", enc, less, full)
		}
	}
}

// retained returns the memory in bytes that the objects of raws occupy. The source provides each in
// memory of its own.
func retained(t *testing.T, s *object.Schema, enc api.Encoding, raws [][]byte) int {
	t.Helper()
	objects := make([]*object.Object, len(raws))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i, raw := range raws {
		o, err := s.Decode(enc, append([]byte(nil), raw...))
		if err != nil {
			t.Fatal(err)
		}
		objects[i] = o
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(objects)
	return int(after.HeapAlloc - before.HeapAlloc)
}
