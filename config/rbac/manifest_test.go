package rbac

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/config"
)

// TestWriteHub: the right of who reads a hub is that of a namespace where there is one.
func TestWriteHub(t *testing.T) {
	for namespace, want := range map[string][]string{
		"":      {"kind: ClusterRole\n", "kind: ClusterRoleBinding\n"},
		"fleet": {"kind: Role\n", "kind: RoleBinding\n", "namespace: fleet\n"},
	} {
		names := DefaultNames()
		names.RoleNamespace = namespace
		var out, list strings.Builder
		if err := errors.Join(WriteYAML(&out, names, HubRules()), WriteJSON(&list, names, HubRules())); err != nil {
			t.Fatal(err)
		}
		want = append(want, "- apiGroups: [multicluster.x-k8s.io]\n  resources: [clusterprofiles]\n  verbs: [list, watch]\n")
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %q in\n%s", text, out.String())
			}
		}
		if strings.Contains(out.String(), "ClusterRole") != (namespace == "") || strings.Contains(list.String(), "ClusterRole") != (namespace == "") {
			t.Errorf("%s\n%s", out.String(), list.String())
		}
	}
}

// TestWriteYAML: what is written is read as what was meant, by a strict reader, and says
// of each rule what it is for.
func TestWriteYAML(t *testing.T) {
	cfg := config.Default()
	cfg.Authentication.ClientCAFile = "ca.crt"
	for _, options := range []Options{{}, {Resources: []string{"*", "secrets"}}, {UnconstrainedImpersonation: true}} {
		rules, err := Rules(cfg, options)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		names := Names{Role: "true", ServiceAccount: "0", Namespace: "kube-system"}
		if err := WriteYAML(&out, names, rules); err != nil {
			t.Fatal(err)
		}
		var account corev1.ServiceAccount
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		documents := strings.Split(out.String(), "---\n")
		for i, object := range []any{&account, &role, &binding} {
			if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
				t.Fatalf("%v in\n%s", err, documents[i])
			}
		}
		wantAccount, wantRole, wantBinding := Objects(names, rules)
		if len(documents) != 3 || !reflect.DeepEqual(&account, wantAccount) || !reflect.DeepEqual(&role, wantRole) || !reflect.DeepEqual(&binding, wantBinding) {
			t.Errorf("%s", out.String())
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 130 {
				t.Errorf("a long line: %s", line)
			}
		}
		// The way kubectl divides documents.
		for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out.String()), 4096); ; {
			var object map[string]any
			if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil || object["kind"] == nil {
				t.Fatal(object, err)
			}
		}
	}
}
