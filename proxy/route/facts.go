package route

import (
	"time"

	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// Action is the next step of a request.
type Action uint8

// Actions that end with a response.
const (
	// Reject responds with Decision.Err, and counts Decision.Refusal if there is one.
	Reject Action = iota + 1
	// Respond passes on the response that an earlier ReadCache produced.
	Respond
	// Forward sends the request to the upstream as its client.
	Forward
	// ForwardShard forwards a list, and passes on the response only if it says that it is the shard
	// that was requested.
	ForwardShard
)

// Actions that produce a response or, if they cannot, a fact.
const (
	// ReadCache serves a get, list or watch from the collection.
	ReadCache Action = iota + ForwardShard + 1
	// Revalidate serves a list from the cache after the upstream has named the current versions.
	Revalidate
	// Coalesce shares one upstream request with identical ones.
	Coalesce
	// SelfReview responds to a self-review from the upstream's recent response to the same user.
	SelfReview
	// OfflineDiscovery responds with the last discovery documents that the gateway read.
	OfflineDiscovery
	// Discovery responds from the upstream's recent discovery response to the same user.
	Discovery
	// OpenAPI responds with a document in memory once the upstream has confirmed it.
	OpenAPI
)

// Actions that learn a fact.
const (
	// ParseParameters parses the parameters that only the cache reads.
	ParseParameters Action = iota + OpenAPI + 1
	// FindRelease finds the minor release of the upstream.
	FindRelease
	// Authorize finds out whether the cache may serve the read to its user.
	Authorize
	// FindNamespaces finds the namespaces that are visible to a user who may not see all.
	FindNamespaces
	// FindCollection finds, or starts, the collections that the read needs.
	FindCollection
	// CheckCurrent finds out whether the collection holds the most recent state, or in session mode
	// every write made through this gateway.
	CheckCurrent
	// CheckFreshness makes the collection hold a state that is as new as the request.
	CheckFreshness
	// Charge takes one request from the budgets of the client.
	Charge
)

// Decision is what to do next.
type Decision struct {
	Action Action
	// Why is the reason why a read is not served from the cache, for Forward and ForwardShard.
	Why reason.Forward
	// Rejection and Err are the reason and the response of Reject. Rejection is 0 if it is not counted.
	Rejection reason.Rejection
	Err       error
	// Stale is true if ReadCache serves what the collection holds because a budget is exhausted.
	Stale bool
}

// State is a fact that is unknown until an action learns it.
type State uint8

// The states.
const (
	Unknown State = iota
	Yes
	No
)

// StateOf returns Yes or No.
func StateOf(yes bool) State {
	if yes {
		return Yes
	}
	return No
}

// Facts are what is known about a request. Callers fill in the first part, call Qualify for a read, and
// then add the facts that Next requests. They are not safe for concurrent use.
type Facts struct {
	Request  *api.Request
	Info     *api.RequestInfo
	Settings policy.Settings
	// Subject is the client, and the user that the request is authorized as.
	Subject *authn.Subject
	// Redacted is true if the client sees objects without their secret values.
	Redacted bool
	// PrintsTables is true if the cells of the upstream's Tables have no values of redacted fields.
	PrintsTables bool
	// Pretty is true if JSON is indented.
	Pretty bool
	// Unreachable is true if no API server responds, as far as is known.
	Unreachable bool
	// Immediate is true if the source names its current version at once.
	Immediate bool
	// Documents determines how requests that read no objects may be served from memory.
	Documents Documents
	// Budgets holds the budgets of the client.
	Budgets policy.ClientBudgets

	// Budget is Yes if the client's budgets allow requests to the upstream.
	Budget State
	// Permission is whether the cache may serve the request to its user, and Decision is the reason.
	Permission State
	Decision   authz.Decision
	*Reading
}

// Reading are the facts that matter only until there is a response to a read. They are apart because the
// other ones stay in memory for as long as a watch does.
type Reading struct {
	// OfflineTTL and MaxStaleness bound the age of responses, see policy.Offline and
	// policy.Consistency.
	OfflineTTL, MaxStaleness time.Duration

	Query Query
	// Unqualified is why the cache cannot serve the read, as far as the request and its resource
	// show.
	Unqualified reason.Forward
	// Release is the minor release of the upstream, 0 if the upstream did not name it; ReleaseKnown
	// says that FindRelease was executed.
	Release      int
	ReleaseKnown bool
	// Visible is Yes if Query.Visible has the visible namespaces, No if there are none.
	Visible State
	// Parsed is true if the parameters which only the cache reads are parsed, ParameterErr is their
	// error.
	Parsed       bool
	ParameterErr error
	// Pace is the delivery of a watch, PaceErr the error of its parameter.
	Pace    watch.Pace
	PaceErr error

	// Collection is Yes if there is a collection to read, No with the reason Missing.
	Collection State
	Missing    reason.Forward
	// Current is the result of CheckCurrent, Proven that of Prove.
	Current, Fresh State
	// StaleAllowed is true if the collection may serve the read although the budget is exhausted.
	StaleAllowed bool
	// Age is how old the state of the collection is. Unconfirmed says that it was loaded at a restart,
	// and that no API server has confirmed it.
	Age         time.Duration
	Unconfirmed bool
	// Read is true if a response was read from the cache. CacheErr is why not, CacheWhy its reason.
	Read     bool
	CacheErr error
	CacheWhy reason.Forward
	// NotRevalidated is true if Revalidate had no response. NotCoalesced is why Coalesce had none.
	NotRevalidated bool
	NotCoalesced   reason.Forward
}

// Documents determines how a request that reads no objects may be served from memory. An action that had
// no response clears its field.
type Documents struct{ SelfReview, OfflineDiscovery, Discovery, OpenAPI bool }

// Clear records that an action had no response.
func (d *Documents) Clear(a Action) {
	switch a {
	case SelfReview:
		d.SelfReview = false
	case OfflineDiscovery:
		d.OfflineDiscovery = false
	case Discovery:
		d.Discovery = false
	case OpenAPI:
		d.OpenAPI = false
	}
}

// IsRead reports whether the request is a get, list or watch of a resource.
func (f *Facts) IsRead() bool {
	if !f.Info.IsResourceRequest || !IsReadMethod(f.Request.Method) {
		return false
	}
	switch f.Info.Verb {
	case "get", "list", "watch":
		return true
	}
	return false
}

// IsReadMethod reports whether an HTTP method changes nothing.
func IsReadMethod(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS"
}

// isSharded reports whether the request selects a shard of a collection.
func (f *Facts) isSharded() bool { return f.Info.ShardSelector != "" && f.Request.Method != "HEAD" }

// Query is a get, list or watch as its parameters say.
type Query struct {
	Resource *source.Resource
	Rep      api.Representation
	Options  api.ListOptions
	Filter   *object.Filter // nil for a get
	// Query sorts, narrows or counts; nil for most reads.
	Query *query.Query
	// Visible are the namespaces that the user may see of all, nil for all of them. Filter.Within
	// has their names.
	Visible *visible.Set
}

// MostRecent reports whether the read asks for the latest state.
func (q *Query) MostRecent() bool { return q.Options.MostRecent() }

// CacheOnly reports whether the read itself is not shared with other clients upstream, where at most
// a request for its current version is sent: reads of a shard, a query, a redacted view, objects
// without their managedFields or in CBOR, which the upstream may lack, and of visible namespaces,
// where the gateway could see more than the user.
func (q *Query) CacheOnly() bool {
	return q.Options.ShardSelector != "" || q.Query != nil || q.Rep.Redacted || q.Rep.DropManagedFields || q.Rep.Encoding == api.CBOR || q.Visible != nil
}

// Encoding returns the encoding of the collection that is read. A query reads values in JSON.
func (q *Query) Encoding() api.Encoding {
	if q.Query != nil {
		return api.JSON
	}
	return q.ObjectEncoding()
}

// ObjectEncoding returns the encoding of the collection that has the objects of the response.
func (q *Query) ObjectEncoding() api.Encoding {
	if q.Resource.Custom || q.Rep.Encoding == api.CBOR {
		return api.JSON
	}
	return q.Rep.Encoding
}

// revalidates reports whether the gateway can request names and versions instead of the list: not for
// PartialObjectMetadata, from which they are read, nor for rows alone, which cost less, nor for
// aggregated API servers, whose versions have a meaning of their own.
func (q *Query) revalidates() bool {
	rowsAlone := q.Rep.Transform == api.Table && q.Rep.IncludeObject == api.IncludeNone
	return q.Rep.Transform != api.PartialMetadata && !rowsAlone && (q.Resource.Custom || q.Resource.Printer != nil)
}
