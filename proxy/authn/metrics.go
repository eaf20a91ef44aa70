package authn

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// tokenResult is the result of authenticating a token. It is a metric label.
type tokenResult string

const (
	tokenValid   tokenResult = "valid"
	tokenInvalid tokenResult = "invalid"
	tokenError   tokenResult = "error"
	tokenCached  tokenResult = "cached"
	tokenOffline tokenResult = "offline"
	tokenLimited tokenResult = "limited"
)

// metrics counts requests by source or kind of error, and tokens by result.
type metrics struct {
	requests map[string]prometheus.Counter
	tokens   map[tokenResult]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	results := []string{"unauthenticated", "unavailable", "error"}
	for s := Gateway; s <= Anonymous; s++ {
		results = append(results, s.String())
	}
	return &metrics{
		requests: review.Counters(reg, "kubeweir_authentication_requests_total",
			"Requests by how they were authenticated, or why they were not.", "result", results...),
		tokens: review.Counters(reg, "kubeweir_authentication_token_reviews_total",
			"Authentications of bearer tokens, by result: valid, invalid and error are results of a TokenReview; cached is a cached result; offline is an expired result used because the upstream is unavailable; limited was rejected with 429 because too many unverified tokens were being reviewed.",
			"result", tokenValid, tokenInvalid, tokenError, tokenCached, tokenOffline, tokenLimited),
	}
}

func (m *metrics) failure(err error) {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		m.requests["unauthenticated"].Inc()
	case errors.Is(err, review.ErrUnavailable):
		m.requests["unavailable"].Inc()
	default:
		m.requests["error"].Inc()
	}
}
