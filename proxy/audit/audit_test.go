package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestMain(m *testing.M) {
	// The library that rotates the file keeps its goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

var jane = &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}}

// metadata is what is known of a request line such as "GET /api/v1/pods".
func metadata(line string) *Metadata {
	method, uri, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(uri, "?")
	r := &api.Request{Method: method, Path: path, RawPath: path, RawQuery: query, RemoteAddr: "10.0.0.1:5", Header: api.Header{{Name: "User-Agent", Value: "kubectl"}}}
	return &Metadata{ID: line, Request: r, Info: r.Info(), Received: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC), User: jane}
}

// everything is a policy with one level.
func everything(level auditinternal.Level) *auditinternal.Policy {
	return &auditinternal.Policy{Rules: []auditinternal.PolicyRule{{Level: level}}}
}

// open opens a Log that writes to the buffer, and closes it with the test.
func open(t *testing.T, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// record records a request that is served from memory.
func record(l *Log, line string, resp *api.Response) bool {
	r := l.Begin(metadata(line))
	if !r.Received() {
		return false
	}
	r.Responding(resp, metadata(line).Info.LongRunning())
	if resp.Done != nil {
		resp.Done(0, nil)
	}
	return true
}

func ok() *api.Response { return &api.Response{Status: 200} }

// lines returns the events in a text.
func lines(t *testing.T, text string) (events []auditv1.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		events = append(events, e)
	}
	return events
}

func ids(events []auditv1.Event) (ids []string) {
	for i := range events {
		ids = append(ids, string(events[i].AuditID)+" "+string(events[i].Stage))
	}
	return ids
}

func TestNothingIsRecordedWithoutABackend(t *testing.T) {
	for _, l := range []*Log{nil, open(t, Options{})} {
		if l.Enabled() || l.Begin(metadata("GET /api/v1/pods")) != nil || !record(l, "GET /api/v1/pods", ok()) {
			t.Error("enabled")
		}
		l.Reopen()
		l.Record(&Action{Metadata: *metadata("POST /x")})
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestDefaultPolicy(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}, Stdout: &out})
	for _, line := range []string{"GET /readyz", "GET /healthz/etcd", "GET /livez?verbose", "GET /version", "POST /api/v1/namespaces/a/pods", "GET /api/v1/pods?watch=1"} {
		record(l, line, ok())
	}
	events := lines(t, out.String())
	if want := []string{
		"GET /version ResponseComplete", "POST /api/v1/namespaces/a/pods ResponseComplete",
		"GET /api/v1/pods?watch=1 ResponseStarted", "GET /api/v1/pods?watch=1 ResponseComplete",
	}; !slices.Equal(ids(events), want) {
		t.Errorf("%q", ids(events))
	}
	e := events[1]
	if e.Level != auditv1.LevelMetadata || e.Verb != "create" || e.RequestURI != "/api/v1/namespaces/a/pods" || e.User.Username != "jane" || e.User.UID != "7" ||
		!slices.Equal(e.SourceIPs, []string{"10.0.0.1"}) || e.UserAgent != "kubectl" || e.ResponseStatus.Code != 200 ||
		e.ObjectRef.Resource != "pods" || e.ObjectRef.Namespace != "a" || e.ObjectRef.APIVersion != "v1" || !e.RequestReceivedTimestamp.Equal(&metav1.MicroTime{Time: metadata("GET /").Received.Truncate(time.Microsecond)}) {
		t.Errorf("%+v", e)
	}
}

func TestSourceAddressesAreBounded(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}, Stdout: &out})
	m := metadata("GET /version")
	m.Request.Header.Set("X-Forwarded-For", strings.Repeat("192.0.2.1,", 5000))
	m.Request.Header.Set("User-Agent", strings.Repeat("x", 5000))
	m.Request.Header.Set("Authorization", "Bearer hidden")
	r := l.Begin(m)
	r.Responding(ok(), false)
	e := lines(t, out.String())[0]
	if len(e.SourceIPs) != maxSourceIPs+1 || len(e.UserAgent) > 1100 || strings.Contains(out.String(), "hidden") {
		t.Errorf("%d addresses, user agent of %d bytes", len(e.SourceIPs), len(e.UserAgent))
	}
}

// TestUnidentifiedRequestsHaveOneEvent checks kube-apiserver's stage of a 401.
func TestUnidentifiedRequestsHaveOneEvent(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{Policy: everything(auditinternal.LevelRequestResponse), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}, Stdout: &out})
	m := metadata("GET /api/v1/pods")
	m.User = nil
	r := l.Begin(m)
	r.Received()
	body := api.EncodeStatus(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 401, Reason: "Unauthorized", Message: "no"}, api.StatusProtobuf)
	r.Responding(&api.Response{Status: 401, Body: body, Header: api.Header{{Name: "Content-Type", Value: api.Protobuf.MediaType()}}}, false)
	events := lines(t, out.String())
	if len(events) != 1 || events[0].Stage != auditv1.StageResponseStarted || events[0].ResponseStatus.Message != "no" || events[0].ResponseStatus.Code != 401 {
		t.Errorf("%+v", events)
	}
}

