package authn

import (
	"cmp"
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Options configure an Authenticator. Zero durations and sizes select the defaults; everything else
// is off if it is zero.
type Options struct {
	// TokenReviewer reviews bearer tokens; nil rejects all tokens.
	TokenReviewer TokenReviewer
	// LocalTokenReviewer, if it is set, reviews tokens that no limit of unverified tokens may delay or reject.
	// Those that it does not accept are for TokenReviewer.
	LocalTokenReviewer TokenReviewer
	// Audiences are the audiences of TokenReviewSpec; nil selects the upstream's own.
	Audiences []string
	// ClientCAFile holds the CAs of client certificates, in PEM. ClientCAs are added to them.
	ClientCAFile string
	ClientCAs    []byte
	// RequestHeader describes authenticating front proxies.
	RequestHeader RequestHeaderOptions
	// Anonymous accepts requests without credentials as system:anonymous: those for AnonymousPaths, or all
	// if there are none.
	Anonymous      bool
	AnonymousPaths []string
	// GatewayToken is a bearer token for the gateway's own identity, which the sidecar listener
	// grants as well; "" for none.
	GatewayToken Token
	// SidecarHosts are host names and addresses, without port, that clients of the sidecar listener
	// may use besides loopback ones.
	SidecarHosts []string

	// SuccessTTL is how long an accepted token is valid without another review (default 10 s),
	// FailureTTL how long a rejected one is rejected (default 2 s).
	SuccessTTL, FailureTTL time.Duration
	// UnverifiedTokens is how many requests wait for the review of an unverified token; further
	// ones are answered 429 (default 500).
	UnverifiedTokens int
	// UnverifiedReviews is how many reviews of unverified tokens are in flight at a time (default 8).
	UnverifiedReviews int
	// Settings: OfflineTTL is how much longer than SuccessTTL an accepted token is valid offline,
	// unless the token itself has expired (see Identity.Offline). CacheSize limits the tokens and the
	// certificates (default 8192 of each).
	review.Settings
}

func (o *Options) setDefaults() {
	o.SuccessTTL = cmp.Or(o.SuccessTTL, defaults.TokenTTL)
	o.FailureTTL = cmp.Or(o.FailureTTL, defaults.TokenFailureTTL)
	o.UnverifiedTokens = cmp.Or(o.UnverifiedTokens, defaultUnverifiedTokens)
	o.UnverifiedReviews = cmp.Or(o.UnverifiedReviews, unverifiedReviews)
	o.Complete(defaults.TokenCacheSize)
	o.RequestHeader.setDefaults()
}

// TokenReviewer creates TokenReviews; AuthenticationV1Interface.TokenReviews() of client-go is one.
type TokenReviewer interface {
	// Create reviews a token. After an ErrUndetermined, the request is answered 401, but the token is reviewed
	// again by the next one, and watches of the user do not end at once.
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}
