package visible

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// The namespaces, and the names of the objects in each. Sorting by namespace and sorting by key
// give different orders.
var (
	namespaces  = []string{"v-a", "v-a-b", "v-a0", "v-b", "v-c", "v-d"}
	objectNames = []string{"one", "two", "three"}
)

// seededSecret is in the values of all Secrets. No response to a user with a redacted view may
// contain it in any encoding.
const seededSecret = "s33ded-s3cret-of-the-v1sible-t3st"

// world is the objects and permissions in the cluster, which change at random.
type world struct {
	t       *testing.T
	random  *rand.Rand
	client  *kubernetes.Clientset
	dynamic dynamic.Interface
}

func newWorld(ctx context.Context, t *testing.T, random *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, random: random}
	var err error
	w.client, err = kubernetes.NewForConfig(bed.Kube.AdminConfig())
	must(t, err)
	w.dynamic, err = dynamic.NewForConfig(bed.Kube.AdminConfig())
	must(t, err)
	w.define(ctx)
	for _, namespace := range namespaces {
		_, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"half": half(namespace)}}}, metav1.CreateOptions{})
		must(t, err)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err = w.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		must(t, err)
		for _, name := range objectNames {
			w.fill(ctx, namespace, name)
		}
	}
	return w
}

// half returns the value of a label that splits all objects in halves.
func half(name string) string { return []string{"left", "right"}[len(name)%2] }

