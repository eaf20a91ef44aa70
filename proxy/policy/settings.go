package policy

import (
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/cache/watch"
)

// Policy is the part of a Gateway's settings that can be replaced while it runs, see
// Gateway.SetPolicy.
type Policy struct {
	Consistency Consistency
	// Pace is the default pace of watches.
	Pace watch.Pace
	// Offline selects the clients that are served while no API server responds. Default: none.
	Offline Offline
	// RememberSelfReviews serves self-reviews (SelfSubjectAccessReview and the like) from the
	// upstream's recent responses to the same user.
	RememberSelfReviews bool
	// Rules override the settings above for the requests that they match. They are tried in order:
	// the first rule that matches and has a setting decides that setting.
	Rules  []Rule
	Limits Limits
}

// Limits bound what a Gateway does at the same time. 0 means no limit.
type Limits struct {
	// InFlight is the most requests at a time that are not long-running, LongRunning the most
	// watches, log follows and upgrades. A user gets at most three quarters of them. As many as
	// InFlight more requests may wait for the authentication of their client.
	InFlight, LongRunning int64
	// Resumed is the most watches at a time that the upstream continues from a version older than a
	// history that cannot be extended; clients of further ones have to list again. A user gets at most
	// three quarters of them.
	Resumed int64
	// CollapsedBytes is the largest response, in bytes, that callers share. Responses that are shared
	// at a time have at most four times as many bytes together.
	CollapsedBytes int64
}

// Mode is the consistency of a most-recent read (one without resourceVersion).
type Mode string

const (
	// ModeStrict is linearizable: the gateway sends a request to the upstream after the read
	// arrived. If the response names the objects of a list and their versions, the gateway serves
	// these versions from the cache (revalidation); otherwise it passes on the response. Identical
	// reads share an upstream request that began after all of them arrived.
	ModeStrict Mode = "strict"
	// ModeSession serves from the cache once it has every write made through this gateway.
	ModeSession Mode = "session"
)

// Consistency chooses the Mode of a read.
type Consistency struct {
	// Default is the mode if no rule has one.
	Default Mode
	// MaxStaleness is the longest time since the last heartbeat of the feed's connection for a
	// session read; 0 means any time while the feed is connected.
	MaxStaleness time.Duration
}

// Offline chooses who is served while no API server responds, and how old responses may be.
//
// Clients that are not allowed still get reads of any version, or of a version that the cache has,
// as long as their identity and permissions are known. Clients that are allowed are authenticated and
// authorized by the upstream's last decisions, and may read in session mode, too. Strict reads and
// writes are rejected in either case.
type Offline struct {
	// Allow applies if no rule decides.
	Allow bool
	// TTL is the greatest age of responses to clients that are allowed.
	TTL time.Duration
}

// Rule has settings for the requests that it matches.
type Rule struct {
	Match
	Settings Settings
}

// Match matches a request if each of its non-empty lists has a match. Users, groups and user agents
// may contain "*" for any run of characters. Resources are "pods" or "deployments.apps", and include
// their subresources; events of either group are the same objects, and bindings belong to pods.
type Match struct{ Users, Groups, UserAgents, Resources []string }

// String describes the requests that match.
func (m *Match) String() string {
	var parts []string
	for _, list := range []struct {
		name  string
		items []string
	}{{"users", m.Users}, {"groups", m.Groups}, {"userAgents", m.UserAgents}, {"resources", m.Resources}} {
		if len(list.items) > 0 {
			parts = append(parts, list.name+": "+strings.Join(list.items, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// Settings are what rules may decide about a request. A field that is zero is not set.
type Settings struct {
	// Mode is the consistency of a most-recent read.
	Mode Mode
	// Offline allows responses that rest on the upstream's last decisions.
	Offline Choice
	// SelfReviews serves self-reviews from the upstream's recent responses.
	SelfReviews Choice
	// ReadOnly rejects every request that is not certainly a read.
	ReadOnly Choice
	// Coalesce and WatchBytesPerSecond are the pace of a watch, see watch.Pace. A watch with a
	// negative value does not delay its events, whatever their rate is.
	Coalesce            time.Duration
	WatchBytesPerSecond int64
	// VisibleLists narrows lists and watches of all namespaces to those that the user may see,
	// instead of rejecting them.
	VisibleLists Choice
	// Redacted shows objects without their secret values, and rejects requests whose responses cannot
	// be redacted.
	Redacted Choice
	// DropManagedFields leaves metadata.managedFields out of responses from the cache.
	DropManagedFields Choice
	// UpstreamRequestsPerSecond and UpstreamBytesPerSecond bound what each client may cause upstream;
	// OverBudget says what happens to requests beyond. Block rejects all requests. These settings
	// apply to the client, also if it impersonates a user.
	UpstreamRequestsPerSecond, UpstreamBytesPerSecond int64
	OverBudget                                        OverBudget
	Block                                             Choice
}

// complete sets the fields of s that are not set to those of from.
func (s *Settings) complete(from *Settings) {
	setDefault(&s.Mode, from.Mode)
	setDefault(&s.Offline, from.Offline)
	setDefault(&s.SelfReviews, from.SelfReviews)
	setDefault(&s.ReadOnly, from.ReadOnly)
	setDefault(&s.Coalesce, from.Coalesce)
	setDefault(&s.WatchBytesPerSecond, from.WatchBytesPerSecond)
	setDefault(&s.VisibleLists, from.VisibleLists)
	setDefault(&s.Redacted, from.Redacted)
	setDefault(&s.DropManagedFields, from.DropManagedFields)
	setDefault(&s.OverBudget, from.OverBudget)
	setDefault(&s.Block, from.Block)
}

// setDefault sets a field that is zero.
func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// OverBudget determines what happens to a request of a client that has exhausted a budget.
type OverBudget string

const (
	// OverBudgetReject rejects it with 429.
	OverBudgetReject OverBudget = "reject"
	// OverBudgetCached serves a most-recent read from the cache, with the age of the response, and
	// rejects all other requests.
	OverBudgetCached OverBudget = "cached"
)

// Choice is yes, no or not set.
type Choice uint8

// The choices.
const (
	Unset Choice = iota
	Yes
	No
)

func choiceOf(yes bool) Choice {
	if yes {
		return Yes
	}
	return No
}

// word returns the word for c in the configuration, "" if it is not set.
func (c Choice) word(yes, no string) string { return [...]string{"", yes, no}[c] }
