package testapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
)

const (
	maxFaults = 100
	maxCount  = 1_000_000
	maxDelay  = time.Minute
)

// verbs are the verbs of resource requests.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// Fault is injected into the next Count requests that match all set fields.
type Fault struct {
	Verb      string `json:"verb,omitempty"` // as in RBAC
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"` // pods, or pods/status
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	// Count is the number of requests, 1 if it is not set.
	Count int `json:"count,omitempty"`
	// Code is the HTTP status of the response; without one the request is only delayed.
	Code    int             `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Delay   metav1.Duration `json:"delay,omitzero"`
}

// check completes f, or says what is wrong with it.
func (f *Fault) check() error {
	if f.Count == 0 {
		f.Count = 1
	}
	if f.Message == "" {
		f.Message = "injected by a test"
	}
	switch {
	case f.Verb != "" && !slices.Contains(verbs, f.Verb):
		return fmt.Errorf("verb must be one of %s, not %q", strings.Join(verbs, ", "), f.Verb)
	case f.Code == 0 && f.Delay.Duration == 0:
		return errors.New("set code, delay or both")
	case f.Code != 0 && (f.Code < 400 || f.Code > 599):
		return fmt.Errorf("code must be a status from 400 to 599, not %d", f.Code)
	case f.Count < 0 || f.Count > maxCount:
		return fmt.Errorf("count must be from 1 to %d, not %d", maxCount, f.Count)
	case f.Delay.Duration < 0 || f.Delay.Duration > maxDelay:
		return fmt.Errorf("delay must be at most %v, not %v", maxDelay, f.Delay.Duration)
	}
	return nil
}

func (f *Fault) matches(info *api.RequestInfo) bool {
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Verb, info.Verb) && is(f.Resource, resource) && (f.Resource == "" && f.Group == "" || f.Group == info.APIGroup) &&
		is(f.Namespace, info.Namespace) && is(f.Name, info.Name)
}

// err returns the error that a client gets, as kube-apiserver would write it.
func (f *Fault) err(r *api.Request) error {
	info := r.Info()
	switch f.Code {
	case http.StatusGone:
		return apierrors.NewResourceExpired(f.Message)
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests(f.Message, 1)
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	err := apierrors.NewGenericServerResponse(f.Code, r.Method, resource, info.Name, f.Message, 0, false)
	err.ErrStatus.Message = f.Message
	return err
}

// Faults are injected into the requests of a server. They are safe for concurrent use.
type Faults struct {
	hasFaults atomic.Bool // whether there are any
	mu        sync.Mutex
	faults    []*Fault            // guarded by mu, in the order in which they apply
	watches   map[*watch]struct{} // guarded by mu: those that are open
}

// NewFaults returns no faults.
func NewFaults() *Faults { return &Faults{watches: make(map[*watch]struct{})} }

// Add adds a fault after those that there are.
func (f *Faults) Add(fault *Fault) error {
	if err := fault.check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) >= maxFaults {
		return fmt.Errorf("there are %d faults already", maxFaults)
	}
	f.faults = append(f.faults, fault)
	f.hasFaults.Store(true)
	return nil
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	f.hasFaults.Store(false)
}

// List returns the faults that are left.
func (f *Faults) List() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Fault, 0, len(f.faults))
	for _, fault := range f.faults {
		out = append(out, *fault)
	}
	return out
}

// take returns the fault of a request, nil if it has none.
func (f *Faults) take(info *api.RequestInfo) *Fault {
	if !f.hasFaults.Load() || !info.IsResourceRequest {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.faults {
		if !fault.matches(info) {
			continue
		}
		if fault.Count--; fault.Count == 0 {
			f.faults = append(f.faults[:i:i], f.faults[i+1:]...)
			f.hasFaults.Store(len(f.faults) > 0)
		}
		taken := *fault
		return &taken
	}
	return nil
}

// Wrap returns next with the faults.
func (f *Faults) Wrap(next api.Handler) api.Handler { return &handler{f, next} }

type handler struct {
	faults *Faults
	next   api.Handler
}

// Serve implements api.Handler.
func (h *handler) Serve(ctx context.Context, r *api.Request) *api.Response {
	info := r.Info()
	if fault := h.faults.take(info); fault != nil {
		if fault.Delay.Duration > 0 {
			select {
			case <-time.After(fault.Delay.Duration):
			case <-ctx.Done():
			}
		}
		if fault.Code != 0 {
			form := api.NegotiateStatus(r.Header.Get("Accept"), info.Pretty(r.Header.Get("User-Agent")))
			return api.StatusResponse(fault.err(r), form)
		}
	}
	resp := h.next.Serve(ctx, r)
	if _, duplex := resp.Stream.(api.Duplex); info.Verb == "watch" && resp.Stream != nil && !duplex {
		resp.Stream = &watch{Stream: resp.Stream, faults: h.faults}
	}
	return resp
}

// EndWatches ends all watches but those over WebSockets, as their timeout would. It returns their number.
func (f *Faults) EndWatches() int {
	f.mu.Lock()
	open := slices.Collect(maps.Keys(f.watches))
	f.mu.Unlock()
	for _, w := range open { // without the lock, which Stop takes
		w.writer.Close()
	}
	return len(open)
}

// watch is a watch that EndWatches ends.
type watch struct {
	api.Stream
	faults *Faults
	writer api.StreamWriter // set by Start
}

// Start implements api.Stream.
func (w *watch) Start(writer api.StreamWriter) {
	w.writer = writer
	w.faults.mu.Lock()
	w.faults.watches[w] = struct{}{}
	w.faults.mu.Unlock()
	w.Stream.Start(writer)
}

// Stop implements api.Stream.
func (w *watch) Stop() {
	w.faults.mu.Lock()
	delete(w.faults.watches, w)
	w.faults.mu.Unlock()
	w.Stream.Stop()
}
