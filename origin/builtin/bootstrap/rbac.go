package bootstrap

import (
	"context"
	"maps"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	// Worked out when a role has to be created, which on most starts none has.
	aggregated := sync.OnceValue(func() map[string][]rbacv1.PolicyRule {
		return aggregateAll(append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...))
	})
	var tasks []task
	for i := range roles {
		role := reconciliation.ClusterRoleRuleOwner{ClusterRole: &roles[i]}
		tasks = append(tasks, reconcileRole("ClusterRole", role, func() []rbacv1.PolicyRule { return aggregated()[roles[i].Name] },
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
			tasks = append(tasks, reconcileRole("Role", reconciliation.RoleRuleOwner{Role: roles[i].DeepCopy()}, noRules,
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

func noRules() []rbacv1.PolicyRule { return nil }

// reconcileRole makes a role what the policy says. If it has to be created it is
// given the rules, besides its own, from the start.
func reconcileRole[T runtime.Object](kind string, role reconciliation.RuleOwner, rules func() []rbacv1.PolicyRule, s *stored[T], owner func(T) reconciliation.RuleOwner) task {
	return task{named(kind, role.GetNamespace(), role.GetName()), func(ctx context.Context) error {
		s.ctx = ctx
		client := roles[T]{s, owner, rules}
		if existing, err := client.Get(role.GetNamespace(), role.GetName()); err == nil && untouched(existing, role) {
			return nil
		}
		o := reconciliation.ReconcileRoleOptions{Role: role, Confirm: true, Client: client}
		_, err := o.Run()
		return err
	}}
}

// untouched tells of most roles on most starts that nothing is to be done, more
// cheaply than the reconciliation, which asks of each rule what covers it.
func untouched(existing, wanted reconciliation.RuleOwner) bool {
	return maps.Equal(existing.GetLabels(), wanted.GetLabels()) && maps.Equal(existing.GetAnnotations(), wanted.GetAnnotations()) &&
		equality.Semantic.DeepEqual(existing.GetRules(), wanted.GetRules()) &&
		equality.Semantic.DeepEqual(existing.GetAggregationRule(), wanted.GetAggregationRule())
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
	rules func() []rbacv1.PolicyRule
}

func (r roles[T]) Get(_, name string) (reconciliation.RuleOwner, error) {
	return through(r.owner)(r.get(name))
}

func (r roles[T]) Create(in reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	if rules := r.rules(); len(rules) > 0 {
		in = in.DeepCopyRuleOwner()
		in.SetRules(append(in.GetRules(), rules...))
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
