package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// path is the path of the objects that the load reads and writes.
const path = "/api/v1/namespaces/" + namespace + "/configmaps"

// load is the load on the gateway, and its results.
type load struct {
	http *http.Client
	base string

	done      chan struct{} // to end readers and writers
	running   sync.WaitGroup
	informing sync.WaitGroup
	stopAll   context.CancelFunc
	informers []*informer

	reads, strict   kind
	backwards       atomic.Int64
	broken          atomic.Int64 // watches of informers
	mu              sync.Mutex
	acknowledged    map[string]bool // by the label of the write
	unknown, failed map[string]string
	pauses          map[string]time.Duration // the longest of each kind, since begin
}

// kind counts the results of one kind of read.
type kind struct{ good, bad atomic.Int64 }

type informer struct {
	store  cache.Store
	synced cache.InformerSynced
}

func startLoad(ctx context.Context, t *testing.T, g *realkube.Gateway) *load {
	t.Helper()
	l := &load{base: g.URL(), done: make(chan struct{}), acknowledged: map[string]bool{}, unknown: map[string]string{}, failed: map[string]string{}, pauses: map[string]time.Duration{}}
	var err error
	l.http, err = rest.HTTPClientFor(g.AdminConfig())
	must(t, err)
	watching, stop := context.WithCancel(ctx)
	l.stopAll = stop
	for range informersCount {
		l.informers = append(l.informers, l.inform(watching, t, g))
	}
	for _, i := range l.informers {
		if !cache.WaitForCacheSync(ctx.Done(), i.synced) {
			t.Fatal("an informer did not sync")
		}
	}
	l.broken.Store(0)
	for range readers {
		l.running.Go(func() { l.read(t, "cached", "&resourceVersion=0", &l.reads) })
		l.running.Go(func() { l.read(t, "most recent", "", &l.strict) })
	}
	for w := range writers {
		l.running.Go(func() { l.write(w) })
	}
	return l
}

// inform starts an informer with its own connection that checks that versions increase.
func (l *load) inform(ctx context.Context, t *testing.T, g *realkube.Gateway) *informer {
	t.Helper()
	client, err := kubernetes.NewForConfig(g.AdminConfig())
	must(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	i := factory.Core().V1().ConfigMaps().Informer()
	must(t, i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && err != io.EOF { //nolint:errorlint // a watch that timed out
			l.broken.Add(1)
			t.Logf("an informer's watch failed: %v", err)
		}
	}))
	var last uint64 // handlers are called sequentially
	check := func(o any) {
		if deleted, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = deleted.Obj
		}
		l.forward(&last, o.(*corev1.ConfigMap).ResourceVersion)
	}
	_, err = i.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial {
				check(o)
			}
		},
		UpdateFunc: func(_, o any) { check(o) }, DeleteFunc: check,
	})
	must(t, err)
	l.informing.Go(func() { i.RunWithContext(ctx) })
	return &informer{i.GetStore(), i.HasSynced}
}

// forward counts versions that are lower than an earlier one.
func (l *load) forward(last *uint64, version string) {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil || v < *last {
		l.backwards.Add(1)
	}
	*last = max(*last, v)
}

func (l *load) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// read lists one object in a loop and checks that versions do not decrease.
func (l *load) read(t *testing.T, name, query string, k *kind) {
	var last uint64
	for !l.over() {
		began := time.Now()
		code, body, err := l.do("GET", path+"?labelSelector=write%3Dw0-0"+query, nil)
		var list metav1.PartialObjectMetadataList
		if err == nil && code == 200 {
			err = json.Unmarshal(body, &list)
		}
		if err != nil || code != 200 {
			k.bad.Add(1)
			t.Logf("%s read: %d %v %.200s", name, code, err, body)
			continue
		}
		k.good.Add(1)
		l.forward(&last, list.ResourceVersion)
		l.took(name, began)
		time.Sleep(10 * time.Millisecond) // not a busy loop
	}
}

