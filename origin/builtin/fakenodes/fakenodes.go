// Package fakenodes adds nodes without machines, so that Deployments have Pods that are Running. Their
// Pods have statuses like real ones, but no containers: there is nothing in their logs, and nothing
// can be executed in them. Pods of Jobs succeed at once.
package fakenodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycoordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	nodeutil "k8s.io/component-helpers/node/util"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
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
	// retryPause replaces leasePeriod after an error.
	retryPause = time.Second
	// errorLogPeriod is the shortest interval between two log lines for errors of nodes, or of Pods.
	errorLogPeriod = 10 * time.Second
	// workers is how many Pods change at a time, and how many nodes.
	workers = 8
	// ownAnnotation marks the nodes that were created here. Other nodes and their Pods are not changed.
	ownAnnotation = "kubeweir.io/simulated"
	// address is the InternalIP of all nodes, where their kubelet listens.
	address = "127.0.0.1"
)

// errNewNode is the error of a Pod whose node the informer does not have: it may be new.
var errNewNode = errors.New("the node of the Pod is not known")

// Nodes are the fake nodes. They run once.
type Nodes struct {
	n       int
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	nodes   corelisters.NodeLister
	pods    corelisters.PodLister
	synced  []cache.InformerSynced
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	panics  *contain.Panics
	log     *slog.Logger
	kubelet *kubelet
	foreign sync.Map // names of nodes that somebody else has created
	ips     addresses
	logs    struct{ nodes, pods rate.Sometimes }
}

// New returns n nodes, at most maxNodes. config must be the configuration of a client that may do
// everything. It opens the port of their kubelet; Close closes it.
func New(config *rest.Config, n int, panics *contain.Panics, log *slog.Logger) (*Nodes, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	return newNodes(client, n, panics, log)
}

func newNodes(client kubernetes.Interface, n int, panics *contain.Panics, log *slog.Logger) (*Nodes, error) {
	kubelet, err := newKubelet()
	if err != nil {
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	f := &Nodes{
		n: n, client: client, panics: panics, log: log, kubelet: kubelet,
		factory: informers.NewSharedInformerFactory(client, 0),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	f.logs.nodes.Interval, f.logs.pods.Interval = errorLogPeriod, errorLogPeriod
	f.ips = addresses{hasEnded: f.hasEnded, holders: make(map[netip.Addr][]holder)}
	nodes, pods := f.factory.Core().V1().Nodes(), f.factory.Core().V1().Pods()
	f.nodes, f.pods = nodes.Lister(), pods.Lister()
	add := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && nodeIndex(pod.Spec.NodeName) >= 0 {
			f.ips.hold(pod)
			f.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	handler, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("fake nodes: %w", err)
	}
	f.synced = []cache.InformerSynced{nodes.Informer().HasSynced, handler.HasSynced}
	return f, nil
}

// Close closes the port of the kubelet and the queue.
func (f *Nodes) Close() {
	f.kubelet.close()
	f.queue.ShutDown()
}

// Run registers the nodes and simulates their Pods until ctx ends. The error is always nil.
func (f *Nodes) Run(ctx context.Context) error {
	f.factory.Start(ctx.Done())
	defer f.factory.Shutdown()
	cache.WaitForCacheSync(ctx.Done(), f.synced...)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for f.processNext(ctx) {
			}
		})
	}
	for ctx.Err() == nil {
		pause := leasePeriod
		if !f.maintainAll(ctx) {
			pause = retryPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	f.queue.ShutDown()
	running.Wait()
	return nil
}

// maintainAll maintains all nodes and reports whether nothing failed.
func (f *Nodes) maintainAll(ctx context.Context) bool {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range f.n {
		name := prefix + strconv.Itoa(i)
		maintain := f.panics.Func("background", func() error { return f.maintain(ctx, name) })
		group.Go(func() error {
			err := maintain()
			if isFailure(ctx, err) {
				f.logs.nodes.Do(func() { f.log.Warn("simulating a node failed", "node", name, "error", err) })
			}
			return err
		})
	}
	return group.Wait() == nil
}

// maintain creates a node if there is none, writes its status if that is not up to date, and renews its
// lease, which tells the controller nodelifecycle that it is alive.
func (f *Nodes) maintain(ctx context.Context, name string) error {
	nodes := f.client.CoreV1().Nodes()
	node, err := f.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
			Annotations: map[string]string{ownAnnotation: "true"},
		}}, metav1.CreateOptions{FieldManager: userAgent})
	}
	if err != nil {
		return err
	}
	if !isOwn(node) {
		if _, logged := f.foreign.LoadOrStore(name, true); !logged {
			f.log.Error("fake node not added: a node of this name exists, without the annotation "+ownAnnotation, "node", name)
		}
		return nil
	}
	apply := metav1.ApplyOptions{FieldManager: userAgent, Force: true}
	if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready == nil || ready.Status != corev1.ConditionTrue ||
		node.Status.DaemonEndpoints.KubeletEndpoint.Port != f.kubelet.port() {
		if _, err := nodes.ApplyStatus(ctx, applycorev1.Node(name).WithStatus(f.status(node)), apply); err != nil {
			return err
		}
	}
	lease := applycoordinationv1.Lease(name, corev1.NamespaceNodeLease).WithSpec(applycoordinationv1.LeaseSpec().
		WithHolderIdentity(name).WithLeaseDurationSeconds(leaseSeconds).WithRenewTime(metav1.NowMicro()))
	_, err = f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Apply(ctx, lease, apply)
	return err
}

