package server

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// resolveTimeout bounds the reads of one resolution.
const resolveTimeout = 5 * time.Second

// A resolver finds where webhooks and aggregated API servers that are named as
// services listen: at one of the service's ready endpoints, since nothing here routes
// cluster IPs. It asks the store each time instead of keeping all services and
// endpoints in memory.
type resolver struct {
	client kubernetes.Interface
	// self is the server's own address, for the service default/kubernetes.
	self netip.AddrPort
}

// ResolveEndpoint implements webhook.ServiceResolver.
func (r resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if namespace == metav1.NamespaceDefault && name == "kubernetes" {
		return &url.URL{Scheme: "https", Host: r.self.String()}, nil
	}
	service, err := r.Services(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port)))}, nil
	}
	return proxy.ResolveEndpoint(r, r, namespace, name, port)
}

// GetEndpointSlices implements proxy.EndpointSliceGetter.
func (r resolver) GetEndpointSlices(namespace, name string) ([]*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	list, err := r.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: name}.String(),
	})
	if err != nil {
		return nil, err
	}
	slices := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		slices[i] = &list.Items[i]
	}
	return slices, nil
}

// Services and List implement corelisters.ServiceLister.
func (r resolver) Services(namespace string) corelisters.ServiceNamespaceLister {
	return services{r.client, namespace}
}

// List returns the services of all namespaces.
func (r resolver) List(selector labels.Selector) ([]*corev1.Service, error) {
	return r.Services(metav1.NamespaceAll).List(selector)
}

type services struct {
	client    kubernetes.Interface
	namespace string
}

func (s services) Get(name string) (*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return s.client.CoreV1().Services(s.namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s services) List(selector labels.Selector) ([]*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	list, err := s.client.CoreV1().Services(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	found := make([]*corev1.Service, len(list.Items))
	for i := range list.Items {
		found[i] = &list.Items[i]
	}
	return found, nil
}
