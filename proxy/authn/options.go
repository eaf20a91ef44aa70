package authn

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Options configure an Authenticator. Zero durations and sizes select the defaults; everything else
// is off if it is zero.
type Options struct {
	// TokenReviewer reviews bearer tokens; nil rejects all tokens.
	TokenReviewer TokenReviewer
	// Audiences are those of TokenReviewSpec; nil selects the upstream's own.
	Audiences []string
	// ClientCAFile holds the CAs of client certificates, in PEM. ClientCAs are added to them.
	ClientCAFile string
	ClientCAs    []byte
	// RequestHeader describes authenticating front proxies.
	RequestHeader RequestHeaderOptions
	// Anonymous accepts requests without credentials as system:anonymous.
	Anonymous bool
	// GatewayUser is recorded for requests on the sidecar listener; no decision depends on it
	// (default "kubeweir").
	GatewayUser user.Info
	// GatewayToken is a bearer token for the gateway's own identity, which the sidecar listener
	// grants as well; "" for none.
	GatewayToken Token
	// SidecarHosts are host names and addresses, without port, that clients of the sidecar listener
	// may use besides loopback ones.
	SidecarHosts []string

	// SuccessTTL is how long an accepted token is valid without another review (default 10 s),
	// FailureTTL how long a rejected one is rejected (default 2 s).
	SuccessTTL, FailureTTL time.Duration
	// OfflineTTL is how much longer than SuccessTTL an accepted token is valid while the upstream
	// is unavailable or takes more than review.StaleWait, unless the token itself has expired (see
	// Identity.Offline). Default: 0. SetOfflineTTL changes it.
	OfflineTTL time.Duration
	// OnChange is called when there is something that Save did not return. It must not block.
	OnChange func()
	// Reachable reports whether the upstream is reachable; nil if that is unknown.
	Reachable func() bool
	// CacheSize limits the cached tokens and the cached certificates (default 8192 of each). Users
	// share the cached tokens.
	CacheSize int
	// ReviewTimeout is how long a request waits for the review of its token (default 10 s).
	ReviewTimeout time.Duration
	// UnverifiedTokens is how many requests wait for the review of an unverified token; further
	// ones are answered 429 (default 500).
	UnverifiedTokens int

	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Log never receives a credential. Default: discarded.
	Log *slog.Logger
}

func (o *Options) setDefaults() {
	o.SuccessTTL = cmp.Or(o.SuccessTTL, defaults.TokenTTL)
	o.FailureTTL = cmp.Or(o.FailureTTL, defaults.TokenFailureTTL)
	o.CacheSize = cmp.Or(o.CacheSize, defaults.TokenCacheSize)
	o.ReviewTimeout = cmp.Or(o.ReviewTimeout, defaults.ReviewTimeout)
	o.UnverifiedTokens = cmp.Or(o.UnverifiedTokens, defaultUnverifiedTokens)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.GatewayUser == nil {
		o.GatewayUser = &user.DefaultInfo{Name: "kubeweir"}
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	o.RequestHeader.setDefaults()
}

// TokenReviewer creates TokenReviews; AuthenticationV1Interface.TokenReviews() of client-go is one.
type TokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}
