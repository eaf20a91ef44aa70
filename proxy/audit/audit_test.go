package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var jane = &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}}

func sample() *Event {
	info := api.ParseRequestInfo("GET", "/apis/apps/v1/namespaces/default/deployments/web/status", "")
	return &Event{
		Stage: auditv1.StageResponseComplete, ID: "a-b-c", Info: &info,
		Request: &api.Request{RawPath: "/apis/apps/v1/namespaces/default/deployments/web/status", RawQuery: "resourceVersion=0",
			RemoteAddr: "10.0.0.1:5", Header: api.Header{{Name: "User-Agent", Value: "kubectl/v1.36"}, {Name: "Authorization", Value: "Bearer secret"}}},
		Received: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("", 3600)),
		User:     jane, Code: 200, Allowed: true, Reason: `RBAC: allowed by "x"`, Source: Cached,
	}
}

// expected is the event in Kubernetes' own type.
func expected(e *Event, at time.Time) auditv1.Event {
	userInfo := func(u user.Info) authenticationv1.UserInfo {
		if u == nil {
			return authenticationv1.UserInfo{}
		}
		info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
		for k, v := range u.GetExtra() {
			if info.Extra == nil {
				info.Extra = make(map[string]authenticationv1.ExtraValue)
			}
			info.Extra[k] = v
		}
		return info
	}
	uri := e.Request.RawPath
	if e.Request.RawQuery != "" {
		uri += "?" + e.Request.RawQuery
	}
	decision := map[bool]string{true: "allow", false: "forbid"}[e.Allowed]
	out := auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, Level: auditv1.LevelMetadata,
		AuditID: types.UID(e.ID), Stage: e.Stage, RequestURI: uri, Verb: e.Info.Verb, User: userInfo(e.User),
		SourceIPs: sourceIPs(e.Request), UserAgent: e.Request.Header.Get("User-Agent"),
		ResponseStatus:           &metav1.Status{Code: int32(e.Code)},
		RequestReceivedTimestamp: metav1.NewMicroTime(e.Received), StageTimestamp: metav1.NewMicroTime(at),
		Annotations: map[string]string{"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": e.Reason},
	}
	if e.Source != "" {
		out.Annotations["kubeweir/source"] = string(e.Source)
	}
	if e.Action != "" {
		out.Annotations["kubeweir/action"] = e.Action
	}
	if e.Source == Forwarded {
		out.Annotations = map[string]string{"kubeweir/source": "forwarded"}
	}
	if e.ImpersonatedUser != nil {
		info := userInfo(e.ImpersonatedUser)
		out.ImpersonatedUser = &info
	}
	if e.Info.IsResourceRequest {
		out.ObjectRef = &auditv1.ObjectReference{Resource: e.Info.Resource, Subresource: e.Info.Subresource, Namespace: e.Info.Namespace,
			Name: e.Info.Name, APIGroup: e.Info.APIGroup, APIVersion: e.Info.APIVersion}
	}
	if e.Status != nil {
		out.ResponseStatus = &metav1.Status{Status: e.Status.Status, Message: e.Status.Message, Reason: e.Status.Reason, Details: e.Status.Details, Code: int32(e.Code)}
	}
	return out
}

func encode(t *testing.T, r *record) []byte {
	t.Helper()
	line, err := json.Marshal(r.event())
	if err != nil {
		t.Fatal(err)
	}
	return append(line, '\n')
}

// sameLine compares a line with an event by way of encoding/json, strictly.
func sameLine(t *testing.T, line []byte, want auditv1.Event) {
	t.Helper()
	if n := bytes.Count(line, []byte("\n")); n != 1 || line[len(line)-1] != '\n' {
		t.Fatalf("%d line ends in %q", n, line)
	}
	var got auditv1.Event
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	encoded, err := json.Marshal(&want)
	if err != nil {
		t.Fatal(err)
	}
	var wanted auditv1.Event
	if err := json.Unmarshal(encoded, &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		again, _ := json.Marshal(&got)
		t.Fatalf("got  %s\nwant %s", again, encoded)
	}
}

