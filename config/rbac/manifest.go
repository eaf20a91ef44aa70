package rbac

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names are those of the objects of a manifest.
type Names struct {
	// Role is the ClusterRole and the ClusterRoleBinding; where RoleNamespace is set, the Role
	// and the RoleBinding there.
	Role, RoleNamespace string
	// ServiceAccount, in Namespace, is who the gateway is.
	ServiceAccount, Namespace string
}

// DefaultNames are the names that `kubeweir rbac` gives, as the manifests of the
// project do.
func DefaultNames() Names {
	return Names{Role: "kubeweir-gateway", ServiceAccount: "kubeweir", Namespace: "kubeweir"}
}

// kind is that of a role or its binding. One of a namespace has the same form.
func (n Names) kind(clusterKind string) string {
	if n.RoleNamespace != "" {
		return strings.TrimPrefix(clusterKind, "Cluster")
	}
	return clusterKind
}

// Objects are the ServiceAccount, the ClusterRole and the ClusterRoleBinding, or Role and
// RoleBinding by their kinds.
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

// WriteYAML writes Objects with what each rule is for.
func WriteYAML(out io.Writer, n Names, rules []Rule) error {
	w := &yamlWriter{out: out}
	w.object("v1", "ServiceAccount", n.ServiceAccount, n.Namespace)
	w.linef("---")
	w.object(rbacGroup+"/v1", n.kind("ClusterRole"), n.Role, n.RoleNamespace)
	w.linef("rules:")
	for i := range rules {
		w.rule(&rules[i])
	}
	w.linef("---")
	w.object(rbacGroup+"/v1", n.kind("ClusterRoleBinding"), n.Role, n.RoleNamespace)
	w.linef("roleRef:")
	w.linef("  apiGroup: %s", rbacGroup)
	w.linef("  kind: %s", n.kind("ClusterRole"))
	w.linef("  name: %s", scalar(n.Role))
	w.linef("subjects:")
	w.linef("- kind: ServiceAccount")
	w.linef("  name: %s", scalar(n.ServiceAccount))
	w.linef("  namespace: %s", scalar(n.Namespace))
	return w.err
}

// yamlWriter writes lines until the first error. Encoders of YAML write no comments.
type yamlWriter struct {
	out io.Writer
	err error
}

func (w *yamlWriter) linef(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

func (w *yamlWriter) object(apiVersion, kind, name, namespace string) {
	w.linef("apiVersion: %s", apiVersion)
	w.linef("kind: %s", kind)
	w.linef("metadata:")
	w.linef("  name: %s", scalar(name))
	if namespace != "" {
		w.linef("  namespace: %s", scalar(namespace))
	}
	w.linef("  labels:")
	w.linef("    app.kubernetes.io/name: kubeweir")
	w.linef("    app.kubernetes.io/component: gateway")
}

func (w *yamlWriter) rule(r *Rule) {
	for _, line := range r.For {
		w.linef("# %s", line)
	}
	item := "- "
	for _, field := range []struct {
		name   string
		values []string
	}{
		{"apiGroups", r.APIGroups}, {"resources", r.Resources}, {"nonResourceURLs", r.NonResourceURLs}, {"verbs", r.Verbs},
	} {
		if len(field.values) > 0 {
			w.list(item+field.name, field.values)
			item = "  "
		}
	}
}

// width is how long a list in one line may be.
const width = 100

// list writes a list in one line, or an item to a line if that is too long.
func (w *yamlWriter) list(name string, values []string) {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = scalar(v)
	}
	if line := name + ": [" + strings.Join(quoted, ", ") + "]"; len(line) <= width {
		w.linef("%s", line)
		return
	}
	w.linef("%s:", name)
	for _, v := range quoted {
		w.linef("  - %s", v)
	}
}

// scalar quotes what YAML would not read as the same string: nothing, "*", numbers,
// what has a colon or looks like true.
func scalar(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-/") == "" && s[0] >= 'a' && s[0] <= 'z'
	switch s {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}
