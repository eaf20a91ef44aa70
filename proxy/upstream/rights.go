package upstream

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
)

// rights remembers which rights of its own the upstream last refused the gateway, so
// that the log says once what is missing, and once that it is there. It is safe for
// concurrent use.
type rights struct {
	log   *slog.Logger
	gauge *prometheus.GaugeVec
	// some is how many are missing: the answers to a gateway that lacks nothing are not
	// looked up.
	some atomic.Int32
	// unknown tells that the upstream last answered 401: it does not know the gateway.
	unknown atomic.Bool

	mu struct {
		sync.Mutex
		missing map[right]bool // at most maxMissing
	}
}

// right is what a rule of RBAC gives. resource has its subresource with it; of a path
// that is no resource it is the path.
type right struct{ verb, group, resource string }

// maxMissing bounds the rights that are remembered. Of more of them nothing is said.
const maxMissing = 1000

func newRights(log *slog.Logger) *rights {
	r := &rights{log: log, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubeweir_upstream_missing_rights",
		Help: "1 for each right that the cluster last refused the gateway itself: what needs it is forwarded, or refused. `kubeweir rbac` prints the rights that a gateway needs.",
	}, []string{"verb", "group", "resource"})}
	r.mu.missing = make(map[right]bool)
	return r
}

// answered takes notice of the answer to a request of the gateway's own, for path
// without that of the server. detail is what the upstream says of a refusal; it may be
// nil.
func (r *rights) answered(method, path, query string, code int, detail func() string) {
	switch {
	case code == http.StatusUnauthorized:
		if !r.unknown.Swap(true) {
			r.log.Error("the cluster does not know the gateway's credentials, or does not take them any more; look at --kubeconfig, or the pod's service account")
		}
	case code == http.StatusForbidden:
		r.refused(rightFor(method, path, query), detail)
	case code < 500 && r.some.Load() > 0:
		r.granted(rightFor(method, path, query))
	}
	if code != http.StatusUnauthorized && code < 500 && r.unknown.Load() && r.unknown.Swap(false) {
		r.log.Info("the cluster takes the gateway's credentials")
	}
}

func rightFor(method, path, query string) right {
	info := api.ParseRequestInfo(method, path, query)
	what := right{info.Verb, info.APIGroup, info.Resource}
	switch {
	case !info.IsResourceRequest:
		what.resource = path
	case info.Subresource != "":
		what.resource += "/" + info.Subresource
	}
	return what
}

func (r *rights) refused(what right, detail func() string) {
	r.mu.Lock()
	known := r.mu.missing[what] || len(r.mu.missing) >= maxMissing
	if !known {
		// Of a client's request that is answered to many, perhaps.
		what = right{strings.Clone(what.verb), strings.Clone(what.group), strings.Clone(what.resource)}
		r.mu.missing[what] = true
		r.some.Add(1)
		r.gauge.WithLabelValues(what.verb, what.group, what.resource).Set(1)
	}
	r.mu.Unlock()
	if known {
		return
	}
	answer := ""
	if detail != nil {
		answer = detail()
	}
	r.log.Warn("the gateway lacks a right at the cluster: what needs it is forwarded, or refused; `kubeweir rbac` prints the rights it needs",
		"verb", what.verb, "group", what.group, "resource", what.resource, "answer", answer)
}

func (r *rights) granted(what right) {
	r.mu.Lock()
	was := r.mu.missing[what]
	if was {
		delete(r.mu.missing, what)
		r.some.Add(-1)
		r.gauge.DeleteLabelValues(what.verb, what.group, what.resource)
	}
	r.mu.Unlock()
	if was {
		r.log.Info("the gateway has a right at the cluster that it lacked", "verb", what.verb, "group", what.group, "resource", what.resource)
	}
}

// refusalIn reads what a refusal says from body, and leaves it there to be read again.
func refusalIn(body *io.ReadCloser, from io.Reader) string {
	content, err := io.ReadAll(io.LimitReader(from, maxErrorBody))
	if err != nil {
		return ""
	}
	_ = (*body).Close()
	*body = io.NopCloser(bytes.NewReader(content))
	if status := statusIn(content); status != nil {
		return status.Message
	}
	return ""
}
