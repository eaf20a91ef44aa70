package rbac

import (
	"encoding/json"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sorted "sigs.k8s.io/yaml"
)

// Names are the names of the objects of a manifest.
type Names struct {
	// Role is the name of the ClusterRole and the ClusterRoleBinding, or, if RoleNamespace is set,
	// of the Role and the RoleBinding in that namespace.
	Role, RoleNamespace string
	// ServiceAccount, in Namespace, is the identity of the gateway.
	ServiceAccount, Namespace string
}

// DefaultNames returns the names that `kubeweir rbac` and the manifests of the project use.
func DefaultNames() Names {
	return Names{Role: "kubeweir-gateway", ServiceAccount: "kubeweir", Namespace: "kubeweir"}
}

// kind returns the kind of a role or binding: clusterKind, or its namespaced form if RoleNamespace
// is set.
func (n Names) kind(clusterKind string) string {
	if n.RoleNamespace != "" {
		return strings.TrimPrefix(clusterKind, "Cluster")
	}
	return clusterKind
}

// Objects returns the ServiceAccount, the ClusterRole and the ClusterRoleBinding. With
// RoleNamespace the latter two have the kinds Role and RoleBinding.
func Objects(n Names, rules []Rule) (*corev1.ServiceAccount, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	const version = rbacGroup + "/v1"
	labels := map[string]string{"app.kubernetes.io/name": "kubeweir", "app.kubernetes.io/component": "gateway"}
	return &corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: n.ServiceAccount, Namespace: n.Namespace, Labels: labels},
		}, &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: n.kind("ClusterRole")},
			ObjectMeta: metav1.ObjectMeta{Name: n.Role, Namespace: n.RoleNamespace, Labels: labels},
			Rules:      Policy(rules),
		}, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: n.kind("ClusterRoleBinding")},
			ObjectMeta: metav1.ObjectMeta{Name: n.Role, Namespace: n.RoleNamespace, Labels: labels},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacGroup, Kind: n.kind("ClusterRole"), Name: n.Role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: n.ServiceAccount, Namespace: n.Namespace}},
		}
}

// WriteJSON writes Objects as a list.
func WriteJSON(out io.Writer, n Names, rules []Rule) error {
	account, role, binding := Objects(n, rules)
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []any `json:"items"`
	}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, []any{account, role, binding}}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
}

// maxFlow is the maximum length of the items of a list that is written on one line.
const maxFlow = 80

// WriteYAML writes Objects, with the purpose of each rule as a comment.
func WriteYAML(out io.Writer, n Names, rules []Rule) error {
	account, role, binding := Objects(n, rules)
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	for _, object := range []any{account, role, binding} {
		encoded, err := sorted.Marshal(object)
		if err != nil {
			return err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(encoded, &document); err != nil {
			return err
		}
		blockStyle(&document)
		if fields := document.Content[0].Content; object == any(role) {
			for i, item := range fields[len(fields)-1].Content { // the rules are the last field
				item.HeadComment = "# " + strings.Join(rules[i].For, "\n# ")
				if len(rules[i].For) == 0 {
					item.HeadComment = ""
				}
			}
		}
		if err := encoder.Encode(&document); err != nil {
			return err
		}
	}
	return encoder.Close()
}

// blockStyle replaces the style of JSON, except for short lists of strings.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	length := 0
	for _, child := range n.Content {
		blockStyle(child)
		length += len(child.Value) + 2
		if child.Kind != yaml.ScalarNode {
			length += maxFlow
		}
	}
	if n.Kind == yaml.SequenceNode && length <= maxFlow {
		n.Style = yaml.FlowStyle
	}
}