// TestBadTimeoutsHaveOneEvent checks that such a request is recorded as by kube-apiserver, which does not
// know its client yet.
func TestBadTimeoutsHaveOneEvent(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{Policy: everything(auditinternal.LevelMetadata), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}, Stdout: &out})
	for line, n := range map[string]int{
		"GET /api/v1/pods?timeout=x": 1, "GET /api/v1/pods?timeout=5s": 2, "GET /api/v1/pods?timeout=": 2, "GET /api/v1/pods?watch=1&timeout=x": 3,
	} {
		out.Reset()
		record(l, line, ok())
		if events := lines(t, out.String()); len(events) != n || (events[0].User.Username == "") != (n == 1) {
			t.Errorf("%s: %q", line, ids(events))
		}
	}
}

func TestPanicsAreRecorded(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}, Stdout: &out})
	r := l.Begin(metadata("GET /api/v1/pods"))
	r.Panicked()
	if events := lines(t, out.String()); len(events) != 1 || events[0].Stage != auditv1.StagePanic || events[0].ResponseStatus.Code != 500 {
		t.Errorf("%+v", events)
	}
}

// blockingWriter blocks until it is released.
type blockingWriter struct {
	mu      sync.Mutex
	text    bytes.Buffer
	entered chan struct{}
	release chan struct{}
}

func newBlockingWriter() *blockingWriter {
	return &blockingWriter{entered: make(chan struct{}, 1000), release: make(chan struct{})}
}

