package healthz

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Check is one named condition of the gateway's health.
type Check struct {
	Name string
	// ReadyOnly is true if the check counts for readiness, not for liveness.
	ReadyOnly bool
	// Err returns nil if the check passes. It must be quick and safe for concurrent use.
	Err func() error
}

// Health evaluates checks. It is safe for concurrent use.
type Health struct {
	checks []Check
	parts  func() []Part // nil for a Health without parts
}

// Part is the health of one of several clusters.
type Part struct {
	Name string
	*Health
}

// CheckResult is the outcome of a check.
type CheckResult struct {
	Name string
	Err  error // nil if the check passes
}

// New returns a Health with a check "ping", which always passes, and the given checks.
func New(checks ...Check) *Health {
	return &Health{checks: append([]Check{{Name: "ping", Err: func() error { return nil }}}, checks...)}
}

// NewOfParts returns a Health of the parts that the function returns at the time of a request. It
// passes if there are none or one of them passes.
func NewOfParts(parts func() []Part) *Health {
	h := New()
	h.parts = parts
	return h
}

// IsPath reports whether path is a health endpoint.
func IsPath(path string) bool {
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return endpoint == "livez" || endpoint == "readyz" || endpoint == "healthz"
}

// Serve responds to a request for a health endpoint. It returns nil for other paths. With details,
// the response contains why a check failed, and the parts by name, with ?verbose and at
// /readyz/NAME: do not set it on listeners that anyone may use. Without details, all parts are one
// check.
func (h *Health) Serve(r *api.Request, details bool) *api.Response {
	if !IsPath(r.Path) {
		return nil
	}
	endpoint, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	if r.Method != "GET" && r.Method != "HEAD" {
		return text(405, "only GET and HEAD are allowed\n")
	}
	if rest != "" {
		return h.serveOne(endpoint, rest, details)
	}
	query, _ := url.ParseQuery(r.RawQuery)
	return h.serveAll(endpoint, query, details)
}

// Results evaluates the checks, without those of parts.
func (h *Health) Results() []CheckResult {
	list := make([]CheckResult, len(h.checks))
	for i, c := range h.checks {
		list[i] = CheckResult{c.Name, c.Err()}
	}
	return list
}

// Err returns the errors of the checks that fail, without those of parts.
func (h *Health) Err() error {
	var failed []error
	for _, c := range h.Results() {
		if c.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name, c.Err))
		}
	}
	return errors.Join(failed...)
}

// serveOne responds with the result of one check, or with those of one part.
func (h *Health) serveOne(endpoint, name string, details bool) *api.Response {
	if h.parts != nil && details {
		first, rest, _ := strings.Cut(name, "/")
		for _, p := range h.parts() {
			switch {
			case p.Name != first:
			case name == first:
				return p.serveAll(endpoint, nil, details)
			default:
				return p.serveOne(endpoint, rest, details)
			}
		}
	}
	for _, c := range h.checksOf(endpoint, details) {
		if c.Name != name {
			continue
		}
		if err := c.Err(); err != nil {
			return text(500, "internal server error: "+cause(err, details)+"\n")
		}
		return text(200, "ok")
	}
	return text(404, "404 page not found\n")
}

// serveAll responds with the results of all checks.
func (h *Health) serveAll(endpoint string, query url.Values, details bool) *api.Response {
	excluded := make(map[string]bool)
	for _, list := range query["exclude"] {
		for name := range strings.SplitSeq(list, ",") {
			excluded[name] = true
		}
	}
	var out strings.Builder
	failed := h.writeChecks(&out, endpoint, "", excluded, details)
	if h.parts != nil && details {
		failed = h.writeParts(&out, endpoint, excluded) || failed
	}
	switch {
	case failed:
		return text(500, out.String()+endpoint+" check failed\n")
	case query.Has("verbose"):
		return text(200, out.String()+endpoint+" check passed\n")
	}
	return text(200, "ok")
}

// writeParts writes the results of the parts that are not excluded, and reports whether all of them
// failed.
func (h *Health) writeParts(out io.Writer, endpoint string, excluded map[string]bool) (failed bool) {
	evaluated, passed := 0, 0
	for _, p := range h.parts() {
		if excluded[p.Name] {
			fmt.Fprintf(out, "[+]%s excluded: ok\n", p.Name)
			continue
		}
		evaluated++
		if !p.writeChecks(out, endpoint, p.Name+"/", excluded, true) {
			passed++
		}
	}
	return evaluated > 0 && passed == 0
}

// writeChecks writes the results of the checks, with prefix before their names, and reports whether
// one failed that is not excluded.
func (h *Health) writeChecks(out io.Writer, endpoint, prefix string, excluded map[string]bool, details bool) (failed bool) {
	for _, c := range h.checksOf(endpoint, details) {
		name := prefix + c.Name
		if excluded[name] || excluded[c.Name] { // c.Name excludes the check of all parts
			fmt.Fprintf(out, "[+]%s excluded: ok\n", name)
		} else if err := c.Err(); err != nil {
			failed = true
			fmt.Fprintf(out, "[-]%s failed: %s\n", name, cause(err, details))
		} else {
			fmt.Fprintf(out, "[+]%s ok\n", name)
		}
	}
	return failed
}

// checksOf returns the checks of an endpoint. Without details, all parts are one of them.
func (h *Health) checksOf(endpoint string, details bool) (checks []Check) {
	for _, c := range h.checks {
		if endpoint != "livez" || !c.ReadyOnly {
			checks = append(checks, c)
		}
	}
	if h.parts != nil && !details {
		checks = append(checks, Check{Name: "clusters", Err: func() error {
			if h.writeParts(io.Discard, endpoint, nil) {
				return errors.New("no cluster is ready")
			}
			return nil
		}})
	}
	return checks
}

func cause(err error, details bool) string {
	if details {
		return err.Error()
	}
	return "reason withheld"
}

func text(status int, body string) *api.Response {
	return &api.Response{
		Status: status,
		Header: api.Header{
			{Name: "Cache-Control", Value: api.CacheControl},
			{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
			{Name: "X-Content-Type-Options", Value: "nosniff"},
		},
		Body: []byte(body),
	}
}
