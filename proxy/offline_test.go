package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// awayReviewer are reviews of an upstream that may be away.
type awayReviewer struct {
	away   *atomic.Bool
	access accessReviewer
}

var errAway = apierrors.NewServiceUnavailable("away")

type awayTokens struct{ awayReviewer }

func (a awayTokens) Create(ctx context.Context, r *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if a.away.Load() {
		return nil, errAway
	}
	return tokenReviewer{}.Create(ctx, r, o)
}

func (a awayReviewer) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if a.away.Load() {
		return nil, errAway
	}
	return a.access.Create(ctx, r, o)
}

// offlineBench is a gateway whose upstream may go away, with everything that it answers.
type offlineBench struct {
	*gatewayBench
	away     atomic.Bool
	registry *prometheus.Registry
}

func newOfflineBench(t *testing.T, mode policy.Mode, offline policy.Offline, rules ...policy.Rule) *offlineBench {
	b := &offlineBench{registry: prometheus.NewRegistry()}
	b.gatewayBench = newGatewayBench(t, func(o *Options) {
		o.Registerer = b.registry
		upstream := o.Forwarder.(*fakeUpstream)
		upstream.response = func(*api.Request) *api.Response {
			if b.away.Load() {
				return api.StatusResponse(errAway, api.NegotiateStatus("", false))
			}
			return &api.Response{Status: 200, Body: []byte("upstream")}
		}
		reachable := func() bool { return !b.away.Load() }
		reviews := awayReviewer{&b.away, accessReviewer{upstream}}
		var err error
		if o.Authenticator, err = authn.New(authn.Options{
			TokenReviewer: awayTokens{reviews}, Settings: review.Settings{OfflineTTL: offline.TTL, Reachable: reachable},
		}); err != nil {
			t.Fatal(err)
		}
		o.Authorizer = authz.New(authz.Options{AccessReviewer: reviews, Settings: review.Settings{OfflineTTL: offline.TTL, Reachable: reachable}})
		o.Policy.Consistency, o.Policy.Offline, o.Reachable = policy.Consistency{Default: mode, MaxStaleness: 30 * time.Second}, offline, reachable
		o.Policy.Rules = rules
	})
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	return b
}

// leave makes both the source and the upstream unreachable.
func (b *offlineBench) leave() {
	b.away.Store(true)
	b.source.SetDown(true)
}

const podsAsHeld, podsNow, podsWatched = "GET /api/v1/pods?resourceVersion=0", "GET /api/v1/pods", "GET /api/v1/pods?watch=true&allowWatchBookmarks=true"

// TestOffline: who gets what while no API server answers.
func TestOffline(t *testing.T) {
	const jane, joe = "Authorization: Bearer jane", "Authorization: Bearer joe"
	hour := policy.Offline{TTL: time.Hour}
	onlyJane := []policy.Rule{
		{Match: policy.Match{Resources: []string{"nodes"}}, Settings: policy.Settings{Offline: policy.Yes}}, {Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{Offline: policy.Yes}},
	}
	for _, test := range []struct {
		name    string
		mode    policy.Mode
		offline policy.Offline
		rules   []policy.Rule
		line    string
		who     string
		after   time.Duration
		want    int
	}{
		{"any version, denied", policy.ModeStrict, hour, nil, podsAsHeld, jane, time.Minute, 503},
		{"any version, denied, still known", policy.ModeStrict, hour, nil, podsAsHeld, jane, 3 * time.Second, 200},
		{"any version, allowed", policy.ModeStrict, hour, onlyJane, podsAsHeld, jane, time.Minute, 200},
		{"any version, allowed to another", policy.ModeStrict, hour, onlyJane, podsAsHeld, joe, time.Minute, 503},
		{"any version, too old", policy.ModeStrict, policy.Offline{Allow: true, TTL: time.Minute}, nil, podsAsHeld, jane, 62 * time.Second, 503},
		{"strict", policy.ModeStrict, policy.Offline{Allow: true, TTL: time.Hour}, nil, podsNow, jane, time.Minute, 503},
		{"session, allowed", policy.ModeSession, hour, onlyJane, podsNow, jane, time.Minute, 200},
		{"session, allowed, at once", policy.ModeSession, hour, onlyJane, podsNow, jane, time.Millisecond, 200},
		{"session, allowed to another", policy.ModeSession, hour, onlyJane, podsNow, joe, time.Minute, 503},
		{"session, denied", policy.ModeSession, hour, nil, podsNow, jane, 5 * time.Second, 503},
		{"a watch, allowed", policy.ModeSession, hour, onlyJane, podsWatched, jane, time.Minute, 200},
		{"a watch of any version, strict", policy.ModeStrict, hour, onlyJane, podsWatched + "&resourceVersion=0", jane, time.Minute, 200},
		{"a watch of the latest state, strict", policy.ModeStrict, hour, onlyJane, podsWatched, jane, time.Minute, 503},
		{"a write", policy.ModeSession, policy.Offline{Allow: true, TTL: time.Hour}, nil, "POST /api/v1/namespaces/default/pods", jane, time.Minute, 503},
		{"an object that is not there", policy.ModeStrict, policy.Offline{Allow: true, TTL: time.Hour}, nil, "GET /api/v1/namespaces/default/pods/b?resourceVersion=0", jane, time.Minute, 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newOfflineBench(t, test.mode, test.offline, test.rules...)
				for _, who := range []string{jane, joe} {
					for _, line := range []string{test.line, podsAsHeld} {
						b.begin(line, who)
					}
				}
				b.leave()
				time.Sleep(test.after)
				began := time.Now()
				resp := b.begin(test.line, test.who)
				if resp.Status != test.want || time.Since(began) > time.Second {
					t.Fatalf("%d after %v: %s", resp.Status, time.Since(began), resp.Body)
				}
				marked := strings.HasPrefix(resp.Header.Get("Warning"), "110 ") && resp.Header.Has("Age")
				if marked != (test.want != 503) {
					t.Errorf("marked: %v, %v", marked, resp.Header)
				}
				if test.want == 503 && test.mode == policy.ModeStrict && test.line == podsAsHeld && resp.Header.Get("Retry-After") != "1" {
					t.Errorf("nobody is told to come back: %v", resp.Header)
				}
			})
		})
	}
}

// begin serves a request and gives it up.
func (b *offlineBench) begin(line, who string) *api.Response {
	resp := b.gateway.Serve(b.t.Context(), request(line, who))
	if resp.Stream != nil {
		resp.Stream.Stop()
	}
	resp.Done(0, nil)
	return resp
}

// TestOfflineSessionHoldsWrites: a session read is not answered without a write that was.
func TestOfflineSessionHoldsWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newOfflineBench(t, policy.ModeSession, policy.Offline{Allow: true, TTL: time.Hour})
		b.do(podsNow)
		b.upstream.response = func(*api.Request) *api.Response {
			if b.away.Load() {
				return api.StatusResponse(errAway, api.NegotiateStatus("", false))
			}
			return &api.Response{Status: http.StatusCreated, Body: []byte(`{"kind":"Pod","metadata":{"resourceVersion":"1000000"}}`)}
		}
		b.do("POST /api/v1/namespaces/default/pods")
		b.leave()
		time.Sleep(5 * time.Second)
		if status, body, _ := b.do(podsNow); status != 503 {
			t.Errorf("%d %s", status, body)
		}
		if status, body, _ := b.do(podsAsHeld); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	})
}
