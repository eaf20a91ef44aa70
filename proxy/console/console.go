package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The paths of the console besides "/", and of its documents.
const (
	Path    = "/console/"
	apiPath = Path + "api/"
)

// Console is an http.Handler for "/" and the paths below Path. It is safe for concurrent use.
type Console struct {
	Options
	started time.Time
	mux     *http.ServeMux
	guard   guard
	docs    *builder
	streams atomic.Int64

	// Close cancels ctx and waits for background.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// New opens a Console, which must be closed.
func New(o Options) (*Console, error) {
	c := &Console{Options: o, started: time.Now(), mux: http.NewServeMux(), docs: newBuilder(o)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.guard.open(o.TokenFile, o.Log); err != nil {
		return nil, fmt.Errorf("--console-token-file: %w", err)
	}
	c.mux.HandleFunc("GET /{$}", servePage)
	c.mux.HandleFunc("GET "+Path+"{name}", servePage)
	api := http.NewServeMux()
	handle := func(pattern string, serve func(w http.ResponseWriter, r *http.Request) error) {
		api.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				fail(w, err, c.Log)
			}
		})
	}
	handle("GET "+apiPath+"session", c.serveSession)
	handle("GET "+apiPath+"config", c.serveConfig)
	handle("GET "+apiPath+"events", c.serveEvents)
	handle("GET "+apiPath+"{topic}", c.serveTopic)
	handle("POST "+apiPath+"explain", c.serveExplain)
	handle("POST "+apiPath+"actions/{action}", c.serveAction)
	handle(apiPath, func(_ http.ResponseWriter, r *http.Request) error { return notFound(r) })
	c.mux.Handle(apiPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.guard.check(r); err != nil {
			fail(w, err, c.Log)
			return
		}
		api.ServeHTTP(w, r)
	}))
	o.Panics.Keep(&c.background, "background", func() { c.docs.keepSampling(c.ctx) })
	return c, nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // pages override it
	c.mux.ServeHTTP(w, r)
}

// Close stops sampling and a running check, and tells streams to end. It does not wait for the
// streams; the listener does.
func (c *Console) Close() {
	c.cancel()
	c.background.Wait()
}

func (c *Console) serveSession(w http.ResponseWriter, _ *http.Request) error {
	session := Session{Mode: c.Mode, Version: c.Version, Started: c.started, Actions: c.Actions, Clusters: []string{}, Pages: c.pages()}
	for _, cluster := range c.Clusters() {
		if cluster.Name != "" {
			session.Clusters = append(session.Clusters, cluster.Name)
		}
	}
	return respond(w, session)
}

func (c *Console) serveConfig(w http.ResponseWriter, _ *http.Request) error {
	return respond(w, c.Configuration())
}

func (c *Console) serveTopic(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("topic")
	if topics[name] == nil || !slices.Contains(c.pages(), name) {
		return notFound(r)
	}
	q, err := parseQuery(name, r.URL.Query(), false)
	if err != nil {
		return err
	}
	body, err := c.docs.document(q)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, body)
	return nil
}

// pages lists the pages, and so the topics, of the mode.
func (c *Console) pages() []string {
	list := []string{"overview", "collections", "clients", "watches"}
	if c.Mode == Gateway {
		list = append(list, "upstreams")
	}
	list = append(list, "permissions", "checks", "explain", "config")
	if c.Mode == Standalone {
		list = append(list, "store")
	}
	return list
}

// topics are the documents, by their names in paths.
var topics = map[string]*topic{
	"overview":    {build: (*builder).overview},
	"collections": {build: (*builder).collections},
	"clients":     {build: (*builder).clients, parameters: []parameter{{"window", []string{"1m", "1h"}}, {"sort", clientOrderNames}}},
	"watches":     {build: (*builder).watches, parameters: []parameter{{"sort", []string{"age", "events", "user"}}, {"user", nil}, {"resource", nil}}},
	"upstreams":   {build: (*builder).upstreams},
	"permissions": {build: (*builder).permissions},
	"checks":      {build: (*builder).checks},
	"store":       {build: (*builder).store, allClusters: true},
}

// maxParameter is the maximum length of a parameter in bytes.
const maxParameter = 256

// parseQuery parses the query of a topic. live queries are for streams, whose documents have no
// series.
func parseQuery(name string, values url.Values, live bool) (*query, error) {
	t := topics[name]
	if t == nil {
		return nil, badRequest("there is no topic %q", shorten(name))
	}
	q := &query{topic: t, name: name, live: live, parameters: make(map[string]string)}
	if !t.allClusters {
		q.cluster = values.Get("cluster")
	}
	if len(q.cluster) > maxParameter {
		return nil, errNoCluster
	}
	for _, p := range t.parameters {
		value := values.Get(p.name)
		switch {
		case len(value) > maxParameter:
			return nil, badRequest("parameter %s is longer than %d bytes", p.name, maxParameter)
		case p.values != nil && value == "":
			value = p.values[0]
		case p.values != nil && !slices.Contains(p.values, value):
			return nil, badRequest("%s must be one of %s, not %q", p.name, strings.Join(p.values, ", "), value)
		}
		q.parameters[p.name] = value
	}
	return q, nil
}
