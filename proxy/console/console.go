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
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/policy"
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
	// Clusters are those that there are now; one has no name, several have. It must be quick.
	Clusters func() []*Cluster
	// Blocked are the user agents that are refused; an action changes them.
	Blocked *policy.Blocked
	// Configuration is what is in force, without secrets.
	Configuration func() *Configuration
	// Revision counts the changes of a standalone's store, Types its objects, with a note on
	// what is left out; both may be nil.
	Revision func() float64
	Types    func() (types []StoreType, note string)
	// Audit is told of actions; nil for no audit log.
	Audit  *audit.Log
	Log    *slog.Logger
	Panics *contain.Panics
}

// Console is a http.Handler of "/" and of what is below Path. It is safe for concurrent use.
type Console struct {
	Options
	started time.Time
	mux     *http.ServeMux
	guard   guard
	files   map[string]file

	// ctx ends, and closing is closed, by Close, which waits for background.
	ctx        context.Context
	cancel     context.CancelFunc
	closing    <-chan struct{}
	background sync.WaitGroup
	streams    atomic.Int64
	checking   atomic.Bool // for an action

	// building guards what follows: documents are built one after the other.
	building  sync.Mutex
	kept      map[string]kept // at most maxKept
	views     map[string]*view
	pasts     map[string]*past
	ofProcess struct {
		figures figures
		at      time.Time
	}
	ofTypes struct {
		list []StoreType
		note string
		at   time.Time
	}
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
	c := &Console{
		Options: o, started: time.Now(), mux: http.NewServeMux(),
		kept: make(map[string]kept), views: make(map[string]*view), pasts: make(map[string]*past),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.closing = c.ctx.Done()
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
	api.HandleFunc("GET "+apiPath+"config", c.serveConfig)
	api.HandleFunc("GET "+apiPath+"events", c.serveEvents)
	api.HandleFunc("GET "+apiPath+"{topic}", c.serveTopic)
	api.HandleFunc("POST "+apiPath+"explain", c.serveExplain)
	api.HandleFunc("POST "+apiPath+"actions/{action}", c.serveAction)
	api.HandleFunc(apiPath, func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "the console has nothing at "+r.Method+" "+r.URL.Path)
	})
	c.mux.Handle(apiPath, c.guarded(api))
	c.Panics.Keep(&c.background, "background", c.keepSampling)
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

// Close ends what goes on: streams, a check, and the noting of totals. Streams are told; that
// they have ended is the listener's to wait for.
func (c *Console) Close() {
	c.cancel()
	c.background.Wait()
}

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

// has reports whether there is a page, or topic, of that name.
func (c *Console) has(name string) bool { return slices.Contains(c.pages(), name) }

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
	_, _ = w.Write(body)
	_, _ = w.Write([]byte{'\n'})
}

// fail answers with one sentence.
func fail(w http.ResponseWriter, status int, why string) { answer(w, status, Failure{Error: why}) }
