package healthz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/kubeweir/kubeweir/api"
)

// Check is one named condition of the gateway's health.
type Check struct {
	Name string
	// Ready tells that the check counts for readiness only, not for liveness.
	Ready bool
	// Err returns nil when all is well. It must be quick and safe for
	// concurrent use.
	Err func() error
}

// Health answers /livez, /readyz and /healthz in the form of kube-apiserver
// (k8s.io/apiserver/pkg/server/healthz). It is safe for concurrent use.
type Health struct {
	checks []Check
	parts  func() []Part
}

// Part is the health of one of several things that are served.
type Part struct {
	Name string
	*Health
}

// NewHealth returns a Health of the given checks; "ping" is added.
func NewHealth(checks ...Check) *Health {
	return &Health{checks: append([]Check{{Name: "ping", Err: func() error { return nil }}}, checks...)}
}

// NewHealthOf returns a Health of several parts, the clusters of a gateway, which may change.
// It is ready while one of them is. "ping" is added.
func NewHealthOf(parts func() []Part) *Health {
	h := NewHealth()
	h.parts = parts
	return h
}

// Serve answers r if it is for one of the health endpoints, else returns nil.
// reasons tells the client why a check failed, and of each part by its name, with ?verbose and
// at /readyz/NAME: not for listeners that anyone may ask. There all parts are one check.
func (h *Health) Serve(r *api.Request, reasons bool) *api.Response {
	if !IsPath(r.Path) {
		return nil
	}
	endpoint, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	if r.Method != "GET" && r.Method != "HEAD" {
		return text(405, "only GET and HEAD are allowed\n")
	}
	query, _ := url.ParseQuery(r.RawQuery)
	if rest != "" {
		return h.single(endpoint, rest, reasons)
	}
	return h.all(endpoint, query.Has("verbose"), query["exclude"], reasons)
}

// IsPath reports whether a path is one of the health endpoints.
func IsPath(path string) bool {
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return endpoint == "livez" || endpoint == "readyz" || endpoint == "healthz"
}

func (h *Health) single(endpoint, name string, reasons bool) *api.Response {
	if h.parts != nil && reasons {
		first, rest, more := strings.Cut(name, "/")
		for _, p := range h.parts() {
			switch {
			case p.Name == first && more:
				return p.single(endpoint, rest, reasons)
			case p.Name == first:
				return p.all(endpoint, false, nil, reasons)
			}
		}
	}
	for _, c := range h.of(endpoint, reasons) {
		if c.Name != name {
			continue
		}
		if err := c.Err(); err != nil {
			return text(500, "internal server error: "+explain(err, reasons)+"\n")
		}
		return text(200, "ok")
	}
	return text(404, "404 page not found\n")
}

// of returns the checks of an endpoint: /livez has those that a restart may
// mend, the others have all. Where parts are not told of, all of them are one check.
func (h *Health) of(endpoint string, reasons bool) (checks []Check) {
	for _, c := range h.checks {
		if endpoint != "livez" || !c.Ready {
			checks = append(checks, c)
		}
	}
	if h.parts != nil && !reasons {
		checks = append(checks, Check{Name: "clusters", Err: func() error {
			if h.lookAtParts(new(strings.Builder), endpoint, nil) {
				return errors.New("no cluster is ready")
			}
			return nil
		}})
	}
	return checks
}

func (h *Health) all(endpoint string, verbose bool, exclude []string, reasons bool) *api.Response {
	skip := make(map[string]bool)
	for _, list := range exclude {
		for _, name := range strings.Split(list, ",") {
			skip[name] = true
		}
	}
	var out strings.Builder
	failed := h.look(&out, endpoint, "", skip, reasons)
	if h.parts != nil && reasons {
		failed = h.lookAtParts(&out, endpoint, skip) || failed
	}
	if failed {
		return text(500, out.String()+endpoint+" check failed\n")
	}
	if !verbose {
		return text(200, "ok")
	}
	return text(200, out.String()+endpoint+" check passed\n")
}

// look writes how the checks are, and reports whether one failed that is not skipped. Their
// names begin with prefix.
func (h *Health) look(out *strings.Builder, endpoint, prefix string, skip map[string]bool, reasons bool) (failed bool) {
	for _, c := range h.of(endpoint, reasons) {
		name := prefix + c.Name
		if skip[name] || skip[c.Name] { // of all parts
			fmt.Fprintf(out, "[+]%s excluded: ok\n", name)
			continue
		}
		if err := c.Err(); err != nil {
			failed = true
			fmt.Fprintf(out, "[-]%s failed: %s\n", name, explain(err, reasons))
			continue
		}
		fmt.Fprintf(out, "[+]%s ok\n", name)
	}
	return failed
}

// lookAtParts is look at the parts that are not skipped: it reports whether all of them
// failed.
func (h *Health) lookAtParts(out *strings.Builder, endpoint string, skip map[string]bool) (failed bool) {
	looked, good := 0, 0
	for _, p := range h.parts() {
		if skip[p.Name] {
			fmt.Fprintf(out, "[+]%s excluded: ok\n", p.Name)
			continue
		}
		looked++
		if !p.look(out, endpoint, p.Name+"/", skip, true) {
			good++
		}
	}
	return looked > 0 && good == 0
}

// CheckResult is how a check is at a moment.
type CheckResult struct {
	Name string
	Err  error // nil when all is well
}

// Results are how the checks of readiness are now, without those of parts.
func (h *Health) Results() []CheckResult {
	list := make([]CheckResult, len(h.checks))
	for i, c := range h.checks {
		list[i] = CheckResult{c.Name, c.Err()}
	}
	return list
}

func explain(err error, tell bool) string {
	if tell {
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