// isOwn reports whether a node was created here, now or by an earlier process.
func isOwn(node *corev1.Node) bool { return node.Annotations[ownAnnotation] == "true" }

// status returns the fields that a node's status must have. It leaves others, such as extended resources,
// as they are.
func (f *Nodes) status(node *corev1.Node) *applycorev1.NodeStatusApplyConfiguration {
	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	// Without a host name, which the API server would resolve to reach the kubelet.
	s := applycorev1.NodeStatus().WithCapacity(size).WithAllocatable(size).
		WithAddresses(applycorev1.NodeAddress().WithType(corev1.NodeInternalIP).WithAddress(address)).
		WithDaemonEndpoints(applycorev1.NodeDaemonEndpoints().WithKubeletEndpoint(applycorev1.DaemonEndpoint().WithPort(f.kubelet.port()))).
		WithNodeInfo(applycorev1.NodeSystemInfo().WithKubeletVersion("kubeweir-simulated").WithOperatingSystem("linux").
			WithArchitecture("amd64").WithContainerRuntimeVersion("none://0"))
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		now := metav1.Now()
		since := now
		if _, old := nodeutil.GetNodeCondition(&node.Status, kind); old != nil && old.Status == status {
			since = old.LastTransitionTime
		}
		s.WithConditions(applycorev1.NodeCondition().WithType(kind).WithStatus(status).
			WithReason("Simulated").WithMessage("the node is simulated by kubeweir").
			WithLastHeartbeatTime(now).WithLastTransitionTime(since))
	}
	return s
}

// isFailure reports whether an error is worth a log line. It is not at the end of the process, or if an
// informer has not seen yet what has been changed.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, errNewNode) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err)
}

// processNext simulates the next Pod of the queue. It returns false at the queue's end.
func (f *Nodes) processNext(ctx context.Context) bool {
	name, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	defer f.queue.Done(name)
	err := f.panics.Func("background", func() error { return f.simulate(ctx, name) })()
	if err != nil && ctx.Err() == nil {
		if isFailure(ctx, err) {
			f.logs.pods.Do(func() { f.log.Warn("simulating a Pod failed", "pod", name, "error", err) })
		}
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
	node, err := f.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return errNewNode
	}
	if !isOwn(node) {
		return nil
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
		ip, err := f.ips.allocate(pod)
		if err != nil {
			return err
		}
		markRunning(pod, ip)
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

// hasEnded reports whether a Pod has ended or is deleted.
func (f *Nodes) hasEnded(h holder) bool {
	pod, err := f.pods.Pods(h.name.Namespace).Get(h.name.Name)
	return err != nil || pod.UID != h.uid || podutil.IsPodTerminal(pod)
}
