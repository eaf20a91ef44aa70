package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// The users of a visibleBed: the first may list pods in some of the namespaces, the second in all
// of them, the third in a single one. The third sends requests in between.
const (
	visibleSome, visibleAll, visibleOther = "visible-some", "visible-all", "visible-other"
	visibleRole                           = "visible"
	visibleRules                          = "rules:\n- users: [" + visibleSome + ", " + visibleAll + "]\n  visibleLists: true\n"
)

// A visibleBed is a cluster of many namespaces with a pod in each.
type visibleBed struct {
	cluster    *realkube.Cluster
	client     *kubernetes.Clientset
	config     string // file with the gateway's rule
	namespaces int    // how many exist
}

func visibleNamespace(i int) string { return fmt.Sprintf("tenant-%05d", i) }

// visibleTo reports whether the user who may list in shown of all namespaces may list in the i-th.
func visibleTo(i, shown, all int) bool { return i*shown/all != (i+1)*shown/all }

// visibles returns the visibleBed with the given number of namespaces, and starts it for the first
// row that needs it.
func (m *measurer) visibles(ctx context.Context, shown, all int) (_ *visibleBed, err error) {
	b := m.bed.visible
	if b == nil {
		b = &visibleBed{}
		m.bed.visible = b
		var users []realkube.User
		for _, name := range []string{visibleSome, visibleAll, visibleOther} {
			users = append(users, realkube.User{Name: name})
		}
		if b.cluster, err = realkube.Start(ctx, realkube.Options{Users: users}); err != nil {
			return nil, err
		}
		b.config = filepath.Join(b.cluster.Dir(), "visible.yaml")
		if err := os.WriteFile(b.config, []byte(visibleRules), 0o600); err != nil {
			return nil, err
		}
		if b.client, err = seedClient(b.cluster.AdminConfig(), "kube-controller-manager"); err != nil {
			return nil, err
		}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: visibleRole},
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
		if _, err := b.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return b, b.fill(ctx, shown, all)
}

func (b *visibleBed) close() error {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.Close()
}

// fill creates the missing namespaces.
func (b *visibleBed) fill(ctx context.Context, shown, all int) error {
	var next atomic.Int64
	next.Store(int64(b.namespaces))
	var wg sync.WaitGroup
	errs := make([]error, seedWorkers)
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < all && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = b.namespace(ctx, i, visibleTo(i, shown, all))
			}
		})
	}
	wg.Wait()
	b.namespaces = max(b.namespaces, all)
	return errors.Join(errs...)
}

func (b *visibleBed) namespace(ctx context.Context, i int, visible bool) error {
	name := visibleNamespace(i)
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := b.client.CoreV1().Pods(name).Create(ctx, newPod(i), metav1.CreateOptions{}); err != nil {
		return err
	}
	users := []string{visibleAll}
	if visible {
		users = append(users, visibleSome)
	}
	if i == 0 {
		users = append(users, visibleOther)
	}
	return b.bind(ctx, name, "visible", users...)
}

func (b *visibleBed) bind(ctx context.Context, namespace, name string, users ...string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: visibleRole}}
	for _, u := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u})
	}
	_, err := b.client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// visible measures a row of kind Visible: the cost of a list from memory, beside single lists of
