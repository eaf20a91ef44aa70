package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// TestMemoryOfAnEarlierProcess checks which saved decisions of an earlier process are used.
func TestMemoryOfAnEarlierProcess(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name  string
		saved any
		log   string
		used  bool
		doubt bool // nothing of its time counts
	}{
		{name: "none"},
		{name: "good", saved: savedDecisions{At: now.Add(-time.Minute)}, used: true},
		{name: "too old", saved: savedDecisions{At: now.Add(-2 * time.Hour)}, log: "it is 2h0m0s old"},
		{name: "of the future", saved: savedDecisions{At: now.Add(time.Hour)}, log: "the clock was set back", doubt: true},
		{name: "of another API server", saved: savedDecisions{Server: "https://127.0.0.9:6443", At: now.Add(-time.Minute)}, log: "it is of another API server", doubt: true},
		{name: "damaged", saved: "nonsense", log: "cannot unmarshal"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var text bytes.Buffer
			log := slog.New(slog.NewTextHandler(&text, nil))
			dir, err := state.Open(state.Options{Dir: filepath.Join(t.TempDir(), "state"), Key: make([]byte, state.KeySize), Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = dir.Close() }()
			if test.saved != nil {
				if _, err := (&memory{dir: dir}).save(t.Context(), decisionsRecord, test.saved); err != nil {
					t.Fatal(err)
				}
			}
			m := newMemory(dir, func(context.Context) (string, error) { return "", errors.New("away") }, "", func() time.Duration { return time.Hour }, log)
			err = m.load()
			if (m.last != nil) != test.used || (err != nil) != test.doubt {
				t.Errorf("used: %t, error %v", m.last != nil, err)
			}
			if got := text.String(); !strings.Contains(got, test.log) || strings.Count(got, "\n") > 1 || (got == "") != (test.log == "") {
				t.Errorf("log %q", got)
			}
			if _, err := dir.LoadRecord(decisionsRecord); (err == nil) != test.used {
				t.Errorf("after that: %v", err)
			}
		})
	}
}

// TestReloadWithMemory: a cluster that is changed goes on with what it was told of clients before.
func TestReloadWithMemory(t *testing.T) {
	const kept = "state: {dir: state, keyFile: key}\noffline: {default: allow}\n"
	s := startSeveral(t, []string{"a"}, entry("a"), "state: {dir: state}\n")
	if err := os.WriteFile(filepath.Join(s.dir, "key"), bytes.Repeat([]byte("k"), state.KeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.change(entry("a", fmt.Sprintf("limits: {maxColdStarts: %d}", 100+i)), kept); err != nil {
			t.Fatal(err)
		}
		m := (*s.several.members.Load())[0]
		words := 0.0
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kubeweir_authorization_offline_entries" {
				words = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if (words > 0) != (i > 0) {
			t.Errorf("change %d: %v answers are known", i, words)
		}
		nobody, what := &user.DefaultInfo{Name: "nobody"}, authz.Attributes{ResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "secrets"}
		if d, err := m.authorizer.Authorize(t.Context(), nobody, what); err != nil || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		for t.Context().Err() == nil { // until it is kept of which cluster that is
			if _, err := os.Stat(filepath.Join(s.dir, "state", "a", discoveryRecord+".record")); err == nil {
				break
			}
		}
	}
}

// TestMemoryIsPaced: what is large is not written each time that somebody asks something new.
func TestMemoryIsPaced(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name          string
		size          int
		since         time.Duration
		news, failing bool
		want          bool
	}{
		{name: "nothing new", size: 1000, since: 10 * time.Second},
		{name: "nothing new for long", size: 1000, since: memoryEvery, want: true},
		{name: "news", size: 1000, since: memoryTick, news: true, want: true},
		{name: "news of something large", size: 10 * memoryRate, since: 9 * time.Second, news: true},
		{name: "large, later", size: 10 * memoryRate, since: 10 * time.Second, news: true, want: true},
		{name: "largest", size: 1000 * memoryRate, since: memoryEvery, news: true, want: true},
		{name: "while it fails", size: 1000, since: 10 * time.Second, news: true, failing: true},
	} {
		m := &memory{written: now.Add(-test.since), size: test.size, failing: test.failing}
		m.news.Store(test.news)
		if got := m.due(now); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// TestMemoryOfUntoldCluster: what was said last does not go on to count, nor stay for the next
// process, when a cluster answers and refuses to say which it is; for a moment all do.
func TestMemoryOfUntoldCluster(t *testing.T) {
	dir, err := state.Open(state.Options{Dir: filepath.Join(t.TempDir(), "state"), Key: make([]byte, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	c := newCluster(slog.New(slog.DiscardHandler), registry, registry, policy.NewBlocked(nil))
	c.state = dir
	defer c.close()
	if err := c.connect(upstream.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	reviews, err := kubernetes.NewForConfigAndClient(c.client.ClientGo())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.addIdentity(authn.Options{}, authz.Options{AccessReviewer: reviews.AuthorizationV1().SubjectAccessReviews(), Settings: review.Settings{OfflineTTL: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	c.memory = newMemory(dir, func(context.Context) (string, error) {
		return "", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no"))
	}, "", func() time.Duration { return time.Hour }, c.log)
	m := c.memory
	if _, err := m.save(t.Context(), decisionsRecord, &savedDecisions{At: time.Now(), Cluster: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := m.load(); err != nil || m.last == nil {
		t.Fatal(err)
	}
	generation := c.authorizer.Generation()
	for _, over := range []bool{false, false, true, true} {
		if over {
			m.rejected = time.Now().Add(-memoryPatience)
		}
		if c.confirm(t.Context()) {
			t.Error("it is confirmed")
		}
		if _, err := dir.LoadRecord(decisionsRecord); (m.last == nil) != over || (err != nil) != over || (c.authorizer.Generation() != generation) != over {
			t.Errorf("over: %t, forgotten: %t, on disk: %v", over, m.last == nil, err)
		}
	}
}
