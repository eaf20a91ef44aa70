package admit

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// leanFactory gives out informers of pods and nodes that hold nothing: their
// listers ask the server. Admission looks up one node when a pod is bound or
// changed, and the pods of a namespace when its security level is raised; an
// informer would keep all of them, a second time in memory.
//
// Such a lister reads the current state. The state of an informer is slightly older.
type leanFactory struct {
	informers.SharedInformerFactory
	client kubernetes.Interface
}

func (f leanFactory) Core() core.Interface {
	return leanCore{f.SharedInformerFactory.Core(), f.client}
}

type leanCore struct {
	core.Interface
	client kubernetes.Interface
}

func (c leanCore) V1() corev1informers.Interface {
	return leanCoreV1{c.Interface.V1(), c.client}
}

type leanCoreV1 struct {
	corev1informers.Interface
	client kubernetes.Interface
}

func (c leanCoreV1) Pods() corev1informers.TypedPodInformer {
	return corev1informers.ToTypedPodInformer(podInformer{c.client})
}

func (c leanCoreV1) Nodes() corev1informers.TypedNodeInformer {
	return corev1informers.ToTypedNodeInformer(nodeInformer{c.client})
}

type podInformer struct{ client kubernetes.Interface }

func (i podInformer) Informer() cache.SharedIndexInformer { return neverRuns(&corev1.Pod{}) }
func (i podInformer) Lister() corev1listers.PodLister     { return pods{i.client, metav1.NamespaceAll} }

type nodeInformer struct{ client kubernetes.Interface }

func (i nodeInformer) Informer() cache.SharedIndexInformer { return neverRuns(&corev1.Node{}) }
func (i nodeInformer) Lister() corev1listers.NodeLister    { return nodes(i) }

// synced is an informer that never runs: it has synced, holds nothing and calls no handler.
type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool                     { return true }
func (synced) HasSyncedChecker() cache.DoneChecker { return done{} }

type done struct{}

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func (done) Name() string          { return "nothing to wait for" }
func (done) Done() <-chan struct{} { return closed }

func neverRuns(example runtime.Object) cache.SharedIndexInformer {
	return synced{cache.NewSharedIndexInformer(&cache.ListWatch{}, example, 0, cache.Indexers{})}
}

// lookupTimeout bounds one read: listers are called without a context.
const lookupTimeout = 5 * time.Second

func lookup() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), lookupTimeout)
}

type nodes struct{ client kubernetes.Interface }

func (n nodes) Get(name string) (*corev1.Node, error) {
	ctx, cancel := lookup()
	defer cancel()
	return n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (n nodes) List(selector labels.Selector) ([]*corev1.Node, error) {
	ctx, cancel := lookup()
	defer cancel()
	list, err := n.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// pods lists and gets those of one namespace or of all.
type pods struct {
	client    kubernetes.Interface
	namespace string
}

func (p pods) Pods(namespace string) corev1listers.PodNamespaceLister {
	return pods{p.client, namespace}
}

func (p pods) Get(name string) (*corev1.Pod, error) {
	ctx, cancel := lookup()
	defer cancel()
	return p.client.CoreV1().Pods(p.namespace).Get(ctx, name, metav1.GetOptions{})
}

func (p pods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	ctx, cancel := lookup()
	defer cancel()
	list, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
