package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericapiserver "k8s.io/apiserver/pkg/server"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	ipallocatorcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	portallocatorcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
	"k8s.io/kubernetes/pkg/util/async"
)

// repairInterval is how often cluster IPs and node ports are compared with the
// services that hold them (pkg/controlplane, repairLoopInterval).
const repairInterval = 3 * time.Minute

// allocators hand out cluster IPs, which are IPAddress objects in the ranges of the
// ServiceCIDR objects, and node ports, which are bits in one object of the store.
type allocators struct {
	cfg       Config
	log       *slog.Logger
	families  []ipallocator.Interface // in the order of cfg.ServiceCIDRs
	ranges    sync.Once               // the wait for the first
	nodePorts *portallocator.PortAllocator
	ports     *portRegistry
}

func newAllocators(cfg Config, log *slog.Logger) (*allocators, error) {
	a := &allocators{cfg: cfg, log: log}
	var err error
	a.nodePorts, err = portallocator.New(cfg.NodePorts, func(size int, spec string, offset int) (allocator.Interface, error) {
		a.ports, err = newPortRegistry(cfg.RESTOptions, allocator.NewAllocationMapWithOffset(size, spec, offset))
		return a.ports, err
	})
	if err != nil {
		return nil, fmt.Errorf("node ports: %w", err)
	}
	for _, cidr := range cfg.ServiceCIDRs {
		family, err := ipallocator.NewMetaAllocator(
			cfg.Client.NetworkingV1(),
			cfg.Informers.Networking().V1().ServiceCIDRs(),
			cfg.Informers.Networking().V1().IPAddresses(),
			cidr.Addr().Is6(),
			nil, // no bitmap beside the objects: DisableAllocatorDualWrite is the default
		)
		if err != nil {
			return nil, fmt.Errorf("cluster IPs: %w", err)
		}
		a.families = append(a.families, family)
	}
	return a, nil
}

// family returns the family of Services that do not choose one.
func (a *allocators) family() api.IPFamily { return a.families[0].IPFamily() }

func (a *allocators) clusterIPs() map[api.IPFamily]ipallocator.Interface {
	out := make(map[api.IPFamily]ipallocator.Interface)
	for _, family := range a.families {
		out[family.IPFamily()] = family
	}
	return out
}

// destroy ends what the allocators run.
func (a *allocators) destroy() {
	for _, family := range a.families {
		family.Destroy()
	}
	a.ports.Destroy()
}

// addRanges adds the post-start hook that creates the default range of cluster IPs and keeps it.
func (a *allocators) addRanges(s *genericapiserver.GenericAPIServer) error {
	return s.AddPostStartHook("start-kubernetes-service-cidr-controller", func(ctx genericapiserver.PostStartHookContext) error {
		// Without the default range no service gets an IP, so it is not waited for
		// until the controller has read all ranges, which it looks at every 100 ms.
		if err := a.ensureRange(ctx); err != nil {
			a.log.WarnContext(ctx, "The default range of cluster IPs was not created, which is tried again", "error", err)
		}
		var second net.IPNet
		if len(a.cfg.ServiceCIDRs) > 1 {
			second = ipNet(a.cfg.ServiceCIDRs[1])
		}
		go defaultservicecidr.NewController(ipNet(a.cfg.ServiceCIDRs[0]), second, a.cfg.Client).Start(ctx)
		return nil
	})
}

// addRepair adds the post-start hook that keeps the allocations consistent.
func (a *allocators) addRepair(s *genericapiserver.GenericAPIServer) error {
	ips := ipallocatorcontroller.NewRepairIPAddress(repairInterval, a.cfg.Client,
		a.cfg.Informers.Core().V1().Services(),
		a.cfg.Informers.Networking().V1().ServiceCIDRs(),
		a.cfg.Informers.Networking().V1().IPAddresses())
	ports := portallocatorcontroller.NewRepair(repairInterval, a.cfg.Client.CoreV1(), a.cfg.Client.EventsV1(), a.cfg.NodePorts, a.ports)
	return s.AddPostStartHook("start-service-ip-repair-controllers", func(ctx genericapiserver.PostStartHookContext) error {
		return repair(ctx, ips.RunUntil, ports.RunUntil)
	})
}

// ensureRange creates the default range if there is none. Its status and all else is
// the controller's.
func (a *allocators) ensureRange(ctx context.Context) error {
	var cidrs []string
	for _, cidr := range a.cfg.ServiceCIDRs {
		cidrs = append(cidrs, cidr.Masked().String())
	}
	_, err := a.cfg.Client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: defaultservicecidr.DefaultServiceCIDRName},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// repair runs loops until ctx ends and returns when each has succeeded once.
func repair(ctx context.Context, loops ...func(onFirstSuccess func(), stop chan struct{})) error {
	first := make(chan struct{}, len(loops))
	run := make([]func(chan struct{}), len(loops))
	for i, loop := range loops {
		run[i] = func(stop chan struct{}) { loop(func() { first <- struct{}{} }, stop) }
	}
	runner := async.NewRunner(run...)
	runner.Start()
	go func() {
		<-ctx.Done()
		runner.Stop()
	}()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for range loops {
		select {
		case <-first:
		case <-ctx.Done():
			return nil
		case <-timeout.C:
			return errors.New("unable to perform initial IP and Port allocation check")
		}
	}
	return nil
}

// DefaultNodePorts is kube-apiserver's range of node ports.
func DefaultNodePorts() utilnet.PortRange { return utilnet.PortRange{Base: 30000, Size: 2768} }
