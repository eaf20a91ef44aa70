package e2e

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rights grants and revokes permissions at kube-apiserver itself. It revokes everything when the
// test ends.
type rights struct {
	t      *testing.T
	client *kubernetes.Clientset
}

func newRights(t *testing.T) rights {
	t.Helper()
	typed, _ := directClients(t)
	return rights{t, typed}
}

// readers is a rule to read ConfigMaps and Pods, either all or those with the given names.
func readers(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "pods"},
		Verbs: []string{"get", "list", "watch"}, ResourceNames: names,
	}
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// inNamespace grants a rule in one namespace, by a Role and a RoleBinding with the given name.
func (r rights) inNamespace(ctx context.Context, namespace, name, user string, rule rbacv1.PolicyRule) {
	r.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	_, err := r.client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{})
	must(r.t, err)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{userSubject(user)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}
	_, err = r.client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{})
	must(r.t, err)
	r.t.Cleanup(func() {
		ctx := context.Background()
		r.revoke(ctx, namespace, name)
		r.gone(r.client.RbacV1().Roles(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	})
}

// everywhere grants rules in the whole cluster.
func (r rights) everywhere(ctx context.Context, name, user string, rules ...rbacv1.PolicyRule) {
	r.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	_, err := r.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	must(r.t, err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{userSubject(user)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	_, err = r.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	must(r.t, err)
	r.t.Cleanup(func() {
		ctx := context.Background()
		r.revokeEverywhere(ctx, name)
		r.gone(r.client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
	})
}

// revoke deletes a RoleBinding.
func (r rights) revoke(ctx context.Context, namespace, name string) {
	r.t.Helper()
	r.gone(r.client.RbacV1().RoleBindings(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

// revokeEverywhere deletes a ClusterRoleBinding.
func (r rights) revokeEverywhere(ctx context.Context, name string) {
	r.t.Helper()
	r.gone(r.client.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
}

func (r rights) gone(err error) {
	r.t.Helper()
	if err != nil && !errors.IsNotFound(err) {
		r.t.Error(err)
	}
}
