// Package console serves what operators look at in a browser, and in a terminal by
// `kubeweir top`: pages, and the documents that they are made of (docs/console.md). It reads
// what the parts of the program count and know anyway, when somebody looks; by itself it
// only notes a few totals each ten seconds, for series. It changes something only where
// actions are allowed.
//
// A document is built at most once in half a second, whoever and how many ask for it, and
// encoded once for all of them: who looks costs as much as one who looks.
package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/contain"
)

// The modes.
const (
	Gateway    = "gateway"
	Standalone = "standalone"
)

// Options are what a Console shows. All are required but where said.
type Options struct {
	// Mode is Gateway or Standalone; Version is the program's.
	Mode, Version string
	// Pages has index.html and what it refers to, in one folder; nil for none. Policy is
	// the Content-Security-Policy that they are served with.
	Pages  fs.FS
	Policy string
	// Actions allows what changes something.
	Actions bool
	// TokenFile has the token that clients must give; "" for none: only this machine's are
	// let in then.
	TokenFile string
	// Process has the metrics of the process.
	Process prometheus.Gatherer
	// Clusters are those that there are now; one has no name, several have.
	Clusters func() []*Cluster
	Log      *slog.Logger
	Panics   *contain.Panics
}

// Cluster is one cluster, or the origin, as far as the console shows it.
type Cluster struct {
	Name string
	// Metrics are those of the cluster's parts.
	Metrics prometheus.Gatherer
}

// Console is a http.Handler of "/" and of what is below Path. It is safe for concurrent use.
type Console struct {
	Options
	started time.Time
	mux     *http.ServeMux
	guard   guard
	files   map[string]file

	closing   chan struct{}
	closeOnce sync.Once
}

// actionHeader is what an action has to have: a page of elsewhere cannot send it.
const actionHeader = "X-Kubeweir-Console"

// Path is where all is but the first page, apiPath where the documents are.
const (
	Path    = "/console/"
	apiPath = Path + "api/"
)

// New makes a Console; Close ends it.
func New(o Options) (*Console, error) {
	c := &Console{Options: o, started: time.Now(), mux: http.NewServeMux(), closing: make(chan struct{})}
	if err := c.guard.open(o.TokenFile, o.Log); err != nil {
		return nil, fmt.Errorf("--console-token-file: %w", err)
	}
	if err := c.readPages(); err != nil {
		return nil, err
	}
	c.mux.HandleFunc("GET /{$}", c.servePage)
	c.mux.HandleFunc("GET "+Path+"{name}", c.servePage)
	api := http.NewServeMux()
	api.HandleFunc("GET "+apiPath+"session", c.serveSession)
	api.HandleFunc(apiPath, func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "the console has nothing at "+r.Method+" "+r.URL.Path)
	})
	c.mux.Handle(apiPath, c.guarded(api))
	return c, nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // pages have their own
	c.mux.ServeHTTP(w, r)
}

// Close ends what goes on: streams, and the noting of totals.
func (c *Console) Close() { c.closeOnce.Do(func() { close(c.closing) }) }

func (c *Console) serveSession(w http.ResponseWriter, _ *http.Request) {
	session := Session{Mode: c.Mode, Version: c.Version, Started: c.started, Actions: c.Actions, Clusters: []string{}, Pages: c.pages()}
	for _, cluster := range c.Clusters() {
		if cluster.Name != "" {
			session.Clusters = append(session.Clusters, cluster.Name)
		}
	}
	answer(w, http.StatusOK, session)
}

// pages are the names of the pages that there are.
func (c *Console) pages() []string {
	list := []string{"overview", "collections", "askers", "watches"}
	if c.Mode == Gateway {
		list = append(list, "upstreams")
	}
	list = append(list, "permissions", "checks", "explain", "config")
	if c.Mode == Standalone {
		list = append(list, "store")
	}
	return list
}

// answer writes a document.
func answer(w http.ResponseWriter, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	write(w, status, body)
}

// write writes a document that is encoded.
func write(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// fail answers with one sentence.
func fail(w http.ResponseWriter, status int, why string) { answer(w, status, Failed{Error: why}) }
