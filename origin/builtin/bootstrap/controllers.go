package bootstrap

import (
	"context"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/controlplane/controller/kubernetesservice"
	"k8s.io/kubernetes/pkg/controlplane/controller/legacytokentracking"
	"k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

const (
	servicePort = 443
	// serviceInterval is how often the service default/kubernetes and its endpoints are
	// reconciled (pkg/controlplane: DefaultEndpointReconcilerInterval).
	serviceInterval = 10 * time.Second
	// serviceRetry is the delay before the first attempt to create the service is repeated: it
	// fails until the allocator has a range of cluster IPs.
	serviceRetry = 20 * time.Millisecond
	// removalTimeout bounds the removal of the server's own endpoint at its end.
	removalTimeout = 2 * time.Second
)

// controllers returns the controllers that keep bootstrap objects in place, each of which runs
// until its context ends.
func (b *bootstrapper) controllers(ctx context.Context) []func(context.Context) {
	return []func(context.Context){
		func(ctx context.Context) {
			systemnamespaces.NewController(systemNamespaces, b.Client, b.Informers.Core().V1().Namespaces()).Run(ctx.Done())
		},
		func(ctx context.Context) {
			clusterroleaggregation.NewClusterRoleAggregation(b.Informers.Rbac().V1().ClusterRoles(), b.Client.RbacV1()).Run(ctx, 1)
		},
		func(ctx context.Context) {
			clusterauthenticationtrust.NewClusterAuthenticationTrustController(b.Authentication, b.Client).Run(ctx, 1)
		},
		legacytokentracking.NewController(b.Client).RunWithContext,
		b.keepService,
	}
}

// keepService creates the service default/kubernetes and reconciles its endpoints until ctx ends.
// Then it removes the server's own endpoint. It does not use the controller's own loop, which waits
// 10 s after a failure.
func (b *bootstrapper) keepService(ctx context.Context) {
	if !cache.WaitFor(ctx, "", b.Informers.Core().V1().Services().Informer().HasSyncedChecker()) {
		return
	}
	ip := b.publicIP()
	controller := kubernetesservice.New(kubernetesservice.Config{
		PublicIP:           ip,
		PublicServicePort:  int(b.AdvertiseAddress.Port()),
		EndpointReconciler: b.endpoints(context.WithoutCancel(ctx), ip),
		EndpointInterval:   removalTimeout / 2, // Stop waits twice as long
		ServiceIP:          b.ServiceIP.AsSlice(),
		ServicePort:        servicePort,
	}, b.Client, b.Informers.Core().V1().Services())
	defer controller.Stop()
	_ = wait.PollUntilContextCancel(ctx, serviceRetry, true, func(context.Context) (bool, error) {
		// The port may be another one than before.
		return controller.UpdateKubernetesService(true) == nil, nil
	})
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := controller.UpdateKubernetesService(false); err != nil && ctx.Err() == nil {
			b.Logger.WarnContext(ctx, "service default/kubernetes could not be reconciled", "error", err)
		}
	}, serviceInterval)
}

// publicIP returns the address of the server's endpoint.
func (b *bootstrapper) publicIP() net.IP {
	ip := net.IP(b.AdvertiseAddress.Addr().AsSlice())
	if resolved, err := utilnet.ResolveBindAddress(ip); err == nil { // else the machine has no address
		return resolved
	}
	return ip
}

// endpoints returns the reconciler of the service's endpoints, which does nothing if the API does
// not permit the address.
func (b *bootstrapper) endpoints(ctx context.Context, ip net.IP) reconcilers.EndpointReconciler {
	adapter := reconcilers.NewEndpointsAdapter(b.Client.CoreV1(), b.Client.DiscoveryV1())
	reconciler := reconcilers.NewMasterCountEndpointReconciler(1, adapter)
	if b.SharedStore {
		reconciler = reconcilers.NewLeaseEndpointReconciler(adapter, newLeases(ctx, b.Client.CoordinationV1().Leases(metav1.NamespaceSystem)))
	}
	if b.NoEndpoints || reconciler.ValidateIP(ip) != nil {
		return reconcilers.NewNoneEndpointReconciler()
	}
	return reconciler
}
