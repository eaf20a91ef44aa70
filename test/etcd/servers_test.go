package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	serversClients   = 6
	serversRegisters = 10
	serversEventTTL  = 5 * time.Second
)

// register is the model of a ConfigMap: a read returns the value of the last write.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, o := range history {
			name := o.Input.(registerCall).name
			byName[name] = append(byName[name], o)
		}
		var out [][]porcupine.Operation
		for _, calls := range byName {
			out = append(out, calls)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if call := input.(registerCall); call.writes {
			return true, call.value
		}
		return output == state, state
	},
}

// registerCall is a read or a write of a ConfigMap.
type registerCall struct {
	name, value string
	writes      bool
}

// A servers test has several API servers on one etcd cluster, and clients that use any of them.
type servers struct {
	t       *testing.T
	members *realkube.Members
	all     []*realkube.Standalone
	clients []*kubernetes.Clientset // of each server
	began   time.Time

	mu       sync.Mutex
	history  []porcupine.Operation
	created  []string // acknowledged
	events   []string
	failures int
}

// startServers starts n API servers on an etcd cluster of three. All have the keys of the first.
func startServers(ctx context.Context, t *testing.T, n int) *servers {
	t.Helper()
	m, err := realkube.StartMembers(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &servers{t: t, members: m, began: time.Now()}
	for i := range n {
		dir := t.TempDir()
		if i > 0 {
			copyKeys(t, filepath.Join(s.all[0].DataDir(), "pki"), filepath.Join(dir, "data", "pki"))
		}
		one, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: dir, ExtraArgs: []string{
			"--etcd-servers", strings.Join(m.URLs(), ","), "--event-ttl", serversEventTTL.String(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Close)
		s.all = append(s.all, one)
		cfg, err := one.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		cfg.QPS, cfg.Timeout = -1, 10*time.Second
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.clients = append(s.clients, client)
	}
	return s
}

func copyKeys(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(to, "*.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := os.Chmod(key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// record adds a call that began at a time. A write whose outcome is unknown may take effect at any time later.
func (s *servers) record(client int, call registerCall, began time.Time, value string, err error) {
	o := porcupine.Operation{ClientId: client, Input: call, Output: value, Call: int64(began.Sub(s.began)), Return: int64(time.Since(s.began))}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
	case !call.writes, apierrors.IsTooManyRequests(err):
		s.failures++
		return
	default:
		s.failures++
		o.Return = int64(24 * time.Hour)
	}
	s.history = append(s.history, o)
}

// use is a client: it reads, writes and creates objects through any server until ctx ends.
func (s *servers) use(ctx context.Context, client int, random *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		maps := s.clients[random.IntN(len(s.clients))].CoreV1()
		name := fmt.Sprint("register-", random.IntN(serversRegisters))
		unique := fmt.Sprintf("c%d-%d", client, n)
		began := time.Now()
		switch random.IntN(10) {
		case 0:
			_, err := maps.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: unique}}, metav1.CreateOptions{})
			s.noteCreated(&s.created, unique, err)
		case 1:
			_, err := maps.Events("default").Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: unique}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
			}, metav1.CreateOptions{})
			s.noteCreated(&s.events, unique, err)
		case 2, 3, 4, 5:
			_, err := maps.ConfigMaps("default").Update(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": unique},
			}, metav1.UpdateOptions{})
			s.record(client, registerCall{name, unique, true}, began, "", err)
		default:
			c, err := maps.ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				c = &corev1.ConfigMap{}
			}
			s.record(client, registerCall{name: name}, began, c.Data["value"], err)
		}
		select {
		case <-time.After(time.Duration(random.IntN(40)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *servers) noteCreated(all *[]string, name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failures++
		return
	}
	*all = append(*all, name)
}

// TestServers runs three API servers on one etcd cluster as one: in turn each of them, and now and then a member of etcd,
// is killed and started again. No acknowledged object is lost, the ConfigMaps are linearizable registers, and each Event
// expires once.
func TestServers(t *testing.T) {
	length, period := time.Duration(soak.Cases(12, 10*60))*time.Second, time.Duration(soak.Cases(3, 60))*time.Second
	ctx, cancel := context.WithTimeout(t.Context(), length+10*time.Minute)
	defer cancel()
	s := startServers(ctx, t, 3)
	for i := range serversRegisters {
		if _, err := s.clients[0].CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("register-", i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := s.watchEvents(ctx)

	seed := soak.Seed(t)
	load, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range serversClients {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() { s.use(load, i, random) })
	}
	kills := 0
	for end := time.Now().Add(length); time.Now().Before(end); kills++ {
		victim := kills % len(s.all)
		s.all[victim].Kill()
		if kills%3 == 2 {
			s.members.Kill(kills / 3 % 3)
		}
		if err := s.all[victim].Start(ctx); err != nil {
			t.Fatalf("server %d: %v\n%s", victim, err, s.all[victim].Log())
		}
		if kills%3 == 2 {
			if err := s.members.Start(ctx, kills/3%3); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-time.After(period):
		case <-ctx.Done():
		}
	}
	stop()
	running.Wait()
	t.Logf("%d kills; %d reads and writes of registers, %d objects and %d Events created, %d requests failed", kills, len(s.history), len(s.created), len(s.events), s.failures)

	for i, client := range s.clients {
		list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, c := range list.Items {
			there[c.Name] = true
		}
		for _, name := range s.created {
			if !there[name] {
				t.Errorf("server %d lacks %s, whose creation was acknowledged", i, name)
			}
		}
	}
	if result := porcupine.CheckOperationsTimeout(register, s.history, 2*time.Minute); result != porcupine.Ok {
		t.Errorf("the ConfigMaps are not linearizable: %s", result)
	}
	s.checkEvents(ctx, seen)
}

// watchEvents returns a function that returns the changes of Events in etcd so far, by name.
func (s *servers) watchEvents(ctx context.Context) func() map[string][]string {
	s.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.members.URLs(), Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	const prefix = "/registry/events/default/"
	current, err := client.Get(ctx, prefix, clientv3.WithCountOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	var mu sync.Mutex
	all := map[string][]string{}
	watch := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(current.Header.Revision+1))
	go func() {
		for resp := range watch {
			mu.Lock()
			for _, e := range resp.Events {
				name := strings.TrimPrefix(string(e.Kv.Key), prefix)
				all[name] = append(all[name], e.Type.String())
			}
			mu.Unlock()
		}
	}()
	return func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		out := map[string][]string{}
		for name, types := range all {
			out[name] = slices.Clone(types)
		}
		return out
	}
}

// checkEvents waits until all Events have expired, and checks that none was changed but by its creation and its expiry.
func (s *servers) checkEvents(ctx context.Context, seen func() map[string][]string) {
	s.t.Helper()
	var wrong error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		now := seen()
		wrong = nil
		for _, name := range s.events {
			if types := now[name]; !slices.Equal(types, []string{"PUT", "DELETE"}) {
				wrong = errors.Join(wrong, fmt.Errorf("the Event %s: %v, want that it was created and expired once", name, types))
			}
		}
		if wrong == nil {
			break
		}
	}
	if wrong != nil {
		s.t.Error(wrong)
	}
	for i, client := range s.clients {
		// One whose creation was not acknowledged may have been created last.
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			list, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) == 0 {
				break
			}
			if err != nil || time.Now().After(deadline) {
				s.t.Errorf("server %d: %d Events, %v", i, len(list.Items), err)
				break
			}
		}
	}
}
