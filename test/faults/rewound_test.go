package faults

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// A restore is a way to restore etcd from an older copy.
type restore struct {
	name string
	// bumped means that the restore raises etcd's revision above those that were lost and compacts the
	// older ones.
	bumped bool
	// overtaken means that etcd has reached more revisions than were lost before the gateway
	// reconnects. Versions alone then do not reveal the restore; the gateway detects it by comparing
	// one object of each resource.
	overtaken bool
	// running means that kube-apiserver keeps running during the restore, which Kubernetes forbids,
	// and restarts only afterwards.
	running bool
	long    bool
}

// falls returns how often the version of cached responses may go back.
func (r *restore) falls() int {
	if r.bumped || r.overtaken {
		return 0
	}
	return 1
}

const (
	// lostWrites is the number of updates that the restore loses.
	lostWrites = 30
)

// TestRewound checks that the gateway soon drops lost data after etcd was restored from an older
// copy: watches end with 410, and informers and readers get the state of kube-apiserver.
func TestRewound(t *testing.T) {
	t.Parallel()
	kube := startCluster(t)
	for _, r := range []restore{
		{name: "rewound"},
		{name: "bumped", bumped: true},
		{name: "overtaken", overtaken: true, long: true},
		{name: "running", running: true, long: true},
	} {
		if r.long && !*long {
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.play(deadline(t), t, kube) })
	}
}

// play restores etcd while informers, a watch and a reader are running.
func (r *restore) play(ctx context.Context, t *testing.T, kube *realkube.Cluster) {
	s := &scene{name: "restored-" + r.name, kube: kube, link: startLink(t, kube), client: trusting(t, kube)}
	s.writer = &writer{kube: kube, client: trusting(t, kube), maps: s.maps()}
	must(t, s.writer.send(ctx, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+s.name+`"}}`))
	for _, name := range []string{"kept", "deleted", "quiet"} {
		must(t, s.create(ctx, name))
	}
	copied := filepath.Join(t.TempDir(), "etcd")
	must(t, kube.StopEtcd(ctx))
	must(t, kube.SaveEtcd(copied))
	must(t, kube.StartEtcd(ctx))
	must(t, testbed.Poll(ctx, time.Minute, func() error { return s.put(ctx, "kept", "after the copy") }))

	b := *bed
	b.Kube = kube
	s.gateway = b.StartGateway(t, realkube.GatewayOptions{Upstream: s.link.URL()})
	stores := []cache.Store{s.inform(ctx, t, typeJSON), s.inform(ctx, t, typeProto)}
	// Watch from a version that the cache has. A watch from an older version would be forwarded, and
	// end with kube-apiserver.
	now := s.send(ctx, &probe{name: "list, rv=0", good: 200}, request{path: s.maps() + "?resourceVersion=0"})
	watch := s.openWatch(ctx, t, "JSON", typeJSON, now.version)
	for i := range lostWrites {
		must(t, s.put(ctx, "kept", fmt.Sprint("lost ", i)))
	}
	must(t, s.create(ctx, "lost"))
	must(t, s.writer.send(ctx, http.MethodDelete, s.maps()+"/deleted", ""))
	must(t, testbed.Poll(ctx, time.Minute, func() error { return s.compare(ctx, stores) }))

	stop := s.read(ctx, t)
	held, err := kube.Revision(ctx)
	must(t, err)
	must(t, r.restore(ctx, s, copied, held))
	s.end = time.Now()
	defer s.keepBusy(ctx, t)()
	must(t, testbed.Poll(ctx, giveUp, func() error { return s.compare(ctx, stores) }))
	took := time.Since(s.end)
	if took > busyLimit {
		t.Errorf("clients had the state of kube-apiserver only %s after it was ready", took)
	}
	r.judge(t, s, stop())
	if err := watch.ended(); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before the restore ended with %v, want 410", err)
	}
	t.Logf("%s: clients had the state of kube-apiserver after %s", r.name, took.Round(time.Millisecond))
}

// restore replaces etcd's data by the copy.
func (r *restore) restore(ctx context.Context, s *scene, copied string, held int64) error {
	if !r.running {
		if err := s.kube.StopAPIServer(ctx); err != nil {
			return err
		}
	}
	if r.overtaken {
		if err := s.link.Set(link.Condition{Reject: true}); err != nil {
			return err
		}
	}
	if err := s.kube.StopEtcd(ctx); err != nil {
		return err
	}
	if err := s.kube.RestoreEtcd(copied); err != nil {
		return err
	}
	if err := s.kube.StartEtcd(ctx); err != nil {
		return err
	}
	if r.bumped {
		if err := s.kube.BumpRevision(ctx, held+1000, true); err != nil {
			return err
		}
	}
	if r.running {
		testbed.Wait(ctx, 10*time.Second)
		if err := s.kube.StopAPIServer(ctx); err != nil {
			return err
		}
	}
	if err := s.kube.StartAPIServer(ctx); err != nil {
		return err
	}
	if r.overtaken {
		if err := s.kube.BumpRevision(ctx, held+10, false); err != nil {
			return err
		}
	}
	if err := s.create(ctx, "after"); err != nil {
		return err
	}
	return s.link.Set(link.Condition{})
}

