package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/rejectiontest"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// noReviews answers no review.
type noReviews struct{ err error }

func (n noReviews) Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	return nil, n.err
}

// slowReviews and slowTokenReviews answer a review when nobody waits for it any more.
type (
	slowReviews      struct{}
	slowTokenReviews struct{}
)

func (slowReviews) Create(ctx context.Context, _ *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slowTokenReviews) Create(ctx context.Context, _ *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// rejectedCase is a request that is refused.
type rejectedCase struct {
	why     reason.Rejection
	name    string // of a further case
	line    string
	header  string
	message string // in the message
	options func(*testing.T, *Options)
	change  func(*testing.T, *api.Request)
	before  func(*gatewayBench)
}

const atOnce = "Too many requests, please try again later."

// TestRejectionsAreCounted has a request for each reason for which a Gateway refuses one that comes alone.
func TestRejectionsAreCounted(t *testing.T) {
	full := func(g *inflight.Limiter) { g.SetLimit(1); g.Acquire("other", 1) }
	reviews := func(reviewer authz.AccessReviewer) func(*testing.T, *Options) {
		return func(_ *testing.T, o *Options) {
			o.Authorizer = authz.New(authz.Options{AccessReviewer: reviewer})
		}
	}
	ruled := func(s policy.Settings) func(*testing.T, *Options) {
		return func(_ *testing.T, o *Options) {
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"admin"}}, Settings: s}}
		}
	}
	for _, c := range []rejectedCase{
		{why: reason.Blocked, line: anyPods, header: "User-Agent: k9s/1", message: `"k9s*"`, options: func(t *testing.T, o *Options) {
			o.Blocked = policy.NewBlocked(nil)
			if err := o.Blocked.Block("k9s*", time.Time{}); err != nil {
				t.Fatal(err)
			}
		}},
		{why: reason.Blocked, name: "by a rule", line: anyPods, message: "a rule of kubeweir (block: true) blocks this client", options: ruled(policy.Settings{Block: policy.Yes})},
		{why: reason.UnidentifiedLimit, line: anyPods, message: atOnce, before: func(b *gatewayBench) {
			b.gateway.slots.unidentified.SetLimit(1)
			b.gateway.slots.unidentified.Acquire()
		}},
		{why: reason.Unauthenticated, line: anyPods, header: "Authorization: Bearer bad", message: "Unauthorized"},
		{why: reason.NotLocal, line: anyPods, message: "the Host header is not an address of this machine", change: func(_ *testing.T, r *api.Request) {
			r.Listener, r.RemoteAddr, r.Host = api.ListenerSidecar, "127.0.0.1:1", "example.com"
		}},
		{why: reason.ReviewUnavailable, line: anyPods, message: "cannot authenticate or authorize the request", options: reviews(noReviews{errors.New("away")})},
		{why: reason.ReviewRejected, line: anyPods, message: "the gateway's log states the cause", options: reviews(noReviews{apierrors.NewBadRequest("no such field")})},
		{why: reason.ShortLimit, line: anyPods, message: atOnce, before: func(b *gatewayBench) { full(b.gateway.slots.inFlight) }},
		{why: reason.ShortShare, line: anyPods, message: atOnce, before: func(b *gatewayBench) {
			b.gateway.slots.inFlight.SetLimit(2)
			b.gateway.slots.inFlight.Acquire("admin", 1)
		}},
		{why: reason.PriorityLevelFull, line: anyPods, message: atOnce, options: func(_ *testing.T, o *Options) {
			o.Fairness = &testFairness{full: true, rejects: true}
		}},
		{why: reason.LongLimit, line: anyPods + "&watch=true", message: atOnce, before: func(b *gatewayBench) { full(b.gateway.slots.longRunning) }},
		{why: reason.LongShare, line: anyPods + "&watch=true", message: atOnce, before: func(b *gatewayBench) {
			b.gateway.slots.longRunning.SetLimit(2)
			b.gateway.slots.longRunning.Acquire("admin", 1)
		}},
		{why: reason.BytesLimit, line: anyPods + "&watch=true", header: "X-Long: " + strings.Repeat("x", 8<<10), message: atOnce,
			before: func(b *gatewayBench) { full(b.gateway.slots.longRequestBytes) }},
		{why: reason.BytesShare, line: anyPods + "&watch=true", header: "X-Long: " + strings.Repeat("x", 8<<10), message: atOnce, before: func(b *gatewayBench) {
			b.gateway.slots.longRequestBytes.SetLimit(5 << 10)
			b.gateway.slots.longRequestBytes.Acquire("admin", 1)
		}},
		{why: reason.NotAudited, line: anyPods, message: "failed to store audit event", options: func(t *testing.T, o *Options) {
			log, err := audit.Open(audit.Options{Stdout: brokenWriter{}, File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlockingStrict}},
				Policy: &auditapi.Policy{Rules: []auditapi.PolicyRule{{Level: auditapi.LevelMetadata}}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = log.Close(context.Background()) })
			o.Audit = log
		}},
		{why: reason.ImpersonationInvalid, line: anyPods, header: "Impersonate-Group: a", message: "without impersonating a user name"},
		{why: reason.ImpersonationForbidden, line: anyPods, header: "Impersonate-User: jane", message: "cannot impersonate",
			options: reviews(denies{}), change: byCertificate("bob")},
		{why: reason.ReadOnly, line: "DELETE /api/v1/namespaces/a/pods/b", message: "a rule of kubeweir (readOnly: true) restricts this client to reads", options: ruled(policy.Settings{ReadOnly: policy.Yes})},
		{why: reason.OverBudget, line: aVersion, message: "rules[0] of kubeweir", options: ruled(policy.Settings{UpstreamBytesPerSecond: 1}), before: func(b *gatewayBench) {
			r := request("POST /api/v1/namespaces/a/pods")
			r.ContentLength = 1 << 20
			b.gateway.Serve(b.t.Context(), r).Done(0, nil)
		}},
		{why: reason.Redacted, line: "GET /api/v1/namespaces/a/pods/b/log", message: "a rule of kubeweir (view: redacted) shows this client a redacted view", options: ruled(policy.Settings{Redacted: policy.Yes})},
		{why: reason.Forbidden, line: anyPods, message: `User "admin" cannot list resource "pods"`, options: reviews(denies{})},
		{why: reason.ShardUnknown, line: anyPods + "&shardSelector=x&unknown=1", message: "the shard cannot be read from the cache"},
		{why: reason.QueryUnserved, line: anyPods + "&offset=1&unknown=1", message: "offset"},
		{why: reason.NotSent, line: aVersion, message: "cannot be passed on", change: byCertificate("bob ")},
	} {
		t.Run(c.why.String()+" "+c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				r := request(c.line, "X-Test: 1", orElse(c.header, "X-Test: 1"))
				if c.change != nil {
					c.change(t, r)
				}
				b := newGatewayBench(t, func(o *Options) {
					o.Registerer = registry
					if len(r.PeerCertificates) > 0 {
						o.Authenticator = certified(t, r.PeerCertificates[0])
					}
					if c.options != nil {
						c.options(t, o)
					}
				})
				if c.before != nil {
					c.before(b)
				}
				rejectiontest.CheckResponse(t, registry, c.why, c.message, b.gateway.Serve(t.Context(), r))
			})
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// denies allows nobody anything.
type denies struct{}

