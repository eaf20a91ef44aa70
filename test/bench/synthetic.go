package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// A synthetic is an API server with any number of pods. It generates them while it sends them, so
// that tens of thousands of pods need neither be written nor stored. It forwards everything but
// lists and watches of all pods to a kube-apiserver.
type synthetic struct {
	url      string
	pods     int
	template podTemplate
	server   *http.Server
	served   sync.WaitGroup

	// mu guards the fields below and serializes sending: a watch gets events in the order of their
	// versions.
	mu      sync.Mutex
	version int64
	watches map[*syntheticWatch]struct{}
	sent    int64 // bytes of the initial pods of the last watch
	updated []int // pods, by the versions after the first ones
}

// A syntheticWatch is an open watch. Its handler writes the events from the channel to the client.
type syntheticWatch struct {
	events chan []byte
	gone   <-chan struct{}
}

// syntheticVersion is the version before the first pod: larger than any that kube-apiserver reaches
// meanwhile.
const syntheticVersion = 1_000_000_000

// startSynthetic starts an API server with n pods like the testbed's.
func (b *testbed) startSynthetic(ctx context.Context, n int) (*synthetic, error) {
	_, pod, err := fetch(ctx, b.apiserver, requestSpec{path: podPath(0)})
	if err != nil {
		return nil, err
	}
	pair, err := b.cluster.IssueServingCert("127.0.0.1")
	if err != nil {
		return nil, err
	}
	behind, err := url.Parse(b.cluster.URL())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &synthetic{url: "https://" + l.Addr().String(), pods: n, watches: make(map[*syntheticWatch]struct{}),
		template: newPodTemplate(trimNewline(pod)), version: syntheticVersion + int64(n)}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.tls.RootCAs}, ForceAttemptHTTP2: true}
	proxy.FlushInterval = -1
	quiet := log.New(io.Discard, "", 0) // discards messages about connections that end with the gateways
	proxy.ErrorLog = quiet
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("GET /api/v1/pods", s.servePods)
	s.server = &http.Server{Handler: mux, ErrorLog: quiet}
	s.served.Go(func() { _ = s.server.ServeTLS(l, pair.CertFile, pair.KeyFile) })
	return s, nil
}

func (s *synthetic) close() {
	_ = s.server.Close()
	s.served.Wait()
}

// servePods serves watches and lists. A list is empty, for clients that need only its version. A
// list with a continue token contains the pod at which the token begins, for gateways that verify
// that their saved state belongs to the same history. Lists with a selector are rejected: a client
// that waits for the cache must not mistake the upstream's response for the cache's.
func (s *synthetic) servePods(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "true":
		s.watch(w, r, query)
	case query.Get("fieldSelector") != "":
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`)
	case query.Get("continue") != "":
		s.servePod(w, query.Get("continue"))
	default:
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, s.current())
	}
}

// servePod serves a page of one pod at the version of a continue token, which must be the current
// one.
func (s *synthetic) servePod(w http.ResponseWriter, token string) {
	next, err := api.DecodeContinue(token)
	var ns, i int
	if err == nil {
		_, err = fmt.Sscanf(next.Start, keyFormat, &ns, &i)
	}
	if err != nil || next.ResourceVersion != s.current() || i >= s.pods {
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
		return
	}
	_, _ = w.Write(s.template.append(fmt.Appendf(nil,
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":"%s","remainingItemCount":%d},"items":[`,
		next.ResourceVersion, token, s.following(i)), i, s.versionOf(i)))
	_, _ = w.Write([]byte("]}"))
}

// keyFormat is the format of a pod's key, with the numbers of its namespace and of the pod.
const keyFormat = "team-%d/checkout-7d4b9c6f58-%d"

// following returns how many pods come after pod i in the order of their keys.
func (s *synthetic) following(i int) int {
	n := 0
	for other := range s.pods {
		if ns, of := other%seedNamespaces, i%seedNamespaces; ns > of || ns == of && other > i {
			n++
		}
	}
	return n
}

// versionOf returns the version of the last change of pod i.
func (s *synthetic) versionOf(i int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.version - int64(len(s.updated))
	for k, pod := range slices.Backward(s.updated) {
		if pod == i {
			return first + int64(k) + 1
		}
	}
	return syntheticVersion + int64(i) + 1
}

