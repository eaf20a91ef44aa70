package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/legacytokentracking"
)

// namespaces are those that kube-apiserver makes.
func (b *bootstrapper) namespaces() []task {
	var tasks []task
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault} {
		tasks = append(tasks, present(b.Informers.Core().V1().Namespaces().Lister(), b.Client.CoreV1().Namespaces(), "Namespace",
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return tasks
}

// priorityClasses are made if they are missing; the API lets nobody change them in
// a way that matters.
func (b *bootstrapper) priorityClasses() []task {
	var tasks []task
	for _, class := range schedulinghelper.SystemPriorityClasses() {
		tasks = append(tasks, present(b.Informers.Scheduling().V1().PriorityClasses().Lister(), b.Client.SchedulingV1().PriorityClasses(), "PriorityClass", class.DeepCopy()))
	}
	return tasks
}

// tokenTracking says since when uses of tokens in secrets are noted, which
// kube-controller-manager goes by when it cleans them up.
func (b *bootstrapper) tokenTracking() task {
	return b.configMap(legacytokentracking.ConfigMapName, func(data map[string]string) error {
		if _, err := time.Parse(time.DateOnly, data[legacytokentracking.ConfigMapDataKey]); err != nil {
			data[legacytokentracking.ConfigMapDataKey] = time.Now().UTC().Format(time.DateOnly)
		}
		return nil
	})
}

// configMap brings about data in a ConfigMap in kube-system. change is given what is
// there, and called again when somebody else changed that meanwhile.
func (b *bootstrapper) configMap(name string, change func(data map[string]string) error) task {
	maps := b.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return task{named("ConfigMap", metav1.NamespaceSystem, name), func(ctx context.Context) error {
		object, err := maps.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
		}
		before := fmt.Sprint(object.Data) // maps are printed in the order of their keys
		if object.Data == nil {
			object.Data = map[string]string{}
		}
		if err := change(object.Data); err != nil {
			return err
		}
		switch {
		case missing:
			_, err = maps.Create(ctx, object, metav1.CreateOptions{})
		case before != fmt.Sprint(object.Data):
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		}
		return err
	}}
}