func (denies) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	return r.DeepCopy(), nil
}

// byCertificate makes a request one of a user with a certificate, which the gateway has to impersonate.
func byCertificate(name string) func(*testing.T, *api.Request) {
	return func(t *testing.T, r *api.Request) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		r.PeerCertificates = []*x509.Certificate{certificate}
		r.Header.Del("Authorization")
	}
}

// certified lets in who has a certificate by ca, as ca itself has.
func certified(t *testing.T, ca *x509.Certificate) *authn.Authenticator {
	t.Helper()
	a, err := authn.New(authn.Options{ClientCAs: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRejectionsAmongOthersAreCounted: of a request while others wait.
func TestRejectionsAmongOthersAreCounted(t *testing.T) {
	for _, c := range []struct {
		rejectedCase
		others int
		other  string // line with the number of it
		header string
		limits cache.Limits
	}{
		{rejectedCase{why: reason.UnverifiedTokens, line: anyPods, message: "too many credentials", options: func(t *testing.T, o *Options) {
			var err error
			if o.Authenticator, err = authn.New(authn.Options{TokenReviewer: slowTokenReviews{}, UnverifiedTokens: 1}); err != nil {
				t.Fatal(err)
			}
		}}, 1, "GET /version?%d", "Authorization: Bearer other", cache.Limits{}},
		{rejectedCase{why: reason.UserReviews, line: anyPods, message: "too many of the user's permissions", options: func(_ *testing.T, o *Options) {
			o.Authorizer = authz.New(authz.Options{AccessReviewer: slowReviews{}})
		}}, 64, "GET /api/v1/namespaces/a%d/pods?resourceVersion=0", "X-Test: 1", cache.Limits{}},
		{rejectedCase{why: reason.CacheStarting, line: anyPods, message: "the cache is starting"}, 1, anyPods + "&limit=%d", "X-Test: 1", cache.Limits{StartWaiters: 1}},
	} {
		t.Run(c.why.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				var src *cachetest.Source
				b := newGatewayBenchFrom(t, nil, func(s *cachetest.Source) source.Source { src = s; return s }, func(o *Options) {
					o.Registerer = registry
					limitStarts(t, o, src, c.limits)
					if c.options != nil {
						c.options(t, o)
					}
				})
				src.SetSilent(c.why == reason.CacheStarting)
				var others sync.WaitGroup
				for i := range c.others {
					others.Go(func() {
						b.gateway.Serve(t.Context(), request(fmt.Sprintf(c.other, i), c.header)).Done(0, nil)
					})
				}
				synctest.Wait()
				rejectiontest.CheckResponse(t, registry, c.why, c.message, b.gateway.Serve(t.Context(), request(c.line)))
				src.SetSilent(false)
				others.Wait()
			})
		})
	}
}