// define creates the custom resource definition.
func (w *world) define(ctx context.Context) {
	w.t.Helper()
	var definition map[string]any
	must(w.t, yaml.Unmarshal(widgetsYAML, &definition))
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err := w.dynamic.Resource(gvr).Create(ctx, &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{})
	must(w.t, err)
	must(w.t, testbed.Poll(ctx, time.Minute, func() error {
		_, err := w.dynamic.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	}))
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// fill creates an object of each kind.
func (w *world) fill(ctx context.Context, namespace, name string) {
	w.t.Helper()
	labels := map[string]string{"half": half(namespace + name)}
	m := metav1.ObjectMeta{Name: name, Labels: labels}
	_, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"a": strings.Repeat(namespace, 100)}}, metav1.CreateOptions{})
	must(w.t, err)
	seeded := m
	seeded.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"a":"` + base64.StdEncoding.EncodeToString([]byte(seededSecret)) + `"}}`}
	secret := &corev1.Secret{ObjectMeta: seeded, Data: map[string][]byte{"a": []byte(seededSecret), "b": []byte("." + seededSecret), "c": []byte(".." + seededSecret)}}
	_, err = w.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	must(w.t, err)
	pod := &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "registry.example.com/app:1", Env: []corev1.EnvVar{{Name: "A", Value: seededSecret}},
	}}}}
	_, err = w.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(w.t, err)
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	widget.SetName(name)
	widget.SetLabels(labels)
	_, err = w.dynamic.Resource(widgets).Namespace(namespace).Create(ctx, widget, metav1.CreateOptions{})
	must(w.t, err)
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// some returns one or more random items.
func some[T any](random *rand.Rand, from []T) (chosen []T) {
	for len(chosen) == 0 {
		for _, item := range from {
			if random.IntN(3) == 0 {
				chosen = append(chosen, item)
			}
		}
	}
	return chosen
}

const (
	clusterRoles = 6
	roles        = 2 // per namespace
	bindings     = 3 // per namespace
)

// changeRights changes n roles and bindings at random.
func (w *world) changeRights(ctx context.Context, n int) {
	w.t.Helper()
	for range n {
		switch k := w.random.IntN(20); {
		case k < 11:
			w.changeBinding(ctx, pick(w.random, namespaces), fmt.Sprintf("binding-%d", w.random.IntN(bindings)))
		case k < 14:
			w.changeRole(ctx, pick(w.random, namespaces), fmt.Sprintf("role-%d", w.random.IntN(roles)))
		case k < 18:
			w.changeClusterRole(ctx, w.random.IntN(clusterRoles))
		default:
			w.changeClusterBinding(ctx)
		}
	}
}

// rule returns a random rule, possibly one that does not match any request.
func (w *world) rule() rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{
		Verbs:     some(w.random, []string{"get", "list", "list", "watch", "watch", "create", "*"}),
		APIGroups: some(w.random, []string{"", "", "example.com", "*"}),
		Resources: some(w.random, []string{"configmaps", "secrets", "pods", "widgets", "namespaces", "pods/log", "*"}),
	}
	if w.random.IntN(4) == 0 {
		r.ResourceNames = some(w.random, append(objectNames, namespaces...))
	}
	return r
}

func (w *world) ruleset() (rules []rbacv1.PolicyRule) {
	for range w.random.IntN(3) {
		rules = append(rules, w.rule())
	}
	return rules
}

func (w *world) changeRole(ctx context.Context, namespace, name string) {
	w.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: w.ruleset()}
	of := w.client.RbacV1().Roles(namespace)
	if w.random.IntN(5) == 0 {
		w.gone(of.Delete(ctx, name, metav1.DeleteOptions{}))
		return
	}
	_, err := of.Update(ctx, role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = of.Create(ctx, role, metav1.CreateOptions{})
	}
	must(w.t, err)
}

// changeClusterRole changes a ClusterRole that is aggregated into others, or one that aggregates
// them.
func (w *world) changeClusterRole(ctx context.Context, n int) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("visible-%d", n)}}
	if n < clusterRoles/2 {
		role.Rules, role.Labels = w.ruleset(), map[string]string{"part": half(strings.Repeat("x", w.random.IntN(2)))}
	} else {
		part := metav1.LabelSelector{MatchLabels: map[string]string{"part": half(strings.Repeat("x", w.random.IntN(2)))}}
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{part}}
	}
	of := w.client.RbacV1().ClusterRoles()
	_, err := of.Update(ctx, role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = of.Create(ctx, role, metav1.CreateOptions{})
	}
	must(w.t, err)
}

func (w *world) changeBinding(ctx context.Context, namespace, name string) {
	w.t.Helper()
	of := w.client.RbacV1().RoleBindings(namespace)
	w.gone(of.Delete(ctx, name, metav1.DeleteOptions{}))
	if w.random.IntN(3) == 0 {
		return
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprintf("visible-%d", w.random.IntN(clusterRoles))}
	switch w.random.IntN(4) {
	case 0:
		ref.Kind, ref.Name = "Role", fmt.Sprintf("role-%d", w.random.IntN(roles))
	case 1:
		ref.Name = pick(w.random, []string{"view", "edit", "admin"}) // built-in roles
	}
	_, err := of.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: w.subjects()}, metav1.CreateOptions{})
	must(w.t, err)
}

// changeClusterBinding creates or deletes a ClusterRoleBinding. A user that has one sees whole
// lists, or Namespaces by their names.
func (w *world) changeClusterBinding(ctx context.Context) {
	w.t.Helper()
	const name = "visible"
	of := w.client.RbacV1().ClusterRoleBindings()
	w.gone(of.Delete(ctx, name, metav1.DeleteOptions{}))
	if w.random.IntN(2) == 0 {
		return
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "visible-everywhere"}, Rules: w.ruleset()}
	if w.random.IntN(2) == 0 {
		role.Rules = []rbacv1.PolicyRule{{Verbs: some(w.random, []string{"get", "watch"}), APIGroups: []string{""}, Resources: []string{"namespaces"}}}
		if w.random.IntN(2) == 0 {
			role.Rules[0].ResourceNames = some(w.random, namespaces)
		}
	}
	_, err := w.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	}
	must(w.t, err)
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	_, err = of.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: w.subjects()[:1]}, metav1.CreateOptions{})
	must(w.t, err)
}

func (w *world) subjects() []rbacv1.Subject {
	return some(w.random, []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ann"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "cat"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-a"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-b"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "nobodies"},
		{Kind: rbacv1.ServiceAccountKind, Name: "eve", Namespace: "v-a"},
	})
}

func (w *world) gone(err error) {
	w.t.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}
