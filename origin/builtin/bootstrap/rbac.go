package bootstrap

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// clusterPolicy reconciles the cluster roles and bindings of kube-apiserver's
// policy: what is missing is added, what somebody added stays, and an object with
// the annotation rbac.authorization.kubernetes.io/autoupdate=false is let alone
// (pkg/registry/rbac/rest/storage_rbac.go).
func (b *bootstrapper) clusterPolicy() []task {
	v1, known := b.Client.RbacV1(), b.Informers.Rbac().V1()
	roles := append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...)
	aggregated := aggregateAll(roles)
	var tasks []task
	for i := range roles {
		role := reconciliation.ClusterRoleRuleOwner{ClusterRole: &roles[i]}
		tasks = append(tasks, reconcileRole("ClusterRole", role, aggregated[roles[i].Name],
			&stored[*rbacv1.ClusterRole]{known: known.ClusterRoles().Lister(), client: v1.ClusterRoles()},
			func(r *rbacv1.ClusterRole) reconciliation.RuleOwner {
				return reconciliation.ClusterRoleRuleOwner{ClusterRole: r}
			}))
	}
	bindings := append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...)
	for i := range bindings {
		binding := reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &bindings[i]}
		tasks = append(tasks, reconcileBinding("ClusterRoleBinding", binding,
			&stored[*rbacv1.ClusterRoleBinding]{known: known.ClusterRoleBindings().Lister(), client: v1.ClusterRoleBindings()},
			func(r *rbacv1.ClusterRoleBinding) reconciliation.RoleBinding {
				return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: r}
			}))
	}
	return tasks
}

// namespacePolicy does the same for roles and bindings in namespaces.
func (b *bootstrapper) namespacePolicy() []task {
	v1, known := b.Client.RbacV1(), b.Informers.Rbac().V1()
	var tasks []task
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for i := range roles {
			tasks = append(tasks, reconcileRole("Role", reconciliation.RoleRuleOwner{Role: roles[i].DeepCopy()}, nil,
				&stored[*rbacv1.Role]{known: known.Roles().Lister().Roles(namespace), client: v1.Roles(namespace)},
				func(r *rbacv1.Role) reconciliation.RuleOwner { return reconciliation.RoleRuleOwner{Role: r} }))
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for i := range bindings {
			tasks = append(tasks, reconcileBinding("RoleBinding", reconciliation.RoleBindingAdapter{RoleBinding: bindings[i].DeepCopy()},
				&stored[*rbacv1.RoleBinding]{known: known.RoleBindings().Lister().RoleBindings(namespace), client: v1.RoleBindings(namespace)},
				func(r *rbacv1.RoleBinding) reconciliation.RoleBinding {
					return reconciliation.RoleBindingAdapter{RoleBinding: r}
				}))
		}
	}
	return tasks
}

// reconcileRole makes a role what the policy says. If it has to be created it is
// given rules, besides its own, from the start.
func reconcileRole[T runtime.Object](kind string, role reconciliation.RuleOwner, rules []rbacv1.PolicyRule, s *stored[T], owner func(T) reconciliation.RuleOwner) task {
	return task{named(kind, role.GetNamespace(), role.GetName()), func(ctx context.Context) error {
		s.ctx = ctx
		o := reconciliation.ReconcileRoleOptions{Role: role, Confirm: true, Client: roles[T]{s, owner, rules}}
		_, err := o.Run()
		return err
	}}
}

func reconcileBinding[T runtime.Object](kind string, binding reconciliation.RoleBinding, s *stored[T], adapter func(T) reconciliation.RoleBinding) task {
	return task{named(kind, binding.GetNamespace(), binding.GetName()), func(ctx context.Context) error {
		s.ctx = ctx
		o := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Confirm: true, Client: bindings[T]{s, adapter}}
		_, err := o.Run()
		return err
	}}
}

func named(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// roles is a stored role as the library's reconciliation wants it.
type roles[T runtime.Object] struct {
	*stored[T]
	owner func(T) reconciliation.RuleOwner
	rules []rbacv1.PolicyRule
}

func (r roles[T]) Get(_, name string) (reconciliation.RuleOwner, error) {
	return through(r.owner)(r.get(name))
}

func (r roles[T]) Create(in reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	if len(r.rules) > 0 {
		in = in.DeepCopyRuleOwner()
		in.SetRules(append(in.GetRules(), r.rules...))
	}
	return through(r.owner)(r.create(in.GetObject().(T)))
}

func (r roles[T]) Update(in reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return through(r.owner)(r.update(in.GetObject().(T)))
}

// bindings is a stored binding as the library's reconciliation wants it.
type bindings[T runtime.Object] struct {
	*stored[T]
	adapter func(T) reconciliation.RoleBinding
}

func (b bindings[T]) Get(_, name string) (reconciliation.RoleBinding, error) {
	return through(b.adapter)(b.get(name))
}

func (b bindings[T]) Create(in reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return through(b.adapter)(b.create(in.GetObject().(T)))
}

func (b bindings[T]) Update(in reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return through(b.adapter)(b.update(in.GetObject().(T)))
}

func (b bindings[T]) Delete(_, name string, uid types.UID) error {
	return b.delete(name, uid)
}

// through applies a conversion to what a call returned, unless it failed.
func through[T, R any](convert func(T) R) func(T, error) (R, error) {
	return func(object T, err error) (R, error) {
		if err != nil {
			var none R
			return none, err
		}
		return convert(object), nil
	}
}