// limitStarts gives a gateway a cache with limits.
func limitStarts(t *testing.T, o *Options, source source.Source, limits cache.Limits) {
	t.Helper()
	manager, err := cache.NewManager(cache.Options{Source: source, Logger: slog.New(slog.DiscardHandler), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	o.Manager = manager
	o.Resources = discovery.NewResources(fakeDiscovery{cachetest.Pods: {
		GroupVersionResource: cachetest.Pods, Kind: "Pod", Namespaced: true, Verbs: []string{"get", "list", "watch"},
	}}, defaultPrinters{}, manager, o.Logger, discovery.Options{})
}

// TestRejectionsOfflineAreCounted: of a read while no API server answers.
func TestRejectionsOfflineAreCounted(t *testing.T) {
	for why, c := range map[reason.Rejection]struct {
		offline policy.Offline
		message string
		before  func(*offlineBench)
	}{
		reason.OfflineDenied: {policy.Offline{TTL: time.Hour}, "cannot authenticate or authorize the request", func(b *offlineBench) {
			b.leave()
			time.Sleep(time.Minute)
		}},
		// The gateway reviewed the client's permissions after the feed broke. Otherwise they would
		// not be known any more either.
		reason.OfflineExpired: {policy.Offline{Allow: true, TTL: time.Minute}, "the cached data is older than --offline-ttl allows", func(b *offlineBench) {
			b.source.SetDown(true)
			time.Sleep(40 * time.Second)
			b.begin(podsAsHeld, asJane)
			b.away.Store(true)
			time.Sleep(30 * time.Second)
		}},
	} {
		t.Run(why.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newOfflineBench(t, policy.ModeStrict, c.offline)
				b.begin(podsAsHeld, asJane)
				c.before(b)
				rejectiontest.CheckResponse(t, b.registry, why, c.message, b.gateway.Serve(t.Context(), request(podsAsHeld, asJane)))
			})
		})
	}
}

// TestRejectionsOfVisibleAreCounted: of a list and a watch of the namespaces that the user may see.
func TestRejectionsOfVisibleAreCounted(t *testing.T) {
	for why, c := range map[reason.Rejection]struct {
		line, message string
		before        func(*visibleBench)
	}{
		reason.VisibleUnserved: {podsNow, "served only from kubeweir's cache", func(b *visibleBench) { b.source.SetDown(true) }},
		reason.VisibleLimit:    {"GET /api/v1/pods?watch=1&labelSelector=x", "too many watches are being followed", func(b *visibleBench) { b.t.Cleanup(b.watch("GET /api/v1/pods?watch=1", asJane).leave) }},
	} {
		t.Run(why.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				b := newVisibleBench(t, func(o *Options) { o.Registerer, o.VisibleNamespaces = registry, 4*(32+4) })
				b.fill(1, "a", "b", "c", "d")
				b.grant(jane, "a", "b", "c")
				if status, body, _ := b.do(podsAsHeld, asJane); status != 200 {
					t.Fatalf("%d %s", status, body)
				}
				c.before(b)
				rejectiontest.CheckResponse(t, registry, why, c.message, b.gateway.Serve(t.Context(), request(c.line, asJane)))
			})
		})
	}
}
