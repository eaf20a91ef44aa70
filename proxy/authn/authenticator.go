package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	certauth "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Authenticator finds out who sent a request, as kube-apiserver does and in its order: front-proxy
// headers, client certificate, bearer token, anonymous. It is safe for concurrent use and owns no
// goroutine.
type Authenticator struct {
	opts        Options
	frontProxy  *frontProxy // nil if no front proxy is trusted
	clientCerts *verifier   // nil without CAs of clients
	verifiers   []*verifier // those of clientCerts and frontProxy
	tokens      *tokens     // nil if tokens are rejected
	credentials credentialHeaders
	metrics     *metrics
	noClientCA  rate.Sometimes

	gatewayToken       gatewayToken
	gateway, anonymous *Identity
	clientCAs          atomic.Pointer[caUnion]
}

// New returns an Authenticator. It reads the CA files, which must be valid, and follows changes of
// them.
func New(opts Options) (*Authenticator, error) {
	opts.setDefaults()
	a := &Authenticator{
		opts: opts, metrics: newMetrics(opts.Registerer), noClientCA: rate.Sometimes{Interval: review.LogInterval},
		credentials: newCredentialHeaders(opts.RequestHeader), gatewayToken: hashGatewayToken(opts.GatewayToken),
	}
	if opts.RequestHeader.CAFile != "" {
		ca, err := openCAFile(opts.RequestHeader.CAFile, nil, opts.Log)
		if err != nil {
			return nil, err
		}
		a.frontProxy = &frontProxy{opts: opts.RequestHeader, verifier: newVerifier(ca, opts.CacheSize)}
		a.verifiers = append(a.verifiers, a.frontProxy.verifier)
	}
	if opts.ClientCAFile != "" || len(opts.ClientCAs) > 0 {
		ca, err := openCAFile(opts.ClientCAFile, opts.ClientCAs, opts.Log)
		if err != nil {
			return nil, err
		}
		a.clientCerts = newVerifier(ca, opts.CacheSize)
		a.verifiers = append(a.verifiers, a.clientCerts)
	}
	if opts.TokenReviewer != nil {
		a.tokens = newTokens(opts, a.metrics.tokens)
	}
	a.register(opts.Registerer)

	// Recorded for requests on the sidecar listener; no decision depends on the name.
	gateway := *NewUser(&user.DefaultInfo{Name: "kubeweir"})
	gateway.gateway = true
	a.gateway = &Identity{User: &gateway, Source: Gateway}
	a.anonymous = &Identity{Source: Anonymous, User: NewUser(&user.DefaultInfo{
		Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}})}
	return a, nil
}

// register registers the gauges.
func (a *Authenticator) register(reg prometheus.Registerer) {
	gaugefunc.Register(reg, "kubeweir_authentication_certificate_cache_entries",
		"Client certificates, valid and invalid, whose verification is cached.", func() (n int) {
			for _, v := range a.verifiers {
				n += v.cached()
			}
			return n
		})
	if a.tokens == nil {
		return
	}
	gaugefunc.Register(reg, "kubeweir_authentication_cache_entries", "Cached reviews of bearer tokens.", a.tokens.cached)
	gaugefunc.Register(reg, "kubeweir_authentication_cache_entries_limit",
		"Limit on cached reviews of bearer tokens, and on cached client certificates.", func() int { return a.opts.CacheSize })
	gaugefunc.Register(reg, "kubeweir_authentication_newcomers",
		"Requests that wait for the review of an unverified bearer token.", a.tokens.unverified.requests.Load)
}

// Authenticate returns who sent r, and removes the credentials from r's header: Authorization, the
// front proxy's headers whether trusted or not, and tokens in WebSocket subprotocols. If another
// credential authenticates a WebSocket handshake, the token is not reviewed and stays: it is a
// subprotocol then, which the response accepts or not.
//
// StatusError returns the response for an error. An invalid credential is an error even if
// anonymous requests are accepted, unless another credential of the request is valid.
func (a *Authenticator) Authenticate(ctx context.Context, r *api.Request) (*Identity, error) {
	id, err := a.authenticate(ctx, r)
	a.credentials.remove(&r.Header)
	if err != nil || !isWebSocket(r) || r.Listener == api.ListenerSidecar {
		removeTokens(&r.Header)
	}
	if err != nil {
		a.metrics.failure(err)
		a.logUnusedCertificate(r)
		return nil, err
	}
	a.metrics.requests[id.Source.String()].Inc()
	return id, nil
}

