package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A probe is a request that is sent periodically.
type probe struct {
	name string
	// request returns the n-th request.
	request func(s *scene, n int) request
	good    int // the status if there is no fault
	// serves determines where the response may come from.
	serves serving
}

// serving is where a response may come from.
type serving int

const (
	fromUpstream serving = iota // or from the cache after a freshness check
	fromCache                   // possibly stale, and then marked
	fromSession                 // from the cache, including the session's own writes
	written                     // a write
	watched
)

// A request is one request of a probe.
type request struct {
	method, path, body  string // method defaults to GET
	accept, agent, user string // user defaults to the administrator
	name                string // of the created object
}

const (
	typeJSON  = "application/json"
	typeProto = "application/vnd.kubernetes.protobuf"
)

// probes returns all probes.
func probes() []probe {
	list := func(query string) func(*scene, int) request {
		return func(s *scene, _ int) request { return request{path: s.maps() + query} }
	}
	at := func(format string) func(*scene, int) request {
		return func(s *scene, _ int) request { return request{path: s.maps() + fmt.Sprintf(format, s.before)} }
	}
	session := func(inner func(*scene, int) request) func(*scene, int) request {
		return func(s *scene, n int) request {
			r := inner(s, n)
			r.agent = sessionAgent
			return r
		}
	}
	get := func(s *scene, _ int) request { return request{path: s.maps() + "/" + steady} }
	newWatch := func(accept string) func(*scene, int) request {
		return func(s *scene, n int) request {
			r := at("?watch=true&timeoutSeconds=1&resourceVersion=%d")(s, n)
			r.accept = accept
			return r
		}
	}
	return []probe{
		{"list, rv=0", list("?resourceVersion=0"), 200, fromCache},
		{"get, rv=0", func(s *scene, _ int) request { return request{path: s.maps() + "/" + steady + "?resourceVersion=0"} }, 200, fromCache},
		{"list, not older than", at("?resourceVersion=%d&resourceVersionMatch=NotOlderThan"), 200, fromCache},
		{"list, exact", at("?resourceVersion=%d&resourceVersionMatch=Exact"), 200, watched},
		{"list, strict", list(""), 200, fromUpstream},
		{"get, strict", get, 200, fromUpstream},
		{"list, session", session(list("")), 200, fromSession},
		{"get, session", session(get), 200, fromSession},
		{"create", func(s *scene, n int) request {
			name := fmt.Sprintf("w%d", n)
			return request{method: http.MethodPost, path: "/api/v1/namespaces/" + s.name + "-writes/configmaps", name: name,
				body: `{"metadata":{"name":"` + name + `"}}`}
		}, 201, written},
		{"new watch, JSON", newWatch(typeJSON), 200, watched},
		{"new watch, protobuf", newWatch(typeProto), 200, watched},
		{"somebody new, rv=0", func(s *scene, _ int) request {
			return request{path: s.maps() + "?resourceVersion=0", user: s.unseenUser()}
		}, 200, fromCache},
	}
}

// A sample is one request and its response.
type sample struct {
	probe   *probe
	request request
	began   time.Time
	took    time.Duration // until the end of the response, or until a watch started
	status  int           // 0 if there was no response
	err     error
	version uint64 // of a JSON list
	// message is the message of a Status.
	message string
	// marked means that the response is marked as stale; age is the value of its Age header.
	marked     bool
	age        time.Duration
	retryAfter bool
}

func (a *sample) ended() time.Time { return a.began.Add(a.took) }

func (a *sample) good() bool { return a.err == nil && a.status == a.probe.good }

func (a *sample) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s: %v, after %s", a.probe.name, a.err, a.took)
	}
	return fmt.Sprintf("%s: %d %s, after %s", a.probe.name, a.status, a.message, a.took)
}

// waitTimeout is how long a client waits for a response.
const waitTimeout = 90 * time.Second

// send sends r and reads the response.
func (s *scene) send(ctx context.Context, p *probe, r request) *sample {
	a := &sample{probe: p, request: r, began: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	a.err = s.exchange(ctx, r, a)
	if a.took == 0 || !strings.Contains(r.path, "watch=true") {
		a.took = time.Since(a.began)
	}
	return a
}

func (s *scene) exchange(ctx context.Context, r request, a *sample) error {
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.gateway.URL()+r.path, strings.NewReader(r.body))
	if err != nil {
		return err
	}
	token := s.kube.AdminToken()
	if r.user != "" {
		token = s.kube.Token(r.user)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "faults")
	for name, value := range map[string]string{"Accept": r.accept, "User-Agent": r.agent} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if r.body != "" {
		req.Header.Set("Content-Type", typeJSON)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	a.took = time.Since(a.began)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	a.status, a.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After") != ""
	for _, w := range resp.Header.Values("Warning") {
		a.marked = a.marked || strings.HasPrefix(w, "110 ")
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Age"))
	a.age = time.Duration(seconds) * time.Second
	var head struct {
		Kind, Message string
		Metadata      struct{ ResourceVersion string }
	}
	if json.Unmarshal(body, &head) != nil {
		return nil // protobuf, or watch events
	}
	a.message = head.Message
	if strings.HasSuffix(head.Kind, "List") {
		a.version, err = strconv.ParseUint(head.Metadata.ResourceVersion, 10, 64)
	}
	return err
}

// A log collects samples.
type log struct {
	mu  sync.Mutex
	all []*sample
}

func (l *log) add(a *sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, a)
}

// of returns the samples of a probe that began between two times, in the order in which they ended.
func (l *log) of(p *probe, from, to time.Time) []*sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*sample
	for _, a := range l.all {
		if a.probe == p && !a.began.Before(from) && a.began.Before(to) {
			out = append(out, a)
		}
	}
	return out
}
