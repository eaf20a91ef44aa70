package access

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// live reads the objects that a token is bound to from the server when they are needed.
type live struct{ client kubernetes.Interface }

func (l live) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return l.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (l live) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (l live) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return l.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (l live) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (l live) GetValidatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return l.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

func (l live) GetMutatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return l.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

// lookupTimeout bounds reads by callers who bring no context of their own.
const lookupTimeout = 5 * time.Second

// secrets lists kube-system's for bootstrap tokens, without an informer of all
// secrets.
type secrets struct{ client kubernetes.Interface }

var _ corev1listers.SecretNamespaceLister = secrets{}

func (s secrets) Get(name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	return s.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
}

func (s secrets) List(selector labels.Selector) ([]*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, err := s.client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.Secret, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
