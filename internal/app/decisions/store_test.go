package decisions

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// TestDecisionsOfAnEarlierProcess checks which saved decisions of an earlier process are used.
func TestDecisionsOfAnEarlierProcess(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name  string
		saved any
		log   string
		used  bool
		doubt bool // nothing that was saved then may be used
	}{
		{name: "none"},
		{name: "good", saved: record{At: now.Add(-time.Minute)}, used: true},
		{name: "too old", saved: record{At: now.Add(-2 * time.Hour)}, log: "it is 2h"},
		{name: "of the future", saved: record{At: now.Add(time.Hour)}, log: "the clock was set back", doubt: true},
		{name: "of another API server", saved: record{Server: "https://127.0.0.9:6443", At: now.Add(-time.Minute)}, log: "it is of another API server", doubt: true},
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
				if _, err := (&Store{Options: Options{Dir: dir}}).write(t.Context(), decisionsRecord, test.saved); err != nil {
					t.Fatal(err)
				}
			}
			s, doubtful := Open(Options{Dir: dir, TTL: func() time.Duration { return time.Hour }, Log: log})
			if (s.last != nil) != test.used || doubtful != test.doubt {
				t.Errorf("used: %t, doubtful: %t", s.last != nil, doubtful)
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

// TestSavesAreRateLimited checks that a large record is not saved with every change.
func TestSavesAreRateLimited(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name             string
		size             int
		since            time.Duration
		changed, failing bool
		want             bool
	}{
		{name: "no changes", size: 1000, since: 10 * time.Second},
		{name: "no changes for long", size: 1000, since: savePeriod, want: true},
		{name: "changes", size: 1000, since: checkPeriod, changed: true, want: true},
		{name: "changes of something large", size: 10 * saveRate, since: 9 * time.Second, changed: true},
		{name: "large, later", size: 10 * saveRate, since: 10 * time.Second, changed: true, want: true},
		{name: "largest", size: 1000 * saveRate, since: savePeriod, changed: true, want: true},
		{name: "while it fails", size: 1000, since: 10 * time.Second, changed: true, failing: true},
	} {
		s := &Store{written: now.Add(-test.since), size: test.size, failing: test.failing}
		s.changed.Store(test.changed)
		if got := s.isDue(now); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// TestClusterRejectsToIdentify checks that saved decisions are dropped, also from the disk, when a
// cluster refuses to identify itself for longer than maxUnidentified.
func TestClusterRejectsToIdentify(t *testing.T) {
	dir, err := state.Open(state.Options{Dir: filepath.Join(t.TempDir(), "state"), Key: make([]byte, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	client, err := upstream.New(upstream.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reviews, err := kubernetes.NewForConfigAndClient(client.ClientGo())
	if err != nil {
		t.Fatal(err)
	}
	authenticator, err := authn.New(authn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	authorizer := authz.New(authz.Options{AccessReviewer: reviews.AuthorizationV1().SubjectAccessReviews(), Settings: review.Settings{OfflineTTL: time.Hour}})
	options := Options{
		Dir: dir, TTL: func() time.Duration { return time.Hour }, Reachable: func() bool { return true }, Discovery: discovery.NewCatalog(client),
		Log: slog.New(slog.DiscardHandler),
		Cluster: func(context.Context) (string, error) {
			return "", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no"))
		},
	}
	if _, err := (&Store{Options: options}).write(t.Context(), decisionsRecord, &record{At: time.Now(), Cluster: "a"}); err != nil {
		t.Fatal(err)
	}
	s, doubtful := Open(options)
	if doubtful || s.last == nil {
		t.Fatal("the saved decisions are not used")
	}
	s.Restore(authenticator, authorizer)
	generation := authorizer.Generation()
	for _, over := range []bool{false, false, true, true} {
		if over {
			s.rejected = time.Now().Add(-maxUnidentified)
		}
		if s.identify(t.Context()) {
			t.Error("it is identified")
		}
		if _, err := dir.LoadRecord(decisionsRecord); (s.last == nil) != over || (err != nil) != over || (authorizer.Generation() != generation) != over {
			t.Errorf("over: %t, forgotten: %t, on disk: %v", over, s.last == nil, err)
		}
	}
}
