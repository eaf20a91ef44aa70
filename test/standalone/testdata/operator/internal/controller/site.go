// Package controller has the operator's reconciler.
package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "example.com/controller/api/v1"
)

// SiteReconciler runs a Deployment for each Site.
type SiteReconciler struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *SiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site v1.Site
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"site": site.Name}
		deployment.Spec.Replicas = site.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web"}}
		}
		deployment.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
		return controllerutil.SetControllerReference(&site, deployment, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	if site.Status.ReadyReplicas == deployment.Status.ReadyReplicas {
		return ctrl.Result{}, nil
	}
	site.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	return ctrl.Result{}, r.Status().Update(ctx, &site)
}

// SetupWithManager adds the controller to a manager.
func (r *SiteReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&v1.Site{}).Owns(&appsv1.Deployment{}).Complete(r)
}
