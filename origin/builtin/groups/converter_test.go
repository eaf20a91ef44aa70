package groups

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

var update = flag.Bool("update", false, "write structure.gob anew")

// definitionsOfAll are the OpenAPI definitions of all types of the served versions.
func definitionsOfAll(t testing.TB) map[string]*spec.Schema {
	t.Helper()
	var names []string
	for gv := range DefaultResources().GroupVersionConfigs {
		for kind := range legacyscheme.Scheme.KnownTypes(gv) {
			object, err := legacyscheme.Scheme.New(gv.WithKind(kind))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, util.GetCanonicalTypeName(object))
		}
	}
	specs, err := builder3.BuildOpenAPIDefinitionsForResources(OpenAPIV3Config(), names...)
	if err != nil {
		t.Fatal(err)
	}
	return specs
}

// derive makes a structure of definitions as managedfields.NewTypeConverter does.
func derive(t testing.TB, specs map[string]*spec.Schema) structure {
	t.Helper()
	types, err := schemaconv.ToSchemaFromOpenAPI(specs, false)
	if err != nil {
		t.Fatal(err)
	}
	s := structure{Types: types.Types}
	for name, definition := range specs {
		kinds, _ := definition.Extensions["x-kubernetes-group-version-kind"].([]any)
		for _, found := range kinds {
			k := found.(map[string]any)
			s.Kinds = append(s.Kinds, kind{schema.GroupVersionKind{Group: k["group"].(string), Version: k["version"].(string), Kind: k["kind"].(string)}, name})
		}
	}
	slices.SortFunc(s.Kinds, func(a, b kind) int {
		return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.Type, b.Type))
	})
	for _, def := range s.Types {
		if def.Map == nil {
			continue
		}
		slices.SortFunc(def.Map.Fields, func(a, b smd.StructField) int { return strings.Compare(a.Name, b.Name) })
		for i := range def.Map.Fields {
			// Some are of a string type of their own; as merge keys, for which
			// defaults count, none are.
			if v := reflect.ValueOf(def.Map.Fields[i].Default); v.Kind() == reflect.String {
				def.Map.Fields[i].Default = v.String()
			}
		}
	}
	slices.SortFunc(s.Types, func(a, b smd.TypeDef) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// TestStructureFile: the file is what kube-apiserver would derive.
func TestStructureFile(t *testing.T) {
	want := derive(t, definitionsOfAll(t))
	if *update {
		var out bytes.Buffer
		gob.Register(map[string]any{})
		if err := gob.NewEncoder(&out).Encode(want); err != nil {
			t.Fatal(err)
		}
		structureFile = out.Bytes()
		if err := os.WriteFile("structure.gob", structureFile, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readStructure()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.parser.Schema.Types) != len(want.Types) || len(want.Types) < 500 {
		t.Fatalf("%d types in the file, %d in the definitions; go test -run TestStructureFile -update", len(got.parser.Schema.Types), len(want.Types))
	}
	for i, w := range want.Types {
		if g, w := asYAML(t, got.parser.Schema.Types[i]), asYAML(t, w); g != w {
			t.Errorf("in the file:\n%s\nin the definitions:\n%s", g, w)
		}
	}
	for _, k := range want.Kinds {
		if got.kinds[k.Kind] != k.Type {
			t.Errorf("%s is %q, want %q", k.Kind, got.kinds[k.Kind], k.Type)
		}
	}
}

// asYAML is the form in which the library itself keeps structures.
func asYAML(t *testing.T, def smd.TypeDef) string {
	t.Helper()
	out, err := yaml.Marshal(def)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestConverter: objects look to server-side apply as with the library's converter.
func TestConverter(t *testing.T) {
	library, err := managedfields.NewTypeConverter(definitionsOfAll(t), false)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newDefaultTypeConverter()
	if err != nil {
		t.Fatal(err)
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "A"}},
	}}}}
	for _, o := range []runtime.Object{
		&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: appsv1.DeploymentSpec{Template: template}},
		&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}, {Port: 81}}}},
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"a": {1}}},
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Unknown"}},
	} {
		want, wantErr := library.ObjectToTyped(o)
		got, gotErr := ours.ObjectToTyped(o)
		if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
			t.Errorf("%T: %v, want %v", o, gotErr, wantErr)
			continue
		}
		if wantErr != nil {
			continue
		}
		wantFields, err := want.ToFieldSet()
		if err != nil {
			t.Fatal(err)
		}
		gotFields, err := got.ToFieldSet()
		if err != nil || !gotFields.Equals(wantFields) || !value.Equals(got.AsValue(), want.AsValue()) {
			t.Errorf("%T: fields %v, want %v, %v", o, gotFields, wantFields, err)
		}
	}
}

// BenchmarkReadStructure is what the first write costs.
func BenchmarkReadStructure(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readStructure(); err != nil {
			b.Fatal(err)
		}
	}
}
