package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// storePath is the path at which Etcd reports where the objects are.
const storePath = "/kubeweir/v1/store"

// storeDocument is the response at storePath.
type storeDocument struct {
	// DataDir is the absolute path of the folder for the objects. It is empty if they are in memory.
	DataDir string `json:"dataDir,omitempty"`
}

// Etcd is a stand-in for etcd: it serves health checks and the location of the objects, but not the
// etcd API.
type Etcd struct {
	// Listen is the host:port for clients.
	Listen string
	// DataDir is --data-dir.
	DataDir string
	// OnDisk makes kube-apiserver store the objects in DataDir instead of memory.
	OnDisk bool
	// Ignored are the given flags that have no effect.
	Ignored []string

	claimed atomic.Bool
}

// ParseEtcd parses the flags of etcd.
func ParseEtcd(args []string) (*Etcd, error) {
	e := &Etcd{Listen: "127.0.0.1:2379", DataDir: "default.etcd"}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !isFlag {
			return nil, fmt.Errorf("unexpected argument %q: etcd takes flags only", args[i])
		}
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		}
		switch name {
		case "data-dir":
			e.DataDir = value
		case "listen-client-urls":
			first, _, _ := strings.Cut(value, ",")
			u, err := url.Parse(first)
			if err != nil || u.Scheme != "http" || u.Host == "" {
				return nil, fmt.Errorf("--listen-client-urls must be a URL such as http://127.0.0.1:2379, without TLS, not %q", value)
			}
			e.Listen = u.Host
		default:
			e.Ignored = append(e.Ignored, "--"+name)
		}
	}
	if e.DataDir == "" {
		return nil, errors.New("--data-dir must name a folder")
	}
	return e, nil
}

// closeTime is how long Serve waits for the end of requests.
const closeTime = 50 * time.Millisecond

// Serve serves until ctx ends. ready is called with the address once it listens.
func (e *Etcd) Serve(ctx context.Context, ready func(net.Addr)) error {
	dir, err := filepath.Abs(e.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	l, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return fmt.Errorf("--listen-client-urls: %w", err)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/health", "/livez", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"health":"true","reason":""}`)
		})
	}
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}`)
	})
	mux.HandleFunc(storePath, func(w http.ResponseWriter, r *http.Request) { e.serveStore(w, r, dir) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "kubeweir stands in for etcd here, without etcd's API", http.StatusNotImplemented)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ready(l.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if s.Shutdown(closing) != nil {
			return s.Close() // the claim of kube-apiserver is still open
		}
		return nil
	}
}

// serveStore reports where the objects are and keeps the response open while the client uses them. In
// memory it admits one client, because two kube-apiservers would not see each other's objects.
func (e *Etcd) serveStore(w http.ResponseWriter, r *http.Request, dir string) {
	doc := storeDocument{DataDir: dir}
	if !e.OnDisk {
		if !e.claimed.CompareAndSwap(false, true) {
			http.Error(w, "another kube-apiserver has the objects in its memory", http.StatusConflict)
			return
		}
		defer e.claimed.Store(false)
		doc.DataDir = ""
	}
	w.Header().Set("Content-Type", "application/json")
	if json.NewEncoder(w).Encode(doc) != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	<-r.Context().Done()
}

// Store is where the objects are.
type Store struct {
	// StandIn is false if the servers are those of a real etcd.
	StandIn bool
	// DataDir is the folder for the objects, or empty if they are in memory.
	DataDir string

	claim io.Closer
}

// Close lets another kube-apiserver use the objects.
func (s *Store) Close() error {
	if s.claim == nil {
		return nil
	}
	return s.claim.Close()
}

// storeTimeout bounds the request to Etcd, and storeRetry is the delay before it is repeated.
const (
	storeTimeout = 5 * time.Second
	storeRetry   = 20 * time.Millisecond
)

// FindStore queries the first server of --etcd-servers for the location of the objects. A server that
// does not serve it is a real etcd. The caller closes the Store.
func FindStore(ctx context.Context, servers []string) (*Store, error) {
	if !strings.HasPrefix(servers[0], "http://") {
		return &Store{}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(storeTimeout, cancel)
	defer timer.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(servers[0], "/")+storePath, nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("--etcd-servers: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(req)
	for err != nil && ctx.Err() == nil { // it may have been started at the same time
		time.Sleep(storeRetry)
		if again, cause := client.Do(req); ctx.Err() == nil {
			resp, err = again, cause
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("--etcd-servers=%s: no response (%w); is etcd running?", servers[0], errors.Unwrap(err))
	}
	s := &Store{claim: closer{resp.Body, cancel}}
	switch resp.StatusCode {
	case http.StatusOK:
		var doc storeDocument
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
			return nil, errors.Join(fmt.Errorf("--etcd-servers: %w", err), s.Close())
		}
		s.StandIn, s.DataDir = true, doc.DataDir
		return s, nil
	case http.StatusConflict:
		return nil, errors.Join(fmt.Errorf("--etcd-servers=%s: another kube-apiserver has the objects in its memory; start etcd with KUBEWEIR_STORE=disk, and end the other one first", servers[0]), s.Close())
	}
	if resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusNotImplemented {
		return nil, errors.Join(fmt.Errorf("--etcd-servers=%s: %s", servers[0], resp.Status), s.Close())
	}
	return &Store{}, s.Close()
}

// closer closes a response.
type closer struct {
	io.Closer
	cancel context.CancelFunc
}

func (c closer) Close() error {
	c.cancel()
	return c.Closer.Close()
}