func (w *blockingWriter) Write(p []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.release
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// TestReadsAreDroppedAndWritesWait checks the mode queue with a file that hangs.
func TestReadsAreDroppedAndWritesWait(t *testing.T) {
	out, registry := newBlockingWriter(), prometheus.NewRegistry()
	l, err := Open(Options{Stdout: out, Registerer: registry, File: File{Path: "-", Delivery: Delivery{Batch: buffered.BatchConfig{BufferSize: reserved + 2, MaxBatchSize: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		record(l, fmt.Sprint("GET /api/v1/namespaces/a/pods/", i), ok())
	}
	if n := value(t, registry, "dropped"); n != 8 {
		t.Errorf("%v events dropped, want 8", n)
	}
	for i := range reserved {
		record(l, fmt.Sprint("DELETE /api/v1/namespaces/a/pods/", i), ok())
	}
	waits := make(chan struct{})
	go func() {
		record(l, "DELETE /api/v1/namespaces/a/pods/last", ok())
		close(waits)
	}()
	record(l, "GET /api/v1/namespaces/a/pods/more", ok())
	select {
	case <-waits:
		t.Error("a write did not wait for room")
	default:
	}
	close(out.release)
	<-waits
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := lines(t, out.text.String())
	if len(events) != 2+reserved+1 || events[len(events)-1].AuditID != "DELETE /api/v1/namespaces/a/pods/last" {
		t.Errorf("%d events", len(events))
	}
	record(l, "DELETE /api/v1/namespaces/a/pods/late", ok())
	if n := value(t, registry, "dropped"); n != 10 {
		t.Errorf("%v events dropped, want 10", n)
	}
}

// value returns a counter of the log backend.
func value(t *testing.T, registry *prometheus.Registry, result string) float64 {
	t.Helper()
	return backendValue(t, registry, "log", result)
}

func backendValue(t *testing.T, registry *prometheus.Registry, backend, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "kubeweir_audit_events_total" && labels["backend"] == backend && labels["result"] == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestQueueIsBoundedInBytes checks that large objects fill the queue earlier.
func TestQueueIsBoundedInBytes(t *testing.T) {
	q := &queue{maxEvents: 1000, maxBytes: 22_000, waits: true, closing: make(chan struct{})}
	q.room.L = &q.mu
	read := &auditinternal.Event{Verb: "get", ResponseObject: &runtime.Unknown{Raw: make([]byte, 4000)}}
	for range 2 {
		if !q.add(t.Context(), read) {
			t.Fatal("no room")
		}
	}
	if q.add(t.Context(), read) {
		t.Error("more bytes than the limit")
	}
	write := &auditinternal.Event{Verb: "create", RequestObject: read.ResponseObject}
	if !q.add(t.Context(), write) {
		t.Error("reads leave no room for writes")
	}
	q.delivered([]*auditinternal.Event{read, read, write})
	if q.bytes != 0 || q.events != 0 {
		t.Errorf("%d bytes, %d events", q.bytes, q.events)
	}
	if huge := (&auditinternal.Event{Verb: "get", ResponseObject: &runtime.Unknown{Raw: make([]byte, 40_000)}}); !q.add(t.Context(), huge) {
		t.Error("an event alone must have room")
	}
}

// TestWritesDoNotWaitForeverForAClientThatLeft checks that the event of such a request is dropped and
// counted while a file hangs, but not at once.
func TestWritesDoNotWaitForeverForAClientThatLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out, registry := newBlockingWriter(), prometheus.NewRegistry()
		l, err := Open(Options{Stdout: out, Registerer: registry, File: File{Path: "-", Delivery: Delivery{Batch: buffered.BatchConfig{BufferSize: 1, MaxBatchSize: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		record(l, "DELETE /api/v1/namespaces/a/pods/first", ok())
		client, leave := context.WithCancel(t.Context())
		began := time.Now()
		var left time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			m := metadata("DELETE /api/v1/namespaces/a/pods/second")
			m.Client = client
			l.Begin(m).Responding(ok(), false)
			left = time.Since(began)
		}()
		time.Sleep(time.Hour)
		select {
		case <-done:
			t.Error("the write did not wait for room")
		default:
		}
		leave()
		<-done
		if left != time.Hour+abandonedTimeout || value(t, registry, "dropped") != 1 {
			t.Errorf("ended after %s, %v events dropped", left, value(t, registry, "dropped"))
		}
		close(out.release)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// fill sets all text in v, n bytes each, and returns how many bytes that is.
func fill(v reflect.Value, n int) (size int) {
	switch v.Interface().(type) {
	case metav1.TypeMeta, runtime.TypeMeta, metav1.ListMeta, metav1.MicroTime, auditinternal.Level, auditinternal.Stage:
		return 0 // of fixed size
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("x", n))
		return n
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			size += fill(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(make([]byte, n))
			return n
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		size = fill(key, n) + fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
	return size
}

// TestSizeCountsEveryPart checks that no part of an event takes memory that does not count.
func TestSizeCountsEveryPart(t *testing.T) {
	var e auditinternal.Event
	if want := int64(fill(reflect.ValueOf(&e).Elem(), 10_000)); want < 400_000 || sizeOf(&e) < want {
		t.Errorf("%d bytes, want at least %d", sizeOf(&e), want)
	}
}

// TestStatusIsBounded checks how much of a Status is recorded at level Metadata.
func TestStatusIsBounded(t *testing.T) {
	for _, c := range []struct{ message, field, reason int }{{50_000, 0, 0}, {10, 50_000, 0}, {10, 10, 50_000}, {3000, 3000, 10}} {
		var out bytes.Buffer
		l := open(t, Options{Stdout: &out, File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
		status := &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 422, Reason: metav1.StatusReason(strings.Repeat("r", c.reason)),
			Message: strings.Repeat("m", c.message), Details: &metav1.StatusDetails{Name: "n", Causes: []metav1.StatusCause{{Field: strings.Repeat("f", c.field)}}},
		}
		body, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		record(l, "POST /api/v1/namespaces/a/pods", &api.Response{Status: 422, Body: body})
		e := lines(t, out.String())[0]
		fits := c.message+c.field+c.reason < statusMetadata
		if n := out.Len(); n > statusMetadata+1000 || (e.Annotations[truncated] == "") != fits || e.ResponseStatus.Code != 422 || e.ResponseStatus.Message == "" {
			t.Errorf("%+v: %d bytes, annotations %v", c, n, e.Annotations)
		}
		if d := e.ResponseStatus.Details; fits != (d != nil && len(d.Causes) == 1) {
			t.Errorf("%+v: %+v", c, e.ResponseStatus)
		}
	}
}

// TestDroppedByTruncationIsCounted checks events that are too large without their objects, too.
func TestDroppedByTruncationIsCounted(t *testing.T) {
	for _, mode := range []string{ModeBlocking, ModeBatch, ModeQueue} {
		var out bytes.Buffer
		registry := prometheus.NewRegistry()
		l, err := Open(Options{Stdout: &out, Registerer: registry, File: File{Path: "-", Delivery: Delivery{Mode: mode, Truncate: &truncate.Config{MaxEventSize: 2000, MaxBatchSize: 10_000}}}})
		if err != nil {
			t.Fatal(err)
		}
		record(l, "GET /version", ok())
		record(l, "GET /version?"+strings.Repeat("x", 3000), ok())
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if value(t, registry, "written") != 1 || value(t, registry, "dropped") != 1 {
			t.Errorf("%s: %v written, %v dropped", mode, value(t, registry, "written"), value(t, registry, "dropped"))
		}
	}
}

// TestSizeOfFilesFits checks that sizes do not overflow on machines of 32 bits.
func TestSizeOfFilesFits(t *testing.T) {
	for size, want := range map[int64]int{0: math.MaxInt32, math.MaxInt64: math.MaxInt32, 1: 1, 1 << 20: 1, 1<<20 + 1: 2} {
		f, err := openFile(&File{Path: filepath.Join(t.TempDir(), "audit.log"), MaxSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if f.MaxSize != want {
			t.Errorf("%d: %d MiB, want %d", size, f.MaxSize, want)
		}
	}
}

// server is an audit webhook.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	ids    []string
	status int           // of responses
	hangs  chan struct{} // if not nil
	calls  chan struct{}
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{status: 200, calls: make(chan struct{}, 10_000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &list); err != nil {
			t.Errorf("%v in %q", err, body)
		}
		s.calls <- struct{}{}
		if s.hangs != nil {
			<-s.hangs
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status == 200 {
			s.ids = append(s.ids, ids(list.Items)...)
		}
		w.WriteHeader(s.status)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "webhook.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: %s}}]
users: [{name: a}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`, s.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestWebhookBatches checks that a webhook in mode batch gets all events, and Close waits for that.
func TestWebhookBatches(t *testing.T) {
	s := newServer(t)
	l, err := Open(Options{Policy: everything(auditinternal.LevelMetadata), Webhook: Webhook{
		ConfigFile: s.kubeconfig(t), InitialBackoff: time.Millisecond,
		Delivery: Delivery{Mode: ModeBatch, Batch: buffered.BatchConfig{BufferSize: 100, MaxBatchSize: 10, MaxBatchWait: time.Hour, AsyncDelegate: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		record(l, fmt.Sprint("GET /api/v1/namespaces/a/pods/", i), ok())
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.ids) != 40 {
		t.Errorf("%d events", len(s.ids))
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestHangingWebhookInBatchMode checks that no request waits, and that the events that have no room are
// dropped and counted, also while batches are in flight.
func TestHangingWebhookInBatchMode(t *testing.T) {
	s, registry := newServer(t), prometheus.NewRegistry()
	s.hangs = make(chan struct{})
	l, err := Open(Options{Policy: everything(auditinternal.LevelMetadata), Registerer: registry, Webhook: Webhook{
		ConfigFile: s.kubeconfig(t), InitialBackoff: time.Millisecond,
		Delivery: Delivery{Mode: ModeBatch, Batch: buffered.BatchConfig{BufferSize: 20, MaxBatchSize: 2, MaxBatchWait: time.Millisecond, AsyncDelegate: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if !record(l, fmt.Sprint("DELETE /api/v1/namespaces/a/pods/", i), ok()) {
			t.Fatal("rejected")
		}
	}
	if n := backendValue(t, registry, "webhook", "dropped"); n != 80 {
		t.Errorf("%v events dropped, want 80", n)
	}
	close(s.hangs)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := backendValue(t, registry, "webhook", "written"); n != 20 || len(s.ids) != 20 {
		t.Errorf("%v events written, %d received", n, len(s.ids))
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestFailingWebhook checks who learns that events are not delivered.
func TestFailingWebhook(t *testing.T) {
	for mode, accepted := range map[string]bool{ModeBlocking: true, ModeBlockingStrict: false} {
		t.Run(mode, func(t *testing.T) {
			s, registry := newServer(t), prometheus.NewRegistry()
			s.status = 500
			var log bytes.Buffer
			l := open(t, Options{Policy: everything(auditinternal.LevelMetadata), Registerer: registry, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Webhook: Webhook{ConfigFile: s.kubeconfig(t), InitialBackoff: time.Millisecond, Delivery: Delivery{Mode: mode}}})
			if record(l, "GET /api/v1/pods", ok()) != accepted {
				t.Errorf("accepted: %t", !accepted)
			}
			if n := len(s.calls); n < 5 || n%5 != 0 {
				t.Errorf("%d calls, want 5 tries each", n)
			}
			if backendValue(t, registry, "webhook", "failed") == 0 || !strings.Contains(log.String(), "audit events not delivered") {
				t.Errorf("not counted, or not logged: %s", &log)
			}
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestHangingWebhookInBlockingMode checks that the request waits, as with kube-apiserver.
func TestHangingWebhookInBlockingMode(t *testing.T) {
	s := newServer(t)
	s.hangs = make(chan struct{})
	l := open(t, Options{Webhook: Webhook{ConfigFile: s.kubeconfig(t), InitialBackoff: time.Millisecond, Delivery: Delivery{Mode: ModeBlocking}}})
	done := make(chan struct{})
	go func() {
		record(l, "GET /api/v1/pods", ok())
		close(done)
	}()
	<-s.calls
	select {
	case <-done:
		t.Error("the request did not wait")
	default:
	}
	close(s.hangs)
	<-done
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

type failingWriter struct{ error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.error }

func TestFailedWritesAreCountedAndLogged(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	l := open(t, Options{Stdout: failingWriter{errors.New("disk full")}, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
	if !record(l, "GET /api/v1/pods", ok()) {
		t.Error("rejected")
	}
	if value(t, registry, "failed") != 1 || !strings.Contains(log.String(), "writing the audit log failed") || !strings.Contains(log.String(), "disk full") {
		t.Errorf("%s", &log)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	o := Options{File: File{Path: path, Delivery: Delivery{Mode: ModeBlocking}}}
	for i := range 3 {
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		record(l, fmt.Sprint("GET /", i), ok())
		if i == 1 {
			if err := os.Rename(path, path+".moved"); err != nil {
				t.Fatal(err)
			}
			record(l, "GET /before", ok())
			l.Reopen()
			record(l, "GET /after", ok())
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string][]string{path + ".moved": {"GET /0", "GET /1", "GET /before"}, path: {"GET /after", "GET /2"}} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range lines(t, string(content)) {
			got = append(got, string(e.AuditID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", file, got)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	if _, err := Open(Options{File: File{Path: filepath.Join(path, "x")}}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a path that cannot be opened: %v", err)
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{File: File{Path: path, MaxSize: 1000, MaxBackups: 2, Delivery: Delivery{Mode: ModeBlocking}}}) // a MiB
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for i := 0; ; i++ { // the library removes files in the background
		m := metadata(fmt.Sprintf("GET /%d", i))
		m.Request.RawQuery = strings.Repeat("x", 600<<10)
		l.Begin(m).Responding(ok(), false)
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		if err != nil {
			t.Fatal(err)
		}
		if i > 5 && len(files) == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("files %v", files)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestLegacyFormat(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{Stdout: &out, File: File{Path: "-", Format: "legacy", Delivery: Delivery{Mode: ModeBlocking}}})
	record(l, "GET /version", ok())
	if !strings.Contains(out.String(), ` AUDIT: id="GET /version" stage="ResponseComplete" ip="10.0.0.1" method="get" user="jane"`) {
		t.Errorf("%s", &out)
	}
}

func TestTruncation(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{Stdout: &out, Policy: everything(auditinternal.LevelRequestResponse),
		File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking, Truncate: &truncate.Config{MaxEventSize: 4000, MaxBatchSize: 10_000}}}})
	for _, size := range []int{100, 10_000} {
		body := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"%s"}}`, strings.Repeat("x", size))
		record(l, "GET /api/v1/namespaces/a/configmaps/c", &api.Response{Status: 200, Body: []byte(body)})
	}
	events := lines(t, out.String())
	if len(events) != 4 || events[1].ResponseObject == nil || events[3].ResponseObject != nil || events[3].Annotations[truncated] != "true" {
		t.Errorf("%+v", events)
	}
}

// bodyTo is a response body that writes itself.
type bodyTo struct{ text string }

func (b bodyTo) WriteTo(w io.Writer) (int64, error) {
	half := len(b.text) / 2
	n, err := io.WriteString(w, b.text[:half])
	if err != nil {
		return int64(n), err
	}
	if p, ok := w.(api.PiecesWriter); ok {
		m, err := p.WritePieces([][]byte{[]byte(b.text[half:])})
		return int64(n + m), err
	}
	m, err := io.WriteString(w, b.text[half:])
	return int64(n + m), err
}

type piecesBuffer struct{ bytes.Buffer }

func (b *piecesBuffer) WritePieces(pieces [][]byte) (int, error) {
	return b.Write(bytes.Join(pieces, nil))
}

// TestResponseObjects checks the objects of responses in all forms.
func TestResponseObjects(t *testing.T) {
	object := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "c", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}, Data: map[string]string{"a": "b"},
	}
	text, _ := json.Marshal(object)
	asYAML, _ := yaml.JSONToYAML(text)
	var asProtobuf, zipped bytes.Buffer
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(object, &asProtobuf); err != nil {
		t.Fatal(err)
	}
	asCBOR, err := direct.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(text)
	_ = z.Close()
	for _, c := range []struct{ name, contentType, encoding, body string }{
		{"JSON", "application/json", "", string(text)},
		{"YAML", "application/yaml", "", string(asYAML)},
		{"protobuf", "application/vnd.kubernetes.protobuf", "", asProtobuf.String()},
		{"CBOR", "application/cbor", "", "\xd9\xd9\xf7" + string(asCBOR)},
		{"gzip", "application/json", "gzip", zipped.String()},
	} {
		for _, streamed := range []bool{false, true} {
			for _, omit := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, " ", streamed, " ", omit), func(t *testing.T) {
					var out bytes.Buffer
					policy := everything(auditinternal.LevelRequestResponse)
					policy.OmitManagedFields = omit
					l := open(t, Options{Stdout: &out, Policy: policy, File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
					resp := &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: c.contentType}, {Name: "Content-Encoding", Value: c.encoding}}}
					if !streamed {
						resp.Body = []byte(c.body)
					} else {
						resp.BodyTo = bodyTo{c.body}
					}
					r := l.Begin(metadata("GET /api/v1/namespaces/a/configmaps/c"))
					r.Responding(resp, false)
					if streamed {
						if len(lines(t, out.String())) != 0 {
							t.Error("recorded before it was sent")
						}
						var sent piecesBuffer
						if _, err := resp.BodyTo.WriteTo(&sent); err != nil || sent.String() != c.body {
							t.Error("the response has changed")
						}
					}
					resp.Done(0, nil)
					var got corev1.ConfigMap
					events := lines(t, out.String())
					if err := json.Unmarshal(events[len(events)-1].ResponseObject.Raw, &got); err != nil || got.Kind != "ConfigMap" || got.Data["a"] != "b" || (len(got.ManagedFields) == 0) != omit {
						t.Errorf("%v, %s", err, events[len(events)-1].ResponseObject.Raw)
					}
					if n := l.retained.total; n != 0 {
						t.Errorf("%d bytes are retained", n)
					}
				})
			}
		}
	}
}

// TestManagedFieldsInLists checks lists and tables.
func TestManagedFieldsInLists(t *testing.T) {
	text := `{"items":[{"metadata":{"managedFields":[1],"name":"a"}},7],"rows":[{"object":{"metadata":{"managedFields":[1],"name":"b"}}}]}`
	if got := string(withoutManagedFields([]byte(text))); strings.Contains(got, "managedFields") || !strings.Contains(got, `"a"`) || !strings.Contains(got, `"b"`) {
		t.Error(got)
	}
	for _, text := range []string{"", "[]", `"managedFields"`, `{"items":{"managedFields":1}}`} {
		if got := string(withoutManagedFields([]byte(text))); got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestBodiesAreNotRetained checks which bodies are not retained: at lower levels, and too large ones.
func TestBodiesAreNotRetained(t *testing.T) {
	large := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"%s"}}`, strings.Repeat("x", maxObject))
	for _, level := range []auditinternal.Level{auditinternal.LevelNone, auditinternal.LevelMetadata, auditinternal.LevelRequest, auditinternal.LevelRequestResponse} {
		var out bytes.Buffer
		l := open(t, Options{Stdout: &out, Policy: everything(level), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
		m := metadata("POST /api/v1/namespaces/a/configmaps")
		body := strings.NewReader(large)
		m.Request.Body = body
		r := l.Begin(m)
		r.KeepBody(m.Request)
		if retained := m.Request.Body != io.Reader(body); retained != (level == auditinternal.LevelRequest || level == auditinternal.LevelRequestResponse) {
			t.Errorf("%s: the request's body is retained: %t", level, retained)
		}
		_, _ = io.Copy(io.Discard, m.Request.Body)
		resp := &api.Response{Status: 201, BodyTo: bodyTo{large}}
		r.Responding(resp, false)
		if _, wrapped := resp.BodyTo.(*responseBody); wrapped != (level == auditinternal.LevelRequestResponse) {
			t.Errorf("%s: the response's body is retained: %t", level, wrapped)
		}
		_, _ = resp.BodyTo.WriteTo(io.Discard)
		if resp.Done != nil {
			resp.Done(0, nil)
		}
		for _, e := range lines(t, out.String()) {
			if e.RequestObject != nil || e.ResponseObject != nil {
				t.Errorf("%s: a large object is recorded", level)
			}
			if wants := !auditinternal.Level(e.Level).Less(auditinternal.LevelRequest); (e.Annotations[truncated] != "") != wants {
				t.Errorf("%s: annotations %v", level, e.Annotations)
			}
		}
		if n := l.retained.total; n != 0 {
			t.Errorf("%d bytes are retained", n)
		}
	}
}

// TestRetainedBytesAreBounded checks the limit of all bodies together, and the share of each user.
func TestRetainedBytesAreBounded(t *testing.T) {
	var retained retainedBytes
	copyOf := func(user string, n int) *bodyCopy {
		c := &bodyCopy{retained: &retained, user: user, limit: maxRetained}
		c.add(make([]byte, n))
		return c
	}
	var all []*bodyCopy
	for user := range 8 {
		for range 10 {
			all = append(all, copyOf(fmt.Sprint("user", user), maxRetained/32))
		}
	}
	held := make(map[string]int)
	for _, c := range all {
		held[c.user] += c.size
	}
	if held["user0"] != maxRetained/4 {
		t.Errorf("one user retains %d bytes, want a quarter of %d", held["user0"], maxRetained)
	}
	if retained.total > maxRetained {
		t.Errorf("%d bytes are retained", retained.total)
	}
	modest := copyOf("modest", 1<<20)
	if content, overflow := modest.take(); overflow || len(content) != 1<<20 {
		t.Error("others leave nothing to a user who has nothing")
	}
	if before := retained.total; modest.size != 1<<20 {
		t.Errorf("bytes do not count after take: %d", before)
	}
	for _, c := range append(all, modest) {
		c.release()
		c.release()
		c.add(make([]byte, 10))
	}
	if retained.total != 0 || len(retained.users) != 0 {
		t.Errorf("%d bytes are retained, by %d users", retained.total, len(retained.users))
	}
}

// TestPanicsReleaseBodies checks that requests that panic leave no bytes behind.
func TestPanicsReleaseBodies(t *testing.T) {
	l := open(t, Options{Stdout: io.Discard, Policy: everything(auditinternal.LevelRequestResponse), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
	m := metadata("POST /api/v1/namespaces/a/configmaps")
	m.Request.Body = strings.NewReader("{}")
	r := l.Begin(m)
	r.KeepBody(m.Request)
	_, _ = io.Copy(io.Discard, m.Request.Body)
	if l.retained.total != 2 {
		t.Fatalf("%d bytes are retained", l.retained.total)
	}
	r.Panicked()
	if l.retained.total != 0 {
		t.Errorf("%d bytes are retained after a panic", l.retained.total)
	}
}

// TestAliasesAreNotExpanded checks that a small YAML body does not become a large event.
func TestAliasesAreNotExpanded(t *testing.T) {
	text := "data:\n  a: &a " + strings.Repeat("x", 100<<10) + "\nlist: [" + strings.Repeat("*a,", 2000) + "]\n" // 200 MB
	for _, mediaType := range []string{"application/yaml", "application/apply-patch+yaml"} {
		if got, err := toJSON([]byte(text), mediaType); !errors.Is(err, errAliases) {
			t.Errorf("%s: %d bytes, %v", mediaType, len(got), err)
		}
	}
	if got, err := toJSON([]byte("rules: ['*', \"&x\", a*b]"), "application/yaml"); err != nil || string(got) != `{"rules":["*","\u0026x","a*b"]}` {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := toJSON([]byte("a: "+strings.Repeat("<", maxObject/2)), "application/yaml"); !errors.Is(err, errTooLarge) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestCompressedResponsesAreBounded checks that the encoding, which the client can choose, does not
// decide how much memory is used.
func TestCompressedResponsesAreBounded(t *testing.T) {
	// A frame with a window of 512 MiB, and one raw block.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 19 << 3, 2<<3 | 1, 0, 0, '{', '}'}
	if _, err := decompress(frame, "zstd"); !errors.Is(err, zstd.ErrWindowSizeExceeded) {
		t.Errorf("a window of 512 MiB: %v", err)
	}
	frame[5] = 13 << 3 // 8 MiB
	if text, err := decompress(frame, "zstd"); err != nil || string(text) != "{}" {
		t.Errorf("a window of 8 MiB: %q, %v", text, err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decompress(encoder.EncodeAll(make([]byte, maxObject+1), nil), "zstd"); !errors.Is(err, errTooLarge) {
		t.Errorf("more than %d bytes: %v", maxObject, err)
	}
}

// TestMissingObjectsAreAnnotated checks that an event says that it does not have an object.
func TestMissingObjectsAreAnnotated(t *testing.T) {
	const definition = "k8s\x00\n\x31\n\x17apiextensions.k8s.io/v1\x12\x16NoSuchResourceOfClients" // a type outside client-go
	for _, c := range []struct{ name, line, contentType, encoding, request, response, key string }{
		{"protobuf of another type", "POST /apis/x/v1/things", "application/vnd.kubernetes.protobuf", "", definition, "", missingRequestObject},
		{"aliases", "POST /api/v1/namespaces/a/configmaps", "application/yaml", "", "a: &a b\nc: *a", "", missingRequestObject},
		{"large YAML", "POST /api/v1/namespaces/a/configmaps", "application/yaml", "", "a: " + strings.Repeat("<", maxObject/2), "", truncated},
		{"invalid JSON", "PATCH /api/v1/namespaces/a/configmaps/c", "application/json-patch+json", "", "[", "", missingRequestObject},
		{"no object", "POST /api/v1/namespaces/a/configmaps", "application/json", "", "[]", "", missingRequestObject},
		{"protobuf response of another type", "GET /apis/x/v1/things/a", "application/vnd.kubernetes.protobuf", "", "", definition, missingResponseObject},
		{"response in an unknown encoding", "GET /apis/x/v1/things/a", "application/json", "br", "", "{}", missingResponseObject},
		{"text response", "GET /apis/x/v1/things/a", "text/plain", "", "", "busy", ""},
		{"document", "GET /openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "", "", "x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			l := open(t, Options{Stdout: &out, Policy: everything(auditinternal.LevelRequestResponse), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
			m := metadata(c.line)
			m.Request.Body = strings.NewReader(c.request)
			m.Request.Header.Set("Content-Type", c.contentType)
			r := l.Begin(m)
			r.KeepBody(m.Request)
			_, _ = io.Copy(io.Discard, m.Request.Body)
			r.Responding(&api.Response{Status: 200, Body: []byte(c.response), Header: api.Header{{Name: "Content-Type", Value: c.contentType}, {Name: "Content-Encoding", Value: c.encoding}}}, false)
			events := lines(t, out.String())
			annotations := events[len(events)-1].Annotations
			if c.key == "" && len(annotations) > 0 || c.key != "" && annotations[c.key] == "" {
				t.Errorf("annotations %v, want %s", annotations, c.key)
			}
			if l.retained.total != 0 {
				t.Errorf("%d bytes are retained", l.retained.total)
			}
		})
	}
}

// TestContentEncodingOfRequestsIsIgnored checks that, as kube-apiserver ignores it.
func TestContentEncodingOfRequestsIsIgnored(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Options{Stdout: &out, Policy: everything(auditinternal.LevelRequest), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
	m := metadata("POST /api/v1/namespaces/a/configmaps")
	m.Request.Body = strings.NewReader(`{"data":{"a":"b"}}`)
	m.Request.Header.Set("Content-Type", "application/json")
	m.Request.Header.Set("Content-Encoding", "gzip")
	r := l.Begin(m)
	r.KeepBody(m.Request)
	_, _ = io.Copy(io.Discard, m.Request.Body)
	r.Responding(ok(), false)
	events := lines(t, out.String())
	if e := events[len(events)-1]; e.RequestObject == nil || string(e.RequestObject.Raw) != `{"data":{"a":"b"}}` || len(e.Annotations) > 0 {
		t.Errorf("%+v", e)
	}
}

// TestRequestObjects checks the objects of requests to an upstream that does not record them.
func TestRequestObjects(t *testing.T) {
	for _, c := range []struct{ line, contentType, body, want, name string }{
		{"POST /api/v1/namespaces/a/configmaps", "application/json", `{"metadata":{"name":"c"},"data":{"n":1}}`, `{"data":{"n":1},"metadata":{"name":"c"}}`, "c"},
		{"PUT /api/v1/namespaces/a/configmaps/c", "application/yaml", "metadata: {name: c}", `{"metadata":{"name":"c"}}`, "c"},
		{"PATCH /api/v1/namespaces/a/configmaps/c", "application/json-patch+json", `[{"op":"remove","path":"/data"}]`, `[{"op":"remove","path":"/data"}]`, "c"},
		{"PATCH /api/v1/namespaces/a/configmaps/c", "application/apply-patch+yaml", "data: {a: b}", `{"data":{"a":"b"}}`, "c"},
		{"DELETE /api/v1/namespaces/a/configmaps/c", "", `{"kind":"DeleteOptions"}`, `{"kind":"DeleteOptions"}`, "c"},
		{"POST /api/v1/namespaces/a/configmaps", "application/json", `{`, "", ""},
		{"POST /api/v1/namespaces/a/configmaps", "application/json", `null`, "", ""},
		{"POST /api/v1/namespaces/a/configmaps", "text/plain", `x`, "", ""},
		{"POST /api/v1/namespaces/a/pods/p/proxy", "application/json", `{"a":1}`, "", "p"},
		{"POST /version", "application/json", `{"a":1}`, "", ""},
	} {
		t.Run(c.line+" "+c.body, func(t *testing.T) {
			var out bytes.Buffer
			l := open(t, Options{Stdout: &out, Policy: everything(auditinternal.LevelRequest), File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
			m := metadata(c.line)
			m.Request.Body = strings.NewReader(c.body)
			m.Request.Header.Set("Content-Type", c.contentType)
			r := l.Begin(m)
			r.KeepBody(m.Request)
			if got, err := io.ReadAll(m.Request.Body); err != nil || string(got) != c.body {
				t.Fatal(string(got), err)
			}
			r.Responding(ok(), false)
			events := lines(t, out.String())
			e, got := events[len(events)-1], ""
			if e.RequestObject != nil {
				got = string(e.RequestObject.Raw)
			}
			if got != c.want || e.ObjectRef != nil && e.ObjectRef.Name != c.name {
				t.Errorf("%s, %+v", got, e.ObjectRef)
			}
		})
	}
}

// TestContextOfAnUpstream checks that the audit context is in the upstream's context, with the values
// of the caller's.
func TestContextOfAnUpstream(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	if (*Request)(nil).Context(ctx) != ctx {
		t.Error("a request that is not recorded has another context")
	}
	l := open(t, Options{Stdout: io.Discard, File: File{Path: "-"}})
	r := l.Begin(metadata("GET /version"))
	got := r.Context(ctx)
	if got.Value(key{}) != 1 || got.Value(struct{ x int }{}) != nil || got.Err() != nil {
		t.Error("values of the caller are lost")
	}
}

func TestRequestsOfAllKindsConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{File: File{Path: path, Delivery: Delivery{Batch: buffered.BatchConfig{BufferSize: 10_000, MaxBatchSize: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				record(l, "DELETE /api/v1/namespaces/a/pods/p", ok())
				l.Reopen()
			}
		})
	}
	all.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lines(t, string(content))); n != 1600 {
		t.Errorf("%d events, want 1600", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	l, err := Open(Options{Stdout: io.Discard, File: File{Path: "-", Delivery: Delivery{Mode: ModeBlocking}}})
	if err != nil {
		b.Fatal(err)
	}
	m := metadata("GET /api/v1/namespaces/a/pods/p")
	b.ReportAllocs()
	for b.Loop() {
		r := l.Begin(m)
		r.Received()
		r.Responding(ok(), false)
	}
	_ = l.Close(context.Background())
}
