package bootstrap

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// clusterPolicy reconciles the cluster roles and bindings of kube-apiserver's policy: it adds
// missing rules, keeps added ones, and does not change objects with the annotation
// rbac.authorization.kubernetes.io/autoupdate=false (pkg/registry/rbac/rest/storage_rbac.go).
func (b *bootstrapper) clusterPolicy() []task {
	v1, known := b.Client.RbacV1(), b.Informers.Rbac().V1()
	var tasks []task
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		wanted := reconciliation.ClusterRoleRuleOwner{ClusterRole: &role}
		if have, err := known.ClusterRoles().Lister().Get(role.Name); err == nil && sameRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: have}, wanted) {
			continue
		}
		tasks = append(tasks, reconcileRole("ClusterRole "+role.Name, wanted, reconciliation.ClusterRoleModifier{Client: v1.ClusterRoles()}))
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		wanted := reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding}
		if have, err := known.ClusterRoleBindings().Lister().Get(binding.Name); err == nil && sameBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: have}, wanted) {
			continue
		}
		tasks = append(tasks, reconcileBinding("ClusterRoleBinding "+binding.Name, wanted, reconciliation.ClusterRoleBindingClientAdapter{Client: v1.ClusterRoleBindings()}))
	}
	return tasks
}

// namespacePolicy does the same for roles and bindings in namespaces.
func (b *bootstrapper) namespacePolicy() []task {
	v1, namespaces, known := b.Client.RbacV1(), b.Client.CoreV1().Namespaces(), b.Informers.Rbac().V1()
	var tasks []task
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			wanted := reconciliation.RoleRuleOwner{Role: &role}
			if have, err := known.Roles().Lister().Roles(namespace).Get(role.Name); err == nil && sameRole(reconciliation.RoleRuleOwner{Role: have}, wanted) {
				continue
			}
			tasks = append(tasks, reconcileRole("Role "+namespace+"/"+role.Name, wanted, reconciliation.RoleModifier{Client: v1, NamespaceClient: namespaces}))
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			wanted := reconciliation.RoleBindingAdapter{RoleBinding: &binding}
			if have, err := known.RoleBindings().Lister().RoleBindings(namespace).Get(binding.Name); err == nil && sameBinding(reconciliation.RoleBindingAdapter{RoleBinding: have}, wanted) {
				continue
			}
			tasks = append(tasks, reconcileBinding("RoleBinding "+namespace+"/"+binding.Name, wanted, reconciliation.RoleBindingClientAdapter{Client: v1, NamespaceClient: namespaces}))
		}
	}
	return tasks
}

// sameRole reports whether a role needs no reconciliation, which is true of most roles on most
// starts: reconciling one means a request and a comparison of each rule with all others.
func sameRole(have, wanted reconciliation.RuleOwner) bool {
	return maps.Equal(have.GetLabels(), wanted.GetLabels()) && maps.Equal(have.GetAnnotations(), wanted.GetAnnotations()) &&
		equality.Semantic.DeepEqual(have.GetRules(), wanted.GetRules()) &&
		equality.Semantic.DeepEqual(have.GetAggregationRule(), wanted.GetAggregationRule())
}

// sameBinding is sameRole for bindings.
func sameBinding(have, wanted reconciliation.RoleBinding) bool {
	return maps.Equal(have.GetLabels(), wanted.GetLabels()) && maps.Equal(have.GetAnnotations(), wanted.GetAnnotations()) &&
		have.GetRoleRef() == wanted.GetRoleRef() && equality.Semantic.DeepEqual(have.GetSubjects(), wanted.GetSubjects())
}

func reconcileRole(name string, role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) task {
	return task{name, func(context.Context) error {
		_, err := (&reconciliation.ReconcileRoleOptions{Role: role, Confirm: true, Client: client}).Run()
		return err
	}}
}

func reconcileBinding(name string, binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) task {
	return task{name, func(context.Context) error {
		_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Confirm: true, Client: client}).Run()
		return err
	}}
}
