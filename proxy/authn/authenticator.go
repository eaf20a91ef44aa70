package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certauth "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Options say who is believed. Zero durations and sizes stand for
// their defaults; everything else is off when it is zero.
type Options struct {
	// TokenReviewer reviews bearer tokens; nil refuses every token.
	TokenReviewer TokenReviewer
	// Audiences that a token must be meant for, as in TokenReviewSpec; nil are
	// the upstream's own.
	Audiences []string
	// ClientCAFile holds the CAs of client certificates, in PEM; ClientCAs are more
	// of them, in PEM as well.
	ClientCAFile string
	ClientCAs    []byte
	// RequestHeader describes authenticating front proxies.
	RequestHeader RequestHeaderOptions
	// Anonymous lets requests without credentials in as system:anonymous.
	Anonymous bool
	// GatewayUser is whom requests on the sidecar listener are recorded as.
	// Nothing is decided by it. Default: kubeweir.
	GatewayUser user.Info
	// GatewayToken is a bearer token that stands for the gateway's own identity, as the
	// sidecar listener does; "" for none.
	GatewayToken Token
	// SidecarHosts are host names and addresses, without port, that clients of
	// the sidecar listener may call it by, besides loopback ones.
	SidecarHosts []string

	// SuccessTTL is how long an accepted token is believed without asking again
	// (default 10 s), FailureTTL how long a refused one is refused (default 2 s).
	SuccessTTL, FailureTTL time.Duration
	// OfflineTTL is how much longer than SuccessTTL an accepted token is believed
	// while the upstream cannot be asked, or takes more than 2 s, unless it has expired
	// by what it says itself (Identity.Offline). Default: not at all. SetOfflineTTL changes it.
	OfflineTTL time.Duration
	// Told is called when there is something that Save did not have. It must not block.
	Told func()
	// Reachable tells whether the upstream can be reached, as far as is known; nil if
	// nobody knows. Once it can again, it is asked at once.
	Reachable func() bool
	// CacheSize bounds the remembered tokens, of which users, by their names, have shares, and
	// the remembered certificates (default 8192 of each).
	CacheSize int
	// ReviewTimeout is how long a request waits for the review of its token (default
	// 10 s).
	ReviewTimeout time.Duration
	// Newcomers is how many requests at a time wait for the review of a token that was
	// never seen good; one more is asked to come back (default 500).
	Newcomers int

	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Log is never given a credential. Default: discarded.
	Log *slog.Logger
}

