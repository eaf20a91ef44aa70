package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A storeBed is what rows about storage compare: kube-apiserver with an etcd that syncs every write
// to disk, and a standalone kubeweir with its own store. Each has its own data, on the same disk,
// and the same users.
type storeBed struct {
	dir        string
	cluster    *realkube.Cluster
	standalone *realkube.Standalone
	kube, weir *server
}

func newStoreBed(ctx context.Context, binary string) (_ *storeBed, err error) {
	b := &storeBed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "kubeweir-bench-"); err != nil {
		return nil, err
	}
	if b.cluster, err = realkube.Start(ctx, realkube.Options{Fsync: true}); err != nil {
		return nil, err
	}
	if b.standalone, err = realkube.StartStandalone(ctx, realkube.StandaloneOptions{Path: binary, Dir: b.dir, Cluster: b.cluster}); err != nil {
		return nil, err
	}
	config, err := clientTLS(b.cluster)
	if err != nil {
		return nil, err
	}
	b.kube = &server{name: "kube-apiserver", addr: strings.TrimPrefix(b.cluster.URL(), "https://"), tls: config, token: b.cluster.AdminToken()}
	b.weir = &server{name: "kubeweir", addr: strings.TrimPrefix(b.standalone.URL(), "https://"), tls: config, token: b.cluster.AdminToken()}
	b.find()
	return b, nil
}

// find looks up the process ids after a start.
func (b *storeBed) find() {
	b.kube.pid = b.cluster.APIServerPID()
	b.kube.pids = []int{b.kube.pid, b.cluster.EtcdPID()}
	b.weir.pid = b.standalone.PID()
	b.weir.pids = []int{b.weir.pid}
}

func (b *storeBed) close() error {
	if b.standalone != nil {
		b.standalone.Close()
	}
	var err error
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// stores returns the storeBed and starts it for the first row that needs it.
func (m *measurer) stores(ctx context.Context) (*storeBed, error) {
	if m.bed.stores == nil {
		var err error
		if m.bed.stores, err = newStoreBed(ctx, m.bed.binary); err != nil {
			return nil, err
		}
	}
	b := m.bed.stores
	m.current = &contest{kubeweir: &gateway{server: b.weir}, rival: b.kube}
	return b, nil
}

// starts measures a row of kind Start: the time from the start of the processes until they are
// ready, with the existing data.
func (m *measurer) starts(ctx context.Context, _ *Row) (*measured, error) {
	b, err := m.stores(ctx)
	if err != nil {
		return nil, err
	}
	out := &measured{}
	for range m.rounds() {
		if err := errors.Join(b.cluster.StopAPIServer(ctx), b.cluster.StopEtcd(ctx), b.standalone.Stop(ctx)); err != nil {
			return nil, err
		}
		if err := out.apiserver.timed(func() error { return errors.Join(b.cluster.StartEtcd(ctx), b.cluster.StartAPIServer(ctx)) }); err != nil {
			return nil, err
		}
		if err := m.quiet(ctx, b.cluster.APIServerPID()); err != nil {
			return nil, err
		}
		if err := out.kubeweir.timed(func() error { return b.standalone.Start(ctx) }); err != nil {
			return nil, err
		}
		b.find()
	}
	return out, nil
}

// timed adds how long f takes.
func (t *tally) timed(f func() error) error {
	begin := time.Now()
	err := f()
	took := time.Since(begin)
	t.count++
	t.wall += took
	t.latencies = append(t.latencies, took)
	return err
}

// storeMemory measures a row of kind StoreMemory: the resident memory of the idle processes.
func (m *measurer) storeMemory(ctx context.Context, _ *Row) (*measured, error) {
	b, err := m.stores(ctx)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, m.effort.settle); err != nil {
		return nil, err
	}
	out := &measured{}
	for _, side := range []struct {
		pids []int
		to   **int64
	}{{b.kube.pids, &out.apiserverBytes}, {b.weir.pids, &out.kubeweirBytes}} {
		var sum int64
		for _, pid := range side.pids {
			now, _, err := residentMemory(pid)
			if err != nil {
				return nil, err
			}
			sum += now
		}
		*side.to = &sum
	}
	return out, nil
}

// creates measures a row of kind Create: every client creates one object after the other.
func (m *measurer) creates(ctx context.Context, r *Row) (*measured, error) {
	b, err := m.stores(ctx)
	if err != nil {
		return nil, err
	}
	out := &measured{}
	for range m.rounds() {
		for _, side := range []struct {
			server *server
			total  *tally
		}{{b.kube, &out.apiserver}, {b.weir, &out.kubeweir}} {
			t, err := m.creating(ctx, side.server, max(1, r.Clients))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.server.name, err)
			}
			side.total.add(t)
		}
	}
	return out, nil
}

// creating measures one slice of creates: as many creates as n clients complete in the effort's
// time.
func (m *measurer) creating(ctx context.Context, s *server, n int) (tally, error) {
	var total tally
	if err := m.quiet(ctx, s.pids...); err != nil {
		return total, err
	}
	conns := make([]*conn, n)
	for i := range conns {
		c, err := dial(ctx, s, 4<<10)
		if err != nil {
			return total, err
		}
		defer c.close()
		conns[i] = c
		if _, err := m.create(c, s); err != nil { // handshakes and first requests do not count
			return total, err
		}
	}
	before, err := realkube.CPUTime(s.pids...)
	if err != nil {
		return total, err
	}
	begin := time.Now()
	tallies, errs := make([]tally, n), make([]error, n)
	var clients sync.WaitGroup
	for i := range conns {
		clients.Go(func() {
			for time.Since(begin) < m.effort.creating && errs[i] == nil {
				errs[i] = tallies[i].timed(func() error {
					response, err := m.create(conns[i], s)
					tallies[i].bytes += response.bytes
					return err
				})
			}
		})
	}
	clients.Wait()
	for _, t := range tallies {
		total.add(t)
	}
	total.wall = time.Since(begin) // not the sum over the clients
	after, err := realkube.CPUTime(s.pids...)
	total.cpu = after - before
	return total, errors.Join(append(errs, err)...)
}

// createdData is the content of each object.
var createdData = strings.Repeat("0123456789abcdef", 64)

// create creates a ConfigMap with a unique name.
func (m *measurer) create(c *conn, s *server) (response, error) {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"created-%d"},"data":{"of":%q}}`, m.written.Add(1), createdData)
	return c.get(s.encode(requestSpec{
		method: http.MethodPost, path: "/api/v1/namespaces/default/configmaps", contentType: "application/json", body: body,
	}), http.StatusCreated)
}
