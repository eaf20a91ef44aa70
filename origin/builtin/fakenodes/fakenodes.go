// Package fakenodes adds nodes without machines, so that Deployments have Pods that are Running. Their
// Pods have statuses like real ones, but no containers: there is nothing in their logs, and nothing
// can be executed in them. Pods of Jobs succeed at once.
package fakenodes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/kubeweir/kubeweir/internal/contain"
)

const (
	// prefix begins the names of the nodes: fake-node-0, fake-node-1 and so on.
	prefix = "fake-node-"
	// userAgent is the user agent of the client, and the field manager of its writes.
	userAgent = "kubeweir-fake-nodes"
	// leasePeriod is how often a kubelet renews the lease of its node, leaseSeconds how long it lasts.
	leasePeriod  = 10 * time.Second
	leaseSeconds = 40
	// registerPause is the time between two attempts to register a node.
	registerPause = time.Second
	// workers is how many Pods change at a time.
	workers = 8
	// address is that of all nodes.
	address = "127.0.0.1"
)

// Nodes are the fake nodes. They run once.
type Nodes struct {
	n       int
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	pods    corelisters.PodLister
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	panics  *contain.Panics
	kubelet *kubelet
}

// New returns n nodes. config must be the configuration of a client that may do everything. It opens
// the port of their kubelet; Close closes it.
func New(config *rest.Config, n int, panics *contain.Panics) (*Nodes, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	kubelet, err := newKubelet()
	if err != nil {
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	f := &Nodes{
		n: n, client: client, panics: panics, kubelet: kubelet,
		factory: informers.NewSharedInformerFactory(client, 0),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	pods := f.factory.Core().V1().Pods()
	f.pods = pods.Lister()
	add := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && strings.HasPrefix(pod.Spec.NodeName, prefix) {
			f.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	}); err != nil {
		f.Close()
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	return f, nil
}

// Close closes the port of the kubelet.
func (f *Nodes) Close() { f.kubelet.close() }

// Run registers the nodes and simulates their Pods until ctx ends. The error is always nil.
func (f *Nodes) Run(ctx context.Context) error {
	for i := range f.n {
		for f.register(ctx, prefix+fmt.Sprint(i)) != nil {
			select {
			case <-time.After(registerPause):
			case <-ctx.Done():
				return nil
			}
		}
	}
	f.factory.Start(ctx.Done())
	defer f.factory.Shutdown()
	f.factory.WaitForCacheSync(ctx.Done())

	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for f.processNext(ctx) {
			}
		})
	}
	tick := time.NewTicker(leasePeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			for i := range f.n {
				f.maintain(ctx, prefix+fmt.Sprint(i))
			}
		case <-ctx.Done():
		}
	}
	f.queue.ShutDown()
	running.Wait()
	return nil
}

// register creates a node, or updates one of an earlier run.
func (f *Nodes) register(ctx context.Context, name string) error {
	nodes := f.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
		Annotations: map[string]string{"kubeweir.io/simulated": "true"},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: size, Allocatable: size,
		// Without a host name, which the API server would resolve to reach the kubelet.
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: f.kubelet.port()}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "kubeweir-simulated", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "none://0",
		},
	}
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "Simulated", Message: "the node is simulated by kubeweir",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return f.renew(ctx, name)
}

// maintain renews the lease of a node, and registers the node again if it was deleted or has no
// status. Errors are ignored: the next call tries again.
func (f *Nodes) maintain(ctx context.Context, name string) {
	node, err := f.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && node.Status.NodeInfo.KubeletVersion == "" {
		_ = f.register(ctx, name)
		return
	}
	_ = f.renew(ctx, name)
}

// renew renews the lease of a node, which tells the controller nodelifecycle that it is alive.
func (f *Nodes) renew(ctx context.Context, node string) error {
	leases, now := f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), metav1.NowMicro()
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &node, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now,
		}}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// processNext simulates the next Pod of the queue. It returns false at the queue's end.
func (f *Nodes) processNext(ctx context.Context) bool {
	name, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	defer f.queue.Done(name)
	err := f.panics.Func("fake nodes", func() error { return f.simulate(ctx, name) })()
	if err != nil && ctx.Err() == nil {
		f.queue.AddRateLimited(name)
		return true
	}
	f.queue.Forget(name)
	return true
}

// simulate does what a kubelet does with the Pod.
func (f *Nodes) simulate(ctx context.Context, name cache.ObjectName) error {
	pod, err := f.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return nil // it is deleted
	}
	pods := f.client.CoreV1().Pods(name.Namespace)
	if pod.DeletionTimestamp != nil {
		err := pods.Delete(ctx, name.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	pod = pod.DeepCopy()
	switch {
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		markRunning(pod)
	case pod.Status.Phase == corev1.PodRunning && ofJob(pod):
		markSucceeded(pod)
	case pod.Status.Phase == corev1.PodRunning && setReady(pod):
	default:
		return nil
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