// logUnusedCertificate logs that clients present a certificate although no CA is configured to
// verify it. Those clients see only a 401.
func (a *Authenticator) logUnusedCertificate(r *api.Request) {
	if a.clientCerts != nil || len(r.PeerCertificates) == 0 || r.Listener == api.ListenerSidecar {
		return
	}
	a.noClientCA.Do(func() {
		a.opts.Log.Warn("client certificate ignored; to accept client certificates, "+
			"name the CA of the cluster's client certificates with --client-ca-file",
			"subject", r.PeerCertificates[0].Subject.CommonName, "remote", r.RemoteAddr)
	})
}

func (a *Authenticator) authenticate(ctx context.Context, r *api.Request) (*Identity, error) {
	if r.Listener == api.ListenerSidecar {
		if err := checkSidecar(r, a.opts.SidecarHosts); err != nil {
			return nil, err
		}
		return a.gateway, nil
	}
	var errs []error
	for _, try := range [...]func(context.Context, *api.Request) (*Identity, error){
		a.byFrontProxy, a.byCertificate, a.byAuthorization, a.byWebSocket,
	} {
		id, err := try(ctx, r)
		if err != nil {
			errs = append(errs, err)
		} else if id != nil {
			return id, nil
		}
	}
	// An unavailable upstream or a misconfigured gateway is a more useful error than an invalid
	// credential.
	for _, err := range errs {
		if !errors.Is(err, ErrUnauthenticated) {
			return nil, err
		}
	}
	switch {
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	case a.opts.Anonymous && (len(a.opts.AnonymousPaths) == 0 || slices.Contains(a.opts.AnonymousPaths, r.Path)):
		return a.anonymous, nil
	}
	return nil, fmt.Errorf("%w: no credentials", ErrUnauthenticated)
}

// byFrontProxy trusts the headers of an authenticating proxy.
func (a *Authenticator) byFrontProxy(_ context.Context, r *api.Request) (*Identity, error) {
	if a.frontProxy == nil || len(r.PeerCertificates) == 0 {
		return nil, nil
	}
	if err := a.frontProxy.verify(r.PeerCertificates); err != nil {
		return nil, fmt.Errorf("%w: front proxy: %w", ErrUnauthenticated, err)
	}
	u := a.frontProxy.user(r.Header)
	if u == nil {
		return nil, nil
	}
	return &Identity{User: u, Source: FrontProxy}, nil
}

// byCertificate takes the subject of a client certificate.
func (a *Authenticator) byCertificate(_ context.Context, r *api.Request) (*Identity, error) {
	if a.clientCerts == nil || len(r.PeerCertificates) == 0 {
		return nil, nil
	}
	id, err := a.clientCerts.verify(r.PeerCertificates, identityOfCertificate)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return id, nil
}

// identityOfCertificate returns nil for a certificate without a common name.
func identityOfCertificate(presented, chain certificates) (*Identity, error) {
	response, ok, err := certauth.CommonNameUserConversion.User(chain)
	if err != nil || !ok {
		return nil, err
	}
	return &Identity{
		User: authenticatedUser(user.DefaultInfo{
			Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: response.User.GetExtra(),
		}),
		Source:     ClientCertificate,
		credential: sha256.Sum256(presented[0].Raw),
		chain:      presented,
	}, nil
}

// byAuthorization reviews the token of the Authorization header.
func (a *Authenticator) byAuthorization(ctx context.Context, r *api.Request) (*Identity, error) {
	return a.byToken(ctx, bearerToken(r.Header.Get("Authorization")))
}

// byWebSocket reviews the token among a WebSocket's subprotocols, and removes it from them if it is
// valid.
func (a *Authenticator) byWebSocket(ctx context.Context, r *api.Request) (*Identity, error) {
	token, err := webSocketToken(r)
	if err != nil {
		return nil, err
	}
	id, err := a.byToken(ctx, token)
	if id != nil {
		removeTokens(&r.Header)
	}
	return id, err
}