func TestEncoding(t *testing.T) {
	version := api.ParseRequestInfo("GET", "/version", "")
	for name, change := range map[string]func(*Event){
		"plain":        func(*Event) {},
		"non-resource": func(e *Event) { e.Info = &version; e.Request.RawPath, e.Request.RawQuery = "/version", "" },
		"impersonated": func(e *Event) {
			e.ImpersonatedUser = &user.DefaultInfo{Name: "al\"ice", Extra: map[string][]string{"b": {"1", "2"}, "a": {"<é>"}}}
		},
		"only a group": func(e *Event) { e.User = &user.DefaultInfo{Groups: []string{"g"}} },
		"nobody":       func(e *Event) { e.User = &user.DefaultInfo{} },
		"unknown":      func(e *Event) { e.User = nil },
		"forwarded":    func(e *Event) { e.Source = Forwarded },
		"an action":    func(e *Event) { e.Source, e.Action = "", "block-user-agent: \"k9s*\"" },
		"forbidden": func(e *Event) {
			e.Code, e.Allowed, e.Source, e.Stage = 403, false, "", auditv1.StageResponseStarted
			e.Status = &metav1.Status{Status: "Failure", Reason: "Forbidden", Message: "no \u2028", Code: 403, Details: &metav1.StatusDetails{Kind: "pods"}}
		},
		"strange strings": func(e *Event) {
			e.ID, e.Request.RawQuery, e.Reason = "\x00\xff", "a=\"\\\x7f", "tab\tnewline\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := sample()
			change(e)
			r := newRecord(e)
			line := encode(t, &r)
			sameLine(t, line, expected(e, r.at))
			if bytes.Contains(line, []byte("secret")) {
				t.Errorf("a credential was written: %s", line)
			}
		})
	}
}

func FuzzEncoding(f *testing.F) {
	f.Add("id", "/path", "q=1", "name", "group", "key", "value", "reason", "agent", "1.2.3.4")
	f.Fuzz(func(t *testing.T, id, path, query, name, group, key, value, reason, agent, forwarded string) {
		e := sample()
		e.ID, e.Request.RawPath, e.Request.RawQuery, e.Reason = id, "/"+path, query, reason
		e.User = &user.DefaultInfo{Name: name, UID: value, Groups: []string{group, name}, Extra: map[string][]string{key: {value, group}, value: {key}}}
		e.Request.Header.Set("User-Agent", agent[:min(len(agent), maxUserAgent)])
		e.Request.Header.Set("X-Forwarded-For", forwarded)
		// encoding/json makes one key of two that are not valid UTF-8.
		if strings.ToValidUTF8(key, "\ufffd") == strings.ToValidUTF8(value, "\ufffd") {
			return
		}
		r := newRecord(e)
		sameLine(t, encode(t, &r), expected(e, r.at))
	})
}

func TestSourceIPs(t *testing.T) {
	for _, test := range []struct{ forwarded, real, addr string }{
		{"", "", "1.2.3.4:5"}, {"", "", "[::1]:5"}, {"", "", "@"}, {"", "", "1.2.3.4"}, {"", "", ""},
		{"1.1.1.1, 2.2.2.2,x", "", "2.2.2.2:1"}, {"1.1.1.1", "1.1.1.1", "3.3.3.3:1"}, {"1.1.1.1,,", "4.4.4.4", "4.4.4.4:1"},
		{"010.1.1.1, fe80::1", "bad", "1.1.1.1:1"},
	} {
		r := &api.Request{RemoteAddr: test.addr, Header: api.Header{{Name: "X-Forwarded-For", Value: test.forwarded}, {Name: "X-Real-Ip", Value: test.real}}}
		std := &http.Request{RemoteAddr: test.addr, Header: http.Header{"X-Forwarded-For": {test.forwarded}, "X-Real-Ip": {test.real}}}
		var want []string
		for _, ip := range utilnet.SourceIPs(std) {
			want = append(want, ip.String())
		}
		if got := sourceIPs(r); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", test, got, want)
		}
	}
	many := &api.Request{Header: api.Header{{Name: "X-Forwarded-For", Value: strings.Repeat("1.1.1.1,", 5000)}}}
	if n := len(sourceIPs(many)); n > maxSourceIPs+2 {
		t.Errorf("%d addresses", n)
	}
}