func (s *scene) create(ctx context.Context, name string) error {
	return s.writer.send(ctx, http.MethodPost, s.maps(), `{"metadata":{"name":"`+name+`"}}`)
}

func (s *scene) put(ctx context.Context, name, data string) error {
	return s.writer.send(ctx, http.MethodPut, s.maps()+"/"+name, `{"metadata":{"name":"`+name+`"},"data":{"it":"`+data+`"}}`)
}

// keepBusy updates a ConfigMap in another namespace until stop is called, because a real cluster is
// never idle.
func (s *scene) keepBusy(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	const path = "/api/v1/namespaces/default/configmaps"
	must(t, s.writer.send(ctx, http.MethodPost, path, `{"metadata":{"name":"`+s.name+`"}}`))
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			_ = s.writer.send(ctx, http.MethodPut, path+"/"+s.name, fmt.Sprintf(`{"metadata":{"name":"%s"},"data":{"n":"%d"}}`, s.name, n))
			testbed.Wait(ctx, writePeriod)
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

// inform starts an informer of the scene's ConfigMaps through the gateway and returns its store
// once it has synced.
func (s *scene) inform(ctx context.Context, t *testing.T, contentType string) cache.Store {
	t.Helper()
	cfg := s.gateway.AdminConfig()
	cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
	client, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.name)).Core().V1().ConfigMaps().Informer()
	running, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() { informer.RunWithContext(running) })
	t.Cleanup(func() {
		stop()
		ended.Wait()
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return informer.GetStore()
}

// compare returns an error if an informer, or a read at any consistency, differs from
// kube-apiserver.
func (s *scene) compare(ctx context.Context, stores []cache.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	direct, err := kubernetes.NewForConfig(s.kube.AdminConfig())
	if err != nil {
		return err
	}
	want, err := s.versions(ctx, direct, "")
	if err != nil {
		return err
	}
	for i, store := range stores {
		held := map[string]string{}
		for _, o := range store.List() {
			m := o.(*corev1.ConfigMap)
			held[m.Name] = m.ResourceVersion
		}
		if !maps.Equal(held, want) {
			return fmt.Errorf("informer %d holds %v, kube-apiserver %v", i, held, want)
		}
	}
	through, err := kubernetes.NewForConfig(s.gateway.AdminConfig())
	if err != nil {
		return err
	}
	for _, version := range []string{"0", ""} {
		got, err := s.versions(ctx, through, version)
		if err != nil {
			return err
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("a read with resourceVersion=%q returns %v, kube-apiserver %v", version, got, want)
		}
	}
	return nil
}

// versions returns the resourceVersions of the scene's ConfigMaps by name.
func (s *scene) versions(ctx context.Context, client kubernetes.Interface, version string) (map[string]string, error) {
	list, err := client.CoreV1().ConfigMaps(s.name).List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return out, nil
}

// read reads from the cache in a loop; stop ends the loop and returns the samples.
func (s *scene) read(ctx context.Context, t *testing.T) (stop func() []*sample) {
	t.Helper()
	p := &probe{name: "list, rv=0", good: 200}
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			if a := s.send(ctx, p, request{path: s.maps() + "?resourceVersion=0"}); ctx.Err() == nil {
				s.log.add(a)
			}
			testbed.Wait(ctx, testbed.PollPeriod)
		}
	})
	return func() []*sample {
		cancel()
		reading.Wait()
		return s.log.of(p, time.Time{}, time.Now())
	}
}

// judge checks the reader's samples.
func (r *restore) judge(t *testing.T, s *scene, responses []*sample) {
	t.Helper()
	falls, last := 0, uint64(0)
	for _, a := range responses {
		switch {
		case a.err != nil, !a.good() && a.status != http.StatusServiceUnavailable && a.status != http.StatusTooManyRequests:
			t.Errorf("%s", a)
		case !a.good():
			continue
		case a.version < last:
			falls++
			t.Logf("the version went back from %d to %d, %s after kube-apiserver was ready", last, a.version, a.ended().Sub(s.end).Round(time.Millisecond))
		}
		if a.good() {
			last = a.version
		}
	}
	if falls > r.falls() {
		t.Errorf("the version of responses went back %d times, want at most %d", falls, r.falls())
	}
}