// watch sends the initial pods if requested, or the changes since a version, and then events. As
// kube-apiserver does, it sends a bookmark two seconds before it ends.
func (s *synthetic) watch(w http.ResponseWriter, r *http.Request, query url.Values) {
	watch := &syntheticWatch{events: make(chan []byte, 64), gone: r.Context().Done()}
	s.mu.Lock()
	version := s.version
	missed := s.missed(query.Get("resourceVersion"))
	s.watches[watch] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, watch)
		s.mu.Unlock()
	}()
	out := bufio.NewWriterSize(w, 64<<10)
	if query.Get("sendInitialEvents") == "true" {
		s.initial(out, version)
	} else {
		for k, i := range missed {
			_, _ = out.Write(s.event(nil, "MODIFIED", i, version-int64(len(missed)-1-k)))
		}
	}
	var bookmark, end <-chan time.Time
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		bookmark, end = time.After(time.Duration(seconds-2)*time.Second), time.After(time.Duration(seconds)*time.Second)
	}
	flush := func() {
		_ = out.Flush()
		_ = http.NewResponseController(w).Flush()
	}
	flush()
	for {
		select {
		case event := <-watch.events:
			_, _ = out.Write(event)
			if len(watch.events) == 0 {
				flush()
			}
		case <-bookmark:
			if len(watch.events) == 0 {
				fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"},`+
					`"spec":{"containers":null},"status":{}}}`+"\n", s.current())
				flush()
			}
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// missed returns the pods updated after a version, one for each version since.
func (s *synthetic) missed(version string) []int {
	from, err := strconv.ParseInt(version, 10, 64)
	if err != nil || from >= s.version {
		return nil
	}
	return slices.Clone(s.updated[max(0, int64(len(s.updated))-(s.version-from)):])
}

// initial sends the pods in the order of their keys, then the bookmark that ends the initial
// events.
func (s *synthetic) initial(out *bufio.Writer, version int64) {
	var event []byte
	var sent int64
	for ns := range seedNamespaces {
		for i := ns; i < s.pods; i += seedNamespaces {
			event = s.event(event[:0], "ADDED", i, syntheticVersion+int64(i)+1)
			sent += int64(len(event) - len(`{"type":"ADDED","object":}`+"\n"))
			_, _ = out.Write(event)
		}
	}
	s.mu.Lock()
	s.sent = sent
	s.mu.Unlock()
	fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
		`"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`+"\n", version)
}

// update sends a new version of pod i to all watches, and waits for slow ones.
func (s *synthetic) update(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.updated = append(s.updated, i)
	event := s.event(nil, "MODIFIED", i, s.version)
	for w := range s.watches {
		select {
		case w.events <- event:
		case <-w.gone:
		}
	}
}

func (s *synthetic) event(dst []byte, kind string, i int, version int64) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","object":`...)
	dst = s.template.append(dst, i, version)
	return append(dst, "}\n"...)
}

// rawBytes returns the size of all pods as sent.
func (s *synthetic) rawBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// current returns the version of the newest event.
func (s *synthetic) current() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// A podTemplate is a pod with placeholders for the fields that differ between pods.
type podTemplate []podPiece

// A podPiece is literal JSON and the placeholder that follows it; fill is nil after the last piece.
type podPiece struct {
	literal string
	fill    podFill
}

// A podFill appends the value of a placeholder for pod i at a version.
type podFill = func(dst []byte, i int, version int64) []byte

// podHoles has a group for each placeholder.
var podHoles = regexp.MustCompile(`"uid":"([^"]+)","resourceVersion":"(\d+)"` +
	`|"` + podLabel + `":"(\d+)"|"name":"(` + podName(0) + `)"|"namespace":"(` + namespaceName(0) + `)"|"nodeName":"(` + nodeName(0) + `)"`)

// newPodTemplate turns the JSON of pod 0 into a template.
func newPodTemplate(pod []byte) podTemplate {
	fills := []podFill{
		func(dst []byte, i int, _ int64) []byte { return fmt.Appendf(dst, "7b1f6e0a-0000-4000-8000-%012d", i) },
		func(dst []byte, _ int, version int64) []byte { return strconv.AppendInt(dst, version, 10) },
		func(dst []byte, i int, _ int64) []byte { return strconv.AppendInt(dst, int64(i), 10) },
		func(dst []byte, i int, _ int64) []byte { return append(dst, podName(i)...) },
		func(dst []byte, i int, _ int64) []byte { return append(dst, namespaceName(i)...) },
		func(dst []byte, i int, _ int64) []byte { return append(dst, nodeName(i)...) },
	}
	var t podTemplate
	at := 0
	for _, m := range podHoles.FindAllSubmatchIndex(pod, -1) {
		for hole, fill := range fills {
			if from, to := m[2*hole+2], m[2*hole+3]; from >= 0 {
				t = append(t, podPiece{string(pod[at:from]), fill})
				at = to
			}
		}
	}
	return append(t, podPiece{literal: string(pod[at:])})
}

// append appends pod i at a version.
func (t podTemplate) append(dst []byte, i int, version int64) []byte {
	for _, p := range t {
		dst = append(dst, p.literal...)
		if p.fill != nil {
			dst = p.fill(dst, i, version)
		}
	}
	return dst
}