func TestUserAgentIsCut(t *testing.T) {
	e := sample()
	e.Request.Header.Set("User-Agent", strings.Repeat("a", 5000))
	if ua := newRecord(e).userAgent; len(ua) != maxUserAgent+len(userAgentTruncated) || !strings.HasSuffix(ua, userAgentTruncated) {
		t.Errorf("%d bytes: …%s", len(ua), ua[len(ua)-20:])
	}
}

func TestOff(t *testing.T) {
	var l *Log
	if l.Enabled() {
		t.Error("a nil log is enabled")
	}
	e := sample()
	if n := testing.AllocsPerRun(100, func() { l.Record(e) }); n != 0 {
		t.Errorf("recording into nothing allocates %v times", n)
	}
	l.Reopen()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// blockingWriter lets writes through when it is told to.
type blockingWriter struct {
	mu     sync.Mutex
	out    bytes.Buffer
	permit chan struct{}
	err    error
}

func (w *blockingWriter) Write(p []byte) (int, error) {
	if w.permit != nil {
		<-w.permit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	return w.out.Write(p)
}

func (w *blockingWriter) lines() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Count(w.out.Bytes(), []byte("\n"))
}

func TestBoundedQueue(t *testing.T) {
	for _, test := range []struct {
		name    string
		opts    Options
		dropped int
	}{
		{"events", Options{QueueEvents: 10}, 10},
		{"bytes", Options{QueueBytes: 5 * 1500}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				out := &blockingWriter{permit: make(chan struct{})}
				reg := prometheus.NewRegistry()
				test.opts.Path, test.opts.Stdout, test.opts.Registerer = "-", out, reg
				l, err := Open(test.opts)
				if err != nil {
					t.Fatal(err)
				}
				e := sample()
				e.Request.RawQuery = strings.Repeat("q", 1000-len(e.Request.RawPath)-len(e.ID)-len(e.Reason))
				l.Record(e)
				synctest.Wait() // the writer has it and hangs
				for range 100 {
					l.Record(e)
				}
				close(out.permit)
				if err := l.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				l.Record(e) // after Close
				if n := out.lines(); n < test.dropped || n > test.dropped+1 {
					t.Errorf("%d events written, want about %d", n, test.dropped)
				}
				dropped := 102 - out.lines()
				if err := testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP kubeweir_audit_events_total Audit events by result: written, dropped (the queue was full), failed (the write failed).
# TYPE kubeweir_audit_events_total counter
kubeweir_audit_events_total{result="dropped"} %d
kubeweir_audit_events_total{result="failed"} 0
kubeweir_audit_events_total{result="written"} %d
`, dropped, out.lines())), "kubeweir_audit_events_total"); err != nil {
					t.Error(err)
				}
				if n := l.queued.Load(); n != 0 {
					t.Errorf("%d bytes still counted as queued", n)
				}
			})
		})
	}
}

// TestReadsPushNoWritesOut: events that are to be kept are written however many others
// come, and whoever records more than there is room for waits.
func TestReadsPushNoWritesOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out := &blockingWriter{permit: make(chan struct{})}
		l, err := Open(Options{Destination: Destination{Path: "-"}, Stdout: out, QueueEvents: 10})
		if err != nil {
			t.Fatal(err)
		}
		read, write := sample(), sample()
		write.Required = true
		l.Record(read)
		synctest.Wait() // the writer has it and hangs
		const writes = 2*requiredEvents + 5
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			for range writes {
				l.Record(write)
				l.Record(read)
			}
		}()
		synctest.Wait()
		select {
		case <-recorded:
			t.Error("nobody waited")
		default:
		}
		close(out.permit)
		<-recorded
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := out.lines(); n < writes {
			t.Errorf("%d events written, want %d writes at least", n, writes)
		}
	})
}

// TestCloseFreesThoseWhoWait: a log that cannot be written does not hold them for ever.
func TestCloseFreesThoseWhoWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out := &blockingWriter{permit: make(chan struct{})}
		l, err := Open(Options{Destination: Destination{Path: "-"}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		write := sample()
		write.Required = true
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			for range 2 * requiredEvents {
				l.Record(write)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = l.Close(ctx)
		<-recorded
		close(out.permit)
		<-l.done
	})
}

func TestCloseGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out := &blockingWriter{permit: make(chan struct{})}
		l, err := Open(Options{Destination: Destination{Path: "-"}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		l.Record(sample())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		close(out.permit)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFailedWrites(t *testing.T) {
	out := &blockingWriter{err: errors.New("disk full")}
	l, err := Open(Options{Destination: Destination{Path: "-"}, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	l.Record(sample())
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(l.metrics.failed); n != 1 {
		t.Errorf("%v failed events, want 1", n)
	}
}

func readLines(t *testing.T, path string) (ids []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v in %q", path, err, s.Bytes())
		}
		ids = append(ids, string(e.AuditID))
	}
	return ids
}

// write records and waits, by closing.
func write(t *testing.T, opts Options, ids ...string) {
	t.Helper()
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		e := sample()
		e.ID = id
		l.Record(e)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	write(t, Options{Destination: Destination{Path: path}}, "1", "2")
	write(t, Options{Destination: Destination{Path: path}}, "3")
	if ids := readLines(t, path); !slices.Equal(ids, []string{"1", "2", "3"}) {
		t.Errorf("%v", ids)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Open(Options{Destination: Destination{Path: filepath.Join(path, "x")}}); err == nil {
		t.Error("a path that cannot be opened was taken")
	}
}

func TestRotation(t *testing.T) {
	for _, backups := range []int{0, 2} {
		t.Run(fmt.Sprint(backups, " backups"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			for i := range 5 { // each is more than half of the size
				write(t, Options{Destination: Destination{Path: path, MaxSize: 1000, MaxBackups: backups}}, fmt.Sprint(i))
			}
			want := map[string]string{path: "4"}
			if backups > 0 {
				want[path+".1"], want[path+".2"] = "3", "2"
			}
			files, err := filepath.Glob(path + "*")
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(want) {
				t.Errorf("files %v", files)
			}
			for name, id := range want {
				if ids := readLines(t, name); !slices.Equal(ids, []string{id}) {
					t.Errorf("%s: %v, want %s", name, ids, id)
				}
			}
		})
	}
}

// TestRotationFails: the file goes on growing, nothing is lost.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	opts := Options{Destination: Destination{Path: path, MaxSize: 1000, MaxBackups: 1}}
	write(t, opts, "1")
	write(t, opts, "2")
	if ids := readLines(t, path); !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("%v", ids)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f := &file{Destination: Destination{Path: path}}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	r := newRecord(sample())
	line := encode(t, &r)
	put := func() {
		t.Helper()
		if ok, err := f.write(line); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	put()
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	put() // still into the old one
	if err := f.reopen(); err != nil {
		t.Fatal(err)
	}
	put()
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	put() // opens it again
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if a, b := len(readLines(t, path+".moved")), len(readLines(t, path)); a != 2 || b != 2 {
		t.Errorf("%d lines in the old file, %d in the new", a, b)
	}
	l, err := Open(Options{Destination: Destination{Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	l.Reopen()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{Destination: Destination{Path: path, MaxSize: 100 << 10, MaxBackups: 50}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				l.Record(sample())
			}
		})
	}
	wg.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range files {
		total += len(readLines(t, name))
	}
	if total != 1600 {
		t.Errorf("%d events in %d files, want 1600", total, len(files))
	}
}

func BenchmarkRecord(b *testing.B) {
	e := sample()
	b.ReportAllocs()
	for b.Loop() {
		_ = newRecord(e)
	}
}

func BenchmarkEncode(b *testing.B) {
	r := newRecord(sample())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(r.event()); err != nil {
			b.Fatal(err)
		}
	}
}
