package proxy

import (
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/cache/source"
)

// Mode says how a most-recent read (no resourceVersion) is answered.
type Mode string

const (
	// ModeStrict is linearizable: the upstream is asked after the request arrived.
	// It names the objects of a list and their versions, and what the cache holds of
	// just those is the answer (revalidation); else it answers itself. Identical
	// requests at the same time share what was begun after all of them arrived.
	ModeStrict Mode = "strict"
	// ModeSession answers from the cache once it holds every write that went
	// through this gateway.
	ModeSession Mode = "session"
)

// Consistency chooses the Mode of a read. It must not change while in use.
type Consistency struct {
	// Default is the mode where no rule says another.
	Default Mode
	// MaxStaleness is how long ago the feed's connection may have given a sign
	// of life for a session read; 0 means any time while the feed is up.
	MaxStaleness time.Duration
}

// consistency returns the Mode of a most-recent read: that of the client's rule, or
// ModeStrict with Cache-Control: no-cache (RFC 9111, section 5.2.1.4).
func (x *exchange) consistency() Mode {
	if x.settings.Mode != ModeStrict && httpguts.HeaderValuesContainsToken(x.request.Header.Values("Cache-Control"), "no-cache") {
		return ModeStrict
	}
	return x.settings.Mode
}

// mode is the Mode of a most-recent read of res. Of what aggregated API servers
// serve, the answers to writes do not tell how new the cache must be.
func (x *exchange) mode(res *source.Resource) Mode {
	if res.Aggregated {
		return ModeStrict
	}
	return x.consistency()
}