// write creates objects in a loop. Each has a label that identifies the write.
func (l *load) write(w int) {
	for n := 0; !l.over(); n++ {
		id := fmt.Sprintf("w%d-%d", w, n)
		body := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generateName":"w-","labels":{"write":%q}}}`, id)
		began := time.Now()
		code, response, err := l.do("POST", path, []byte(body))
		l.mu.Lock()
		switch {
		case err == nil && code == 201:
			l.acknowledged[id] = true
		case err == nil && bytes.Contains(response, []byte("it is not known whether the request was applied")):
			l.unknown[id] = fmt.Sprintf("%d %.300s", code, response)
		default:
			l.failed[id] = fmt.Sprintf("%d %v %.300s", code, err, response)
		}
		l.mu.Unlock()
		l.took("write", began)
		time.Sleep(20 * time.Millisecond) // not a busy loop
	}
}

func (l *load) do(method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequest(method, l.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	response, err := io.ReadAll(resp.Body)
	return resp.StatusCode, response, err
}

func (l *load) took(what string, began time.Time) {
	d := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pauses[what] = max(l.pauses[what], d)
}

// begin resets the longest durations and returns the number of writes with unknown outcome.
func (l *load) begin() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.pauses)
	return len(l.unknown)
}

// unknowns returns the number of writes with unknown outcome.
func (l *load) unknowns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unknown)
}

func (l *load) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("cached reads %d, %d failed, longest %v; most-recent reads %d, %d failed, longest %v; writes %d, %d unknown, %d failed, longest %v; %d watches broken",
		l.reads.good.Load(), l.reads.bad.Load(), l.pauses["cached"].Round(time.Millisecond),
		l.strict.good.Load(), l.strict.bad.Load(), l.pauses["most recent"].Round(time.Millisecond),
		len(l.acknowledged), len(l.unknown), len(l.failed), l.pauses["write"].Round(time.Millisecond), l.broken.Load())
}

// stop ends the readers and writers.
func (l *load) stop() {
	close(l.done)
	l.running.Wait()
}

// judge checks the results, and compares the acknowledged writes and the informers with the objects
// in the cluster.
func (l *load) judge(ctx context.Context, t *testing.T, direct kubernetes.Interface) {
	t.Helper()
	if l.reads.bad.Load() > 0 || l.strict.bad.Load() > 0 {
		t.Errorf("%d cached reads and %d most-recent reads failed", l.reads.bad.Load(), l.strict.bad.Load())
	}
	if l.broken.Load() > 0 || l.backwards.Load() > 0 {
		t.Errorf("%d watches broke, %d versions decreased", l.broken.Load(), l.backwards.Load())
	}
	if l.reads.good.Load() == 0 || l.strict.good.Load() == 0 || len(l.acknowledged) == 0 {
		t.Error("there were no reads, or no writes")
	}
	for id, why := range l.failed {
		t.Errorf("write %s failed: %s", id, why)
	}
	list, err := direct.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	times := map[string]int{}
	for i := range list.Items {
		times[list.Items[i].Labels["write"]]++
	}
	for id, n := range times {
		if id != "" && n > 1 {
			t.Errorf("write %s was applied %d times", id, n)
		}
	}
	for id := range l.acknowledged {
		if times[id] != 1 {
			t.Errorf("write %s was acknowledged, but applied %d times", id, times[id])
		}
	}
	for n, i := range l.informers {
		l.compare(ctx, t, n, i, list)
	}
	l.stopAll()
	l.informing.Wait()
}

// compare waits until an informer holds the same objects as the cluster.
func (l *load) compare(ctx context.Context, t *testing.T, n int, i *informer, list *corev1.ConfigMapList) {
	t.Helper()
	for {
		missing := 0
		for j := range list.Items {
			held, ok, err := i.store.GetByKey(namespace + "/" + list.Items[j].Name)
			must(t, err)
			if !ok || held.(*corev1.ConfigMap).ResourceVersion != list.Items[j].ResourceVersion {
				missing++
			}
		}
		if missing == 0 && len(i.store.ListKeys()) == len(list.Items) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("informer %d holds %d objects; %d of %d are missing or outdated", n, len(i.store.ListKeys()), missing, len(list.Items))
		}
		pause(ctx, t, 20*time.Millisecond)
	}
}
