package proxy

import (
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
}

// NewHealth returns a Health of the given checks; "ping" is added.
func NewHealth(checks ...Check) *Health {
	return &Health{checks: append([]Check{{Name: "ping", Err: func() error { return nil }}}, checks...)}
}

// Serve answers r if it is for one of the health endpoints, else returns nil.
// reasons tells the client why a check failed: not for listeners that anyone
// may ask.
func (h *Health) Serve(r *api.Request, reasons bool) *api.Response {
	endpoint, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	switch endpoint {
	case "livez", "readyz", "healthz":
	default:
		return nil
	}
	if r.Method != "GET" && r.Method != "HEAD" {
		return text(405, "only GET and HEAD are allowed\n")
	}
	query, _ := url.ParseQuery(r.RawQuery)
	if rest != "" {
		return h.single(endpoint, rest, reasons)
	}
	return h.all(endpoint, query.Has("verbose"), query["exclude"], reasons)
}

func (h *Health) single(endpoint, name string, reasons bool) *api.Response {
	for _, c := range h.of(endpoint) {
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
// mend, the others have all.
func (h *Health) of(endpoint string) []Check {
	if endpoint != "livez" {
		return h.checks
	}
	var live []Check
	for _, c := range h.checks {
		if !c.Ready {
			live = append(live, c)
		}
	}
	return live
}

func (h *Health) all(endpoint string, verbose bool, exclude []string, reasons bool) *api.Response {
	skip := make(map[string]bool)
	for _, list := range exclude {
		for _, name := range strings.Split(list, ",") {
			skip[name] = true
		}
	}
	var out strings.Builder
	failed := false
	for _, c := range h.of(endpoint) {
		if skip[c.Name] {
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := c.Err(); err != nil {
			failed = true
			fmt.Fprintf(&out, "[-]%s failed: %s\n", c.Name, explain(err, reasons))
			continue
		}
		fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
	}
	if failed {
		return text(500, out.String()+endpoint+" check failed\n")
	}
	if !verbose {
		return text(200, "ok")
	}
	return text(200, out.String()+endpoint+" check passed\n")
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