func (o *Options) setDefaults() {
	review.SetDefault(&o.SuccessTTL, defaults.TokenTTL)
	review.SetDefault(&o.FailureTTL, defaults.TokenFailureTTL)
	review.SetDefault(&o.CacheSize, defaults.TokenCacheSize)
	review.SetDefault(&o.ReviewTimeout, defaults.ReviewTimeout)
	review.SetDefault(&o.Newcomers, defaultNewcomers)
	if o.GatewayUser == nil {
		o.GatewayUser = &user.DefaultInfo{Name: "kubeweir"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Told == nil {
		o.Told = func() {}
	}
}

// Authenticator finds out who sent a request, as kube-apiserver does and in its
// order: front-proxy headers, client certificate, bearer token, anonymous. It is
// safe for concurrent use and owns no goroutine.
type Authenticator struct {
	opts        Options
	frontProxy  *frontProxy // nil when none is trusted
	clientCerts *verifier   // nil without CAs of clients
	tokens      *tokens     // nil when tokens are refused
	stripper    stripper
	metrics     *authenticationMetrics
	noClientCA  review.LogLimit

	gatewayToken       [sha256.Size]byte // hash of GatewayToken
	gateway, anonymous *Identity
	clientCAs          atomic.Pointer[unionOfCAs]
}

// New reads the CA files, which must be good, and follows them.
func New(opts Options) (*Authenticator, error) {
	opts.setDefaults()
	opts.RequestHeader.setDefaults()
	a := &Authenticator{opts: opts, metrics: newAuthenticationMetrics(opts.Registerer)}
	if opts.RequestHeader.CAFile != "" {
		ca, err := openCAFile(opts.RequestHeader.CAFile, nil, opts.Log)
		if err != nil {
			return nil, err
		}
		a.frontProxy = &frontProxy{opts: opts.RequestHeader, verifier: newVerifier(ca, opts.CacheSize)}
	}
	if opts.ClientCAFile != "" || len(opts.ClientCAs) > 0 {
		ca, err := openCAFile(opts.ClientCAFile, opts.ClientCAs, opts.Log)
		if err != nil {
			return nil, err
		}
		a.clientCerts = newVerifier(ca, opts.CacheSize)
	}
	if opts.TokenReviewer != nil {
		a.tokens = newTokens(opts, a.metrics)
		a.metrics.tokens(opts.Registerer, a.tokens)
	}
	a.gatewayToken = sha256.Sum256([]byte(opts.GatewayToken))
	a.stripper = newStripper(opts.RequestHeader)
	a.metrics.certificates(opts.Registerer, a.knownCertificates)

	gateway := *NewUser(opts.GatewayUser)
	gateway.gateway = true
	a.gateway = &Identity{User: &gateway, Source: Gateway}
	a.anonymous = &Identity{Source: Anonymous, User: NewUser(&user.DefaultInfo{
		Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}})}
	return a, nil
}

// knownCertificates is of how many the verification is remembered.
func (a *Authenticator) knownCertificates() (n int) {
	if a.frontProxy != nil {
		n += a.frontProxy.verifier.remembered()
	}
	if a.clientCerts != nil {
		n += a.clientCerts.remembered()
	}
	return n
}

// Authenticate returns who sent r, and takes the credentials out of r's header:
// Authorization, the front proxy's headers whether honoured or not, and tokens in
// WebSocket subprotocols. Where another credential tells who sent a WebSocket's
// handshake, the token was not looked at and stays: it is a subprotocol then, of which
// the answer says whether it is agreed to.
//
// StatusError tells the answer for an error. A credential that is not valid is
// an error even where anonymous requests are allowed, unless another credential
// of the request is.
func (a *Authenticator) Authenticate(ctx context.Context, r *api.Request) (*Identity, error) {
	id, err := a.authenticate(ctx, r)
	a.stripper.strip(&r.Header)
	if err != nil || !isWebSocket(r) || r.Listener == api.ListenerSidecar {
		dropTokens(&r.Header)
	}
	if err != nil {
		a.metrics.failure(err)
		a.explain(r)
		return nil, err
	}
	a.metrics.bySource[id.Source].Inc()
	return id, nil
}

// explain tells the operator, from time to time, of clients that present a
// certificate where no CA was named to check it by: they only see a 401.
func (a *Authenticator) explain(r *api.Request) {
	if a.clientCerts == nil && len(r.PeerCertificates) > 0 && r.Listener != api.ListenerSidecar && a.noClientCA.Allow() {
		a.opts.Log.Warn("a client presented a certificate, which is not looked at; "+
			"to let clients in by certificate name the authority of the cluster's client certificates with --client-ca-file",
			"subject", r.PeerCertificates[0].Subject.CommonName, "remote", r.RemoteAddr)
	}
}

func (a *Authenticator) authenticate(ctx context.Context, r *api.Request) (*Identity, error) {
	if r.Listener == api.ListenerSidecar {
		if err := a.checkSidecar(r); err != nil {
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
	if len(errs) > 0 {
		return nil, worst(errs)
	}
	if a.opts.Anonymous {
		return a.anonymous, nil
	}
	return nil, fmt.Errorf("%w: no credentials", ErrUnauthenticated)
}

// worst picks the error to answer with: that the upstream could not be asked, or
// the gateway is set up wrongly, says more than that some credential is bad.
func worst(errs []error) error {
	for _, err := range errs {
		if !errors.Is(err, ErrUnauthenticated) {
			return err
		}
	}
	return errors.Join(errs...)
}

// byFrontProxy honours the headers of an authenticating proxy.
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

// identityOfCertificate is nil for a certificate without a common name.
func identityOfCertificate(presented, chain certificates) (*Identity, error) {
	response, ok, err := certauth.CommonNameUserConversion.User(chain)
	if err != nil || !ok {
		return nil, err
	}
	info := withAuthenticated(user.DefaultInfo{
		Name:   response.User.GetName(),
		UID:    response.User.GetUID(),
		Groups: response.User.GetGroups(),
		Extra:  response.User.GetExtra(),
	})
	return &Identity{
		User:       NewUser(&info),
		Source:     ClientCertificate,
		credential: sha256.Sum256(presented[0].Raw),
		chain:      presented,
	}, nil
}

// byAuthorization reviews the token of the Authorization header.
func (a *Authenticator) byAuthorization(ctx context.Context, r *api.Request) (*Identity, error) {
	return a.byToken(ctx, bearerToken(r.Header.Get("Authorization")))
}

// byWebSocket reviews the token among a WebSocket's subprotocols, which are the others
// when it is good.
func (a *Authenticator) byWebSocket(ctx context.Context, r *api.Request) (*Identity, error) {
	token, err := webSocketToken(r)
	if err != nil {
		return nil, err
	}
	id, err := a.byToken(ctx, token)
	if id != nil {
		dropTokens(&r.Header)
	}
	return id, err
}

func (a *Authenticator) byToken(ctx context.Context, token string) (*Identity, error) {
	if token == "" {
		return nil, nil
	}
	if a.isGatewayToken(token) {
		return a.gateway, nil
	}
	if isOfGateways(token) {
		return nil, fmt.Errorf("%w: the token is that of another gateway, or of an earlier CA of this one", ErrUnauthenticated)
	}
	if a.tokens == nil {
		return nil, fmt.Errorf("%w: bearer tokens are not accepted", ErrUnauthenticated)
	}
	key := a.tokens.key(token)
	answer, err := a.tokens.lookup(ctx, key, token)
	if err != nil {
		return nil, err
	}
	return &Identity{User: answer.user, Source: BearerToken, Token: Token(token), Offline: answer.offline, Asked: answer.asked, credential: key}, nil
}

// SetNewcomers replaces Options.Newcomers.
func (a *Authenticator) SetNewcomers(most int) {
	if a.tokens != nil {
		a.tokens.newcomers.max.Store(int64(most))
	}
}

// SetOfflineTTL replaces Options.OfflineTTL. Tokens that were accepted before are
// remembered for as long as it was then.
func (a *Authenticator) SetOfflineTTL(ttl time.Duration) {
	if a.tokens != nil {
		a.tokens.offlineTTL.Store(ttl)
	}
}

// NewGatewayToken makes a token for Options.GatewayToken of a secret.
func NewGatewayToken(secret [sha256.Size]byte) Token {
	return Token(gatewayTokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:]))
}

const gatewayTokenPrefix = "kubeweir-"

// isOfGateways tells whether a token looks like those that NewGatewayToken makes. One is good at the gateway that made it,
// for everything that this gateway may do, so no other sends it on to be reviewed. Its length tells it from a token that
// somebody has named so.
func isOfGateways(token string) bool {
	secret, ok := strings.CutPrefix(token, gatewayTokenPrefix)
	return ok && len(secret) == base64.RawURLEncoding.EncodedLen(sha256.Size)
}

// isGatewayToken tells whether a client has the gateway's own identity by its token. It is
// something that a web page does not have, unlike a way to the listener, so that it does
// not matter by which name the gateway was called.
func (a *Authenticator) isGatewayToken(token string) bool {
	if a.opts.GatewayToken == "" || len(token) != len(a.opts.GatewayToken) { // their form is no secret
		return false
	}
	hash := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(hash[:], a.gatewayToken[:]) == 1
}

// Revalidate checks that the credential behind id is still good for the same
// user in the same groups: the token is reviewed again when its review is no
// longer remembered, the certificate verified again. What a front proxy vouched
// for cannot be checked and stays good. The error is ErrUnauthenticated when it
// is not good any more, and something else when that is unknown.
//
// offline tells that the upstream could not be asked, and said so last.
func (a *Authenticator) Revalidate(ctx context.Context, id *Identity) (offline bool, err error) {
	var now *User
	switch id.Source {
	case BearerToken:
		answer, err := a.tokens.lookup(ctx, id.credential, string(id.Token))
		if err != nil {
			return false, err
		}
		now, offline = answer.user, answer.offline
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

// ClientCAs are the CAs whose certificates clients may present, for the TLS
// handshake to name; nil when there are none. The handshake must not verify
// against them: a certificate that is not good is answered 401.
func (a *Authenticator) ClientCAs() *x509.CertPool {
	var front, client *caCerts
	if a.frontProxy != nil {
		front = a.frontProxy.verifier.ca.current()
	}
	if a.clientCerts != nil {
		client = a.clientCerts.ca.current()
	}
	switch {
	case front == nil && client == nil:
		return nil
	case front == nil:
		return client.pool
	case client == nil:
		return front.pool
	}
	if u := a.clientCAs.Load(); u != nil && u.front == front && u.client == client {
		return u.pool
	}
	both := newCACerts(slices.Concat(front.certs, client.certs))
	a.clientCAs.Store(&unionOfCAs{front: front, client: client, pool: both.pool})
	return both.pool
}

// unionOfCAs remembers the pool that was made of two files.
type unionOfCAs struct {
	front, client *caCerts
	pool          *x509.CertPool
}