func (a *Authenticator) byToken(ctx context.Context, token string) (*Identity, error) {
	if token == "" {
		return nil, nil
	}
	if a.gatewayToken.is(token) {
		return a.gateway, nil
	}
	if looksLikeGatewayToken(token) {
		return nil, fmt.Errorf("%w: the token is that of another gateway, or of an earlier CA of this one", ErrUnauthenticated)
	}
	if a.tokens == nil {
		return nil, fmt.Errorf("%w: bearer tokens are not accepted", ErrUnauthenticated)
	}
	key := a.tokens.key(token)
	result, err := a.tokens.lookup(ctx, key, token)
	switch {
	case errors.Is(err, ErrUndetermined): // 401 as in kube-apiserver
		return nil, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case err != nil:
		return nil, err
	}
	return &Identity{User: result.user, Source: BearerToken, Token: Token(token), Offline: result.offline, Reviews: result.reviews, credential: key}, nil
}

// SetUnverifiedTokens replaces Options.UnverifiedTokens.
func (a *Authenticator) SetUnverifiedTokens(limit int) {
	if a.tokens != nil {
		a.tokens.unverified.limit.Store(int64(limit))
	}
}

// SetOfflineTTL replaces Settings.OfflineTTL.
func (a *Authenticator) SetOfflineTTL(ttl time.Duration) {
	if a.tokens != nil {
		a.tokens.reviews.SetOfflineTTL(ttl)
	}
}

// Revalidate checks that the credential of id is still valid for the same user in the same groups:
// it reviews the token again if its review is no longer cached, and verifies the certificate again.
// It cannot check what a front proxy vouched for. The error is ErrUnauthenticated if the credential
// is invalid, and another one if that is unknown. offline is true if the upstream is unavailable
// and an older review was used.
func (a *Authenticator) Revalidate(ctx context.Context, id *Identity) (offline bool, err error) {
	var now *User
	switch id.Source {
	case BearerToken:
		result, err := a.tokens.lookup(ctx, id.credential, string(id.Token))
		if err != nil {
			return false, err
		}
		now, offline = result.user, result.offline
	case ClientCertificate:
		again, err := a.clientCerts.verify(id.chain, identityOfCertificate)
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
		}
		if again != nil {
			now = again.User
		}
	default:
		return false, nil
	}
	if now == nil || !now.samePrincipal(id.User) {
		return false, fmt.Errorf("%w: the credential stands for another user now", ErrUnauthenticated)
	}
	return offline, nil
}

// CachedUser returns a user of that name who was authenticated lately, with the groups that the
// credential gave, or nil. It creates no review.
func (a *Authenticator) CachedUser(name string) *User {
	if a.tokens != nil {
		now := a.tokens.results.Now()
		for e := range a.tokens.results.All() {
			if u := e.Value.user; u != nil && e.Fresh(now) && u.GetName() == name {
				return u
			}
		}
	}
	for _, v := range a.verifiers {
		for e := range v.valid.All() {
			if id := e.Value.identity; id != nil && id.User.GetName() == name {
				return id.User
			}
		}
	}
	return nil
}

// ClientCAs returns the CAs whose certificates clients may present, for the TLS handshake to name;
// nil without any. The handshake must not verify against them: an invalid certificate is answered
// 401.
func (a *Authenticator) ClientCAs() *x509.CertPool {
	var cas []*caCerts
	for _, v := range a.verifiers {
		cas = append(cas, v.ca.current())
	}
	switch len(cas) {
	case 0:
		return nil
	case 1:
		return cas[0].pool
	}
	if u := a.clientCAs.Load(); u != nil && slices.Equal(u.of, cas) {
		return u.pool
	}
	union := &caUnion{of: cas, pool: newCACerts(slices.Concat(cas[0].certs, cas[1].certs)).pool}
	a.clientCAs.Store(union)
	return union.pool
}

// caUnion is the pool of two CA files.
type caUnion struct {
	of   []*caCerts
	pool *x509.CertPool
}
