// Package rights tracks the permissions that the cluster has denied to the gateway itself, from the responses to
// its own requests.
package rights

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Rights remembers which rights of its own the gateway lacks, by the last responses of the upstream.
// The log says once that a right is missing, and once that it was granted. It is safe for
// concurrent use.
type Rights struct {
	log     *slog.Logger
	gauge   *prometheus.GaugeVec
	lacking atomic.Int32 // how many are missing
	unknown atomic.Bool  // the last response was 401: the upstream does not know the gateway

	mu struct {
		sync.Mutex
		missing map[right]*lack // at most maxMissing
	}
}

// right is what an RBAC rule grants. resource includes the subresource, or is a path that is no
// resource.
type right struct{ verb, group, resource string }

// lack is what is known of a missing right.
type lack struct {
	where scope // of the last rejection, or of an earlier one that covers it
	last  time.Time
}

// scope is what a right was needed for: an object, a namespace, or, with two empty names,
// everything. A role may grant a right in one namespace, or for one name, alone.
type scope struct{ namespace, name string }

// covers reports whether a right within s includes the same right within other.
func (s scope) covers(other scope) bool {
	return s == scope{} || s == other || s.name == "" && s.namespace == other.namespace
}

// lackFor is how long a rejection counts whatever is allowed elsewhere.
const lackFor = time.Minute

// maxMissing bounds the rights that are remembered. More of them are ignored.
const maxMissing = 1000

// New returns the Rights of a gateway of which nothing is known yet.
func New(log *slog.Logger) *Rights {
	r := &Rights{log: log, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubeweir_upstream_missing_rights",
		Help: "1 for each permission that the cluster last denied to the gateway itself. Requests that need it are forwarded or rejected. `kubeweir rbac` prints the permissions that a gateway needs.",
	}, []string{"verb", "group", "resource"})}
	r.mu.missing = make(map[right]*lack)
	return r
}

// Metric returns the metric of the missing rights.
func (r *Rights) Metric() prometheus.Collector { return r.gauge }

// Responded records the response to a request of the gateway's own. path does not include that of
// the server. detail returns the upstream's message if it rejects the request; it may be nil.
func (r *Rights) Responded(method, path, query string, code int, detail func() string) {
	switch {
	case code == http.StatusUnauthorized:
		if !r.unknown.Swap(true) {
			r.log.Error("the cluster does not know the gateway's credentials, or does not take them any more; look at --kubeconfig, or the pod's service account")
		}
	case code == http.StatusForbidden:
		what, where := rightFor(method, path, query)
		r.rejected(what, where, detail)
	case r.lacking.Load() > 0 && authorized(code):
		r.granted(rightFor(method, path, query))
	}
	if code != http.StatusUnauthorized && code < 500 && r.unknown.Load() && r.unknown.Swap(false) {
		r.log.Info("the cluster takes the gateway's credentials")
	}
}

// authorized reports whether a response with code, which is not 401 or 403, proves that the request
// was authorized: kube-apiserver checks its load, and some parameters, before rights.
func authorized(code int) bool {
	return code < 500 && code != http.StatusBadRequest && code != http.StatusTooManyRequests
}

func rightFor(method, path, query string) (right, scope) {
	info := api.ParseRequestInfo(method, path, query)
	what := right{info.Verb, info.APIGroup, info.Resource}
	switch {
	case !info.IsResourceRequest:
		return right{verb: info.Verb, resource: path}, scope{}
	case info.Subresource != "":
		what.resource += "/" + info.Subresource
	}
	return what, scope{info.Namespace, info.Name}
}

func (r *Rights) rejected(what right, where scope, detail func() string) {
	now := time.Now()
	r.mu.Lock()
	known := r.mu.missing[what]
	if known != nil {
		known.last = now
		if !known.where.covers(where) {
			known.where = where.clone()
		}
	}
	first := known == nil && len(r.mu.missing) < maxMissing
	if first {
		// They may be part of a client's request that is shared.
		what = right{strings.Clone(what.verb), strings.Clone(what.group), strings.Clone(what.resource)}
		r.mu.missing[what] = &lack{where.clone(), now}
		r.lacking.Add(1)
		r.gauge.WithLabelValues(what.verb, what.group, what.resource).Set(1)
	}
	r.mu.Unlock()
	if !first {
		return
	}
	response := ""
	if detail != nil {
		response = detail()
	}
	r.log.Warn("the gateway lacks a right at the cluster: requests that need it are forwarded or rejected; `kubeweir rbac` prints the rights it needs",
		"verb", what.verb, "group", what.group, "resource", what.resource, "response", response)
}

func (s scope) clone() scope { return scope{strings.Clone(s.namespace), strings.Clone(s.name)} }

// granted ends the lack of a right if at least as much was allowed, or if there were no rejections
// for lackFor.
func (r *Rights) granted(what right, where scope) {
	r.mu.Lock()
	was := r.mu.missing[what]
	over := was != nil && (where.covers(was.where) || time.Since(was.last) >= lackFor)
	if over {
		delete(r.mu.missing, what)
		r.lacking.Add(-1)
		r.gauge.DeleteLabelValues(what.verb, what.group, what.resource)
	}
	r.mu.Unlock()
	if over {
		r.log.Info("the gateway has a right at the cluster that it lacked", "verb", what.verb, "group", what.group, "resource", what.resource)
	}
}