// the namespaces, each of which kube-apiserver serves from its cache. The notes say what happens
// before the first list from memory.
func (m *measurer) visible(ctx context.Context, r *Row) (*measured, error) {
	all, shown := r.Objects, r.Visible
	if all > m.effort.objects {
		all, shown = m.effort.objects, shown*m.effort.objects/all
	}
	bed, err := m.visibles(ctx, shown, all)
	if err != nil {
		return nil, err
	}
	config, err := clientTLS(bed.cluster)
	if err != nil {
		return nil, err
	}
	process, err := realkube.StartGatewayWith(ctx, bed.cluster, realkube.GatewayOptions{Path: m.bed.binary, ExtraArgs: []string{"--config=" + bed.config}})
	if err != nil {
		return nil, err
	}
	defer process.Close()
	v := &visibleRun{bed: bed, process: process, user: visibleSome, out: &measured{}}
	if shown == all {
		v.user = visibleAll
	}
	of := func(name, url string, pid int) *server {
		return &server{name: name, addr: strings.TrimPrefix(url, "https://"), tls: config, token: bed.cluster.Token(v.user), pids: []int{pid}, pid: pid}
	}
	v.kube, v.weir = of("kube-apiserver", bed.cluster.URL(), bed.cluster.APIServerPID()), of("kubeweir", process.URL(), process.PID())
	m.current = &contest{kubeweir: &gateway{server: v.weir, process: process}, rival: v.kube}
	if err := v.begin(ctx, r.Path); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, process.Log())
	}
	defer v.caller.close()
	for _, f := range []func(context.Context) error{v.first, v.change, v.expire} {
		if err := m.quiet(ctx, v.kube.pid, v.weir.pid); err != nil {
			return nil, err
		}
		if err := f(ctx); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, process.Log())
		}
	}
	err = m.profiled(ctx, r, func() (err error) {
		v.out.kubeweir, err = sliceNow(ctx, v.weir, limits{requests: m.effort.visible, exactly: true}, v.exchange)
		return err
	})
	if err != nil || m.profile != "" {
		return v.out, err
	}
	return v.out, v.oneByOne(ctx, shown, all)
}

// A visibleRun is the measurement of one row.
type visibleRun struct {
	bed        *visibleBed
	process    *realkube.Gateway
	user       string
	kube, weir *server
	caller     *conn
	exchange   exchange // the list
	out        *measured
}

// reviewsOf returns how many permission reviews the gateway has sent to kube-apiserver so far.
func (v *visibleRun) reviewsOf(ctx context.Context) (float64, error) {
	metrics, err := v.process.Families(ctx, "kubeweir_authorization_reviews_total")
	if err != nil {
		return 0, err
	}
	return metrics.Sum("kubeweir_authorization_reviews_total", map[string]string{"from": "upstream"}), nil
}

// begin waits until the gateway's cache has the pods and the RBAC objects.
func (v *visibleRun) begin(ctx context.Context, path string) error {
	admin := *v.weir
	admin.token = v.bed.cluster.AdminToken()
	if _, _, err := fetch(ctx, &admin, requestSpec{path: allPods}); err != nil {
		return err
	}
	other := *v.weir
	other.token = v.bed.cluster.Token(visibleAll)
	within, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	only := allPods + "&fieldSelector=metadata.namespace%3D" + visibleNamespace(v.bed.namespaces-1)
	for {
		if _, _, err := fetch(within, &other, requestSpec{path: only}); err == nil {
			break
		} else if sleep(within, 50*time.Millisecond) != nil {
			return err
		}
	}
	var err error
	if v.caller, err = dial(ctx, v.weir, 64<<10); err != nil {
		return err
	}
	v.exchange = repeat(v.caller, requestSpec{path: path})
	return nil
}

// list sends the list once and describes how long it took, how many reviews it caused, and what the
// servers used.
func (v *visibleRun) list(ctx context.Context) (string, error) {
	before, err := v.reviewsOf(ctx)
	if err != nil {
		return "", err
	}
	var kube, weir [2]time.Duration
	kube[0], err = realkube.CPUTime(v.kube.pid)
	weir[0], err = cpuTimeAnd(err, v.weir.pid)
	if err != nil {
		return "", err
	}
	resp, err := once(v.exchange)
	if err != nil {
		return "", err
	}
	kube[1], err = realkube.CPUTime(v.kube.pid)
	weir[1], err = cpuTimeAnd(err, v.weir.pid)
	if err != nil {
		return "", err
	}
	after, err := v.reviewsOf(ctx)
	note := fmt.Sprintf("%s, %.0f reviews", resp.took.Round(100*time.Microsecond), after-before)
	if after > before {
		note += fmt.Sprintf(", for which kube-apiserver used the processor for %s and kubeweir for %s", kube[1]-kube[0], weir[1]-weir[0])
	}
	return note, err
}

func cpuTimeAnd(err error, pid int) (time.Duration, error) {
	used, err2 := realkube.CPUTime(pid)
	return used, errors.Join(err, err2)
}

// note sends the list and notes its description.
func (v *visibleRun) note(ctx context.Context, name string) error {
	listed, err := v.list(ctx)
	v.out.notes = append(v.out.notes, name+": "+listed)
	return err
}

