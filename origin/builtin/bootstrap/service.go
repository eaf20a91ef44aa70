package bootstrap

import (
	"context"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

const (
	// serviceName is that of the service by which pods reach the API.
	serviceName = "kubernetes"
	servicePort = 443
	portName    = "https"

	// serviceInterval is how often the service and its endpoints are looked after
	// (pkg/controlplane: DefaultEndpointReconcilerInterval), upkeepInterval what else
	// is kept in place.
	serviceInterval = 10 * time.Second
	upkeepInterval  = time.Minute
	// quiet is how long failures are no news: the service cannot be made before its
	// range of addresses is known.
	quiet = time.Second
)

// keep looks after what must not go missing, until ctx ends.
func (b *bootstrapper) keep(ctx context.Context) {
	endpoints := b.endpoints(ctx)
	began, upkept, pause, first := time.Now(), time.Now(), firstRetry, true
	if err := b.flowStatus(ctx); err != nil && ctx.Err() == nil {
		b.Logger.DebugContext(ctx, "flow schemas are told of their levels in a minute", "error", err)
	}
	for {
		err := b.service(ctx)
		if err == nil && endpoints != nil {
			err = endpoints.ReconcileEndpoints(serviceName, b.AdvertiseAddress.Addr().AsSlice(), []corev1.EndpointPort{{
				Name: portName, Port: int32(b.AdvertiseAddress.Port()), Protocol: corev1.ProtocolTCP,
			}}, first)
		}
		wait := serviceInterval
		if err != nil {
			if ctx.Err() == nil && time.Since(began) > quiet {
				b.Logger.WarnContext(ctx, "the service default/kubernetes could not be brought up to date", "error", err)
			}
			wait, pause = pause, min(2*pause, serviceInterval)
		} else {
			pause, first = firstRetry, false
		}
		if time.Since(upkept) >= upkeepInterval {
			b.upkeep(ctx)
			upkept = time.Now()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// upkeep makes again what kube-apiserver makes again when it is gone.
func (b *bootstrapper) upkeep(ctx context.Context) {
	tasks, err := b.flowcontrol(ctx)
	if err == nil {
		err = perform(ctx, append(append(b.namespaces(), tasks...), b.extensionAuthentication()))
	}
	if err == nil {
		err = b.flowStatus(ctx)
	}
	if err != nil && ctx.Err() == nil {
		b.Logger.WarnContext(ctx, "system objects could not be brought up to date", "error", err)
	}
}

// service makes the service if it is missing. One that is there is let alone, as
// kube-apiserver does it, and nobody is asked for one that is known to be there: a
// request would be all that an idle server does.
func (b *bootstrapper) service(ctx context.Context) error {
	known := b.Informers.Core().V1().Services().Lister().Services(metav1.NamespaceDefault)
	if _, err := known.Get(serviceName); err == nil {
		return nil
	}
	services := b.Client.CoreV1().Services(metav1.NamespaceDefault)
	_, err := services.Get(ctx, serviceName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	policy := corev1.IPFamilyPolicySingleStack
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: serviceName,
			Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: b.ServiceIP.String(), IPFamilyPolicy: &policy,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort,
				TargetPort: intstr.FromInt32(int32(b.AdvertiseAddress.Port())),
			}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// endpoints returns what keeps the service's endpoints, nil if the API would not
// permit the address.
func (b *bootstrapper) endpoints(ctx context.Context) reconcilers.EndpointReconciler {
	ip := net.IP(b.AdvertiseAddress.Addr().AsSlice())
	if !ip.IsGlobalUnicast() {
		return nil
	}
	return reconcilers.NewLeaseEndpointReconciler(
		reconcilers.NewEndpointsAdapter(b.Client.CoreV1(), b.Client.DiscoveryV1()),
		newLeases(ctx, b.Client.CoordinationV1().Leases(metav1.NamespaceSystem)))
}