// first measures the first list, while another user's requests need reviews, and the second list.
func (v *visibleRun) first(ctx context.Context) error {
	alone, err := v.others(ctx, nil)
	if err != nil {
		return err
	}
	listed := make(chan struct{})
	var beside []time.Duration
	var otherErr error
	var wg sync.WaitGroup
	wg.Go(func() { beside, otherErr = v.others(ctx, listed) })
	err = v.note(ctx, "the first list")
	close(listed)
	wg.Wait()
	if err := errors.Join(err, otherErr); err != nil {
		return err
	}
	v.out.notes = append(v.out.notes, fmt.Sprintf("another user's list of one namespace, reviewed each time: p50 %s, meanwhile %s, at most %s, all succeeded",
		percentile(alone, 0.5).Round(100*time.Microsecond), percentile(beside, 0.5).Round(100*time.Microsecond), percentile(beside, 1).Round(100*time.Microsecond)))
	return v.note(ctx, "the second")
}

// others sends lists as another user, each with another selector, until end is closed; if end is
// nil, only a few.
func (v *visibleRun) others(ctx context.Context, end <-chan struct{}) (took []time.Duration, err error) {
	s := *v.weir
	s.token = v.bed.cluster.Token(visibleOther)
	c, err := dial(ctx, &s, 64<<10)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for i := 0; ; i++ {
		select {
		case <-end:
			return took, nil
		default:
		}
		if end == nil && i == 20 {
			return took, nil
		}
		path := fmt.Sprintf("/api/v1/namespaces/%s/pods?resourceVersion=0&labelSelector=x%%3Dy%t%d", visibleNamespace(0), end == nil, i)
		resp, err := once(repeat(c, requestSpec{path: path}))
		if err != nil {
			return nil, fmt.Errorf("another user's list: %w", err)
		}
		took = append(took, resp.took)
	}
}

// change binds a role to another user in one of the namespaces, and deletes the binding.
func (v *visibleRun) change(ctx context.Context) error {
	const invalidations = "kubeweir_authorization_invalidations_total"
	metrics, err := v.process.Families(ctx, invalidations)
	if err != nil {
		return err
	}
	before := metrics.Sum(invalidations, nil)
	if err := v.bed.bind(ctx, visibleNamespace(0), "another", "somebody-else"); err != nil {
		return err
	}
	defer func() {
		_ = v.bed.client.RbacV1().RoleBindings(visibleNamespace(0)).Delete(ctx, "another", metav1.DeleteOptions{})
	}()
	within, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	for metrics.Sum(invalidations, nil) == before {
		if err := sleep(within, 10*time.Millisecond); err != nil {
			return err
		}
		if metrics, err = v.process.Families(ctx, invalidations); err != nil {
			return err
		}
	}
	return v.note(ctx, "after a change of a RoleBinding")
}

// expire waits until the cached permissions have expired.
func (v *visibleRun) expire(ctx context.Context) error {
	const ttl = 10 * time.Second // authorization.allowedTTL
	if v.bed.namespaces < visibleExpiring {
		return nil
	}
	if err := sleep(ctx, ttl); err != nil {
		return err
	}
	return v.note(ctx, "10 s after the first list")
}

// visibleExpiring is the number of namespaces from which on expiry is measured: creating them takes
// seconds, too.
const visibleExpiring = 5000

// oneByOne lists the namespaces one after the other at kube-apiserver, as the user can do without
// kubeweir.
func (v *visibleRun) oneByOne(ctx context.Context, shown, all int) error {
	c, err := dial(ctx, v.kube, 64<<10)
	if err != nil {
		return err
	}
	defer c.close()
	var specs []requestSpec
	for i := range all {
		if visibleTo(i, shown, all) {
			specs = append(specs, requestSpec{path: "/api/v1/namespaces/" + visibleNamespace(i) + "/pods?resourceVersion=0"})
		}
	}
	t, err := sliceNow(ctx, v.kube, limits{requests: len(specs), exactly: true}, repeat(c, specs...))
	if err != nil {
		return err
	}
	t.count, t.latencies = 1, []time.Duration{t.wall}
	v.out.apiserver = t
	v.out.notes = append(v.out.notes, fmt.Sprintf("kube-apiserver's figure is that of %d lists, of a namespace each, one after the other", len(specs)))
	return nil
}
