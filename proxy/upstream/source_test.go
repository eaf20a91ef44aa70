package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

func pods() *source.Resource {
	return &source.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true}
}

func widgets() *source.Resource {
	return &source.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "ex.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Custom: true}
}

func pod(name, rv string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", ResourceVersion: rv}}
}

func encode(t testing.TB, enc api.Encoding, o runtime.Object) []byte {
	t.Helper()
	if enc == api.JSON {
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// event is one event as a watch sends it.
func event(t testing.TB, enc api.Encoding, typ string, o runtime.Object) []byte {
	t.Helper()
	if enc == api.JSON {
		return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", typ, encode(t, enc, o))
	}
	b, err := (&metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: encode(t, enc, o)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// bare is an object as the cache gets it.
func bare(t testing.TB, enc api.Encoding, o interface {
	runtime.Object
	Marshal() ([]byte, error)
}) []byte {
	t.Helper()
	if enc == api.JSON {
		return encode(t, enc, o)
	}
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func forEncodings(t *testing.T, test func(t *testing.T, enc api.Encoding)) {
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		t.Run(enc.String(), func(t *testing.T) { test(t, enc) })
	}
}

func TestList(t *testing.T) {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "next"}}
	for i := range 100 {
		list.Items = append(list.Items, *pod(fmt.Sprint("p", i), fmt.Sprint(i+1)))
		list.Items[i].TypeMeta = metav1.TypeMeta{}
	}
	forEncodings(t, func(t *testing.T, enc api.Encoding) {
		for compress, encoding := range map[bool]string{false: "identity", true: "gzip"} {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Warning"] = []string{`299 - "one"`, `299 - "two"`}
				if r.Header.Get("Accept-Encoding") != "gzip" {
					_, _ = w.Write(encode(t, enc, list))
					return
				}
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = z.Write(encode(t, enc, list))
				_ = z.Close()
			})
			c := s.client(t, func(o *Options) {
				o.Config.BearerToken, o.UserAgent, o.Compress = "gateway-token", "kubeweir/v1", compress
			})
			var items [][]byte
			meta, err := c.Source().List(testContext(t), pods(), enc, source.ListOptions{ResourceVersion: "5", ResourceVersionMatch: "NotOlderThan", Limit: 500, Continue: "a+b"}, func(item []byte) error {
				items = append(items, item)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := source.ListMeta{ResourceVersion: 77, Continue: "next", Kind: "PodList", APIVersion: "v1", Warnings: []string{`299 - "one"`, `299 - "two"`}}
			if diff := cmp.Diff(want, meta); diff != "" {
				t.Error(diff)
			}
			if len(items) != 100 || !bytes.Equal(items[7], bare(t, enc, pod("p7", "8"))) {
				t.Errorf("%d items, %s", len(items), items[7])
			}
			seen := s.last(t)
			if want := "/api/v1/pods?continue=a%2Bb&limit=500&resourceVersion=5&resourceVersionMatch=NotOlderThan"; seen.RequestURI != want {
				t.Errorf("asked for %s, want %s", seen.RequestURI, want)
			}
			for name, want := range map[string]string{"Accept": enc.MediaType(), "Authorization": "Bearer gateway-token", "User-Agent": "kubeweir/v1", "Accept-Encoding": encoding} {
				if got := seen.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}
	})
}

func TestCompressionByAddress(t *testing.T) {
	for host, want := range map[string]bool{"https://127.0.0.1:6443": false, "https://localhost": false, "https://[::1]:1": false, "https://10.0.0.1": true, "https://api.example.com/x": true} {
		u, err := url.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		if got := !isLocal(u); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}

func TestListOfCustomResources(t *testing.T) {
	item := `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"kind":"x"}}`
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"apiVersion":"ex.com/v1","items":[%s],"kind":"WidgetList","metadata":{"resourceVersion":"9"}}`+"\n", item)
	})
	meta, err := s.client(t).Source().List(testContext(t), widgets(), api.JSON, source.ListOptions{}, func(got []byte) error {
		if string(got) != item {
			t.Errorf("item %s", got)
		}
		return nil
	})
	if err != nil || meta.ResourceVersion != 9 || s.last(t).RequestURI != "/apis/ex.com/v1/widgets" {
		t.Errorf("%+v, %v, %s", meta, err, s.last(t).RequestURI)
	}
}

func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message,
	})
}

// TestRejections: errors of the server are StatusErrors, whatever their form.
func TestRejections(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	tests := map[string]struct {
		serve http.HandlerFunc
		check func(error) bool
	}{
		"JSON status": {func(w http.ResponseWriter, r *http.Request) {
			writeStatus(w, 410, metav1.StatusReasonExpired, "too old")
		}, apierrors.IsResourceExpired},
		"protobuf status": {func(w http.ResponseWriter, r *http.Request) {
			status := expired.ErrStatus
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			w.WriteHeader(410)
			_, _ = w.Write(encode(t, api.Protobuf, &status))
		}, apierrors.IsResourceExpired},
		"plain text with Retry-After": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
			_, _ = io.WriteString(w, "Too many requests")
		}, func(err error) bool {
			seconds, ok := apierrors.SuggestsClientDelay(err)
			return apierrors.IsTooManyRequests(err) && ok && seconds == 7
		}},
		"nothing": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, apierrors.IsInternalError},
		"not acceptable": {func(w http.ResponseWriter, r *http.Request) {
			writeStatus(w, 406, "NotAcceptable", "only the following media types are accepted")
		}, func(err error) bool { return errors.Is(err, source.ErrUnsupported) && apierrors.IsNotAcceptable(err) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.serve)
			src := s.client(t).Source()
			_, err := src.List(testContext(t), pods(), api.Protobuf, source.ListOptions{}, nil)
			if !tt.check(err) {
				t.Errorf("list: %v", err)
			}
			if err := src.Watch(testContext(t), pods(), api.Protobuf, source.WatchOptions{}, nil); !tt.check(err) {
				t.Errorf("watch: %v", err)
			}
			if _, err := src.CurrentVersion(testContext(t), pods()); !tt.check(err) {
				t.Errorf("current version: %v", err)
			}
		})
	}
}

func TestBrokenLists(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		for name, tt := range map[string]struct {
			serve http.HandlerFunc
			want  error
		}{
			"cut": {func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"kind":"PodList","items":[{"metadata":{}},`)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, nil},
			"ended early": {func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"kind":"PodList","items":[{"metadata":{}},`)
			}, io.ErrUnexpectedEOF},
			"stands still": {func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"kind":"PodList","items":[{"metadata":{}},`)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}, health.ErrStalled},
			"no head": {func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}, health.ErrTimeout},
			"huge item": {func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, `{"items":[{"a":"%s"}]}`, strings.Repeat("x", 10000))
			}, encoding.ErrTooLarge},
			"odd version": {func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"items":[],"metadata":{"resourceVersion":"x"}}`)
			}, nil},
			"not a list":    {func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"kind":"Status"}`) }, nil},
			"odd encoding":  {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", "br") }, nil},
			"not even HTTP": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, nil},
		} {
			t.Run(name, func(t *testing.T) {
				s := newServer(t, tt.serve, options...)
				c := s.client(t, func(o *Options) {
					o.Limits.MaxObjectBytes = 5000
					switch tt.want {
					case health.ErrStalled:
						o.Limits.StallTimeout = 50 * time.Millisecond
					case health.ErrTimeout:
						o.Limits.RequestTimeout = 50 * time.Millisecond
					}
				})
				_, err := c.Source().List(testContext(t), pods(), api.JSON, source.ListOptions{}, func([]byte) error { return nil })
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			})
		}
	})
}

func TestListIsCancelled(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"items":[{"metadata":{}},`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(testContext(t))
	reason := errors.New("no longer wanted")
	_, err := s.client(t).Source().List(ctx, pods(), api.JSON, source.ListOptions{}, func([]byte) error {
		cancel(reason)
		return nil
	})
	if !errors.Is(err, reason) {
		t.Errorf("error %v", err)
	}
}

// collected are the events of a watch.
type collected struct {
	events []source.Event
	err    error
}

// watchAll collects what a watch brings until it ends.
func watchAll(t *testing.T, src *Source, res *source.Resource, enc api.Encoding, opts source.WatchOptions) collected {
	t.Helper()
	var got collected
	got.err = src.Watch(testContext(t), res, enc, opts, func(e source.Event) error {
		got.events = append(got.events, e)
		return nil
	})
	return got
}

func TestWatch(t *testing.T) {
	bookmark := pod("", "30")
	bookmark.Namespace, bookmark.Annotations = "", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	plain := pod("", "31")
	plain.Namespace = ""
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		forEncodings(t, func(t *testing.T, enc api.Encoding) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				for _, e := range [][]byte{
					event(t, enc, "ADDED", pod("a", "10")), event(t, enc, "BOOKMARK", bookmark), event(t, enc, "MODIFIED", pod("a", "20")),
					event(t, enc, "DELETED", pod("a", "25")), event(t, enc, "BOOKMARK", plain),
				} {
					_, _ = w.Write(e)
					w.(http.Flusher).Flush()
				}
			}, options...)
			got := watchAll(t, s.client(t).Source(), pods(), enc, source.WatchOptions{ResourceVersion: 5, SendInitialEvents: true, TimeoutSeconds: 60})
			want := []source.Event{
				{Type: source.WatchAccepted},
				{Type: api.Added, Object: bare(t, enc, pod("a", "10"))},
				{Type: api.Bookmark, Object: bare(t, enc, bookmark), ResourceVersion: 30, InitialEventsEnd: true},
				{Type: api.Modified, Object: bare(t, enc, pod("a", "20"))},
				{Type: api.Deleted, Object: bare(t, enc, pod("a", "25"))},
				{Type: api.Bookmark, Object: bare(t, enc, plain), ResourceVersion: 31},
			}
			equal := func(a, b source.Event) bool {
				return a.Type == b.Type && bytes.Equal(a.Object, b.Object) && a.ResourceVersion == b.ResourceVersion && a.InitialEventsEnd == b.InitialEventsEnd
			}
			if got.err != nil || !slices.EqualFunc(got.events, want, equal) {
				t.Errorf("%+v, %v; want %+v", got.events, got.err, want)
			}
			seen := s.last(t)
			query := "allowWatchBookmarks=true&resourceVersion=5&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=60&watch=true"
			if seen.URL.RawQuery != query || seen.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("asked for %s with %+v", seen.RequestURI, seen.Header)
			}
			accept := map[api.Encoding]string{api.JSON: "application/json", api.Protobuf: "application/vnd.kubernetes.protobuf;stream=watch"}[enc]
			if got := seen.Header.Get("Accept"); got != accept {
				t.Errorf("Accept %q", got)
			}
		})
	})
}

func TestWatchErrors(t *testing.T) {
	forEncodings(t, func(t *testing.T, enc api.Encoding) {
		status := apierrors.NewResourceExpired("too old resource version: 1 (2)").ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(event(t, enc, "ADDED", pod("a", "1")))
			_, _ = w.Write(event(t, enc, "ERROR", &status))
		})
		got := watchAll(t, s.client(t).Source(), pods(), enc, source.WatchOptions{ResourceVersion: 1})
		var asStatus *apierrors.StatusError
		if len(got.events) != 2 || !errors.As(got.err, &asStatus) || !apierrors.IsResourceExpired(got.err) || asStatus.ErrStatus.Code != 410 {
			t.Errorf("%d events, %v", len(got.events), got.err)
		}
		reason := errors.New("enough")
		err := s.client(t).Source().Watch(testContext(t), pods(), enc, source.WatchOptions{}, func(e source.Event) error {
			if e.Type == api.Added {
				return reason
			}
			return nil
		})
		if err != reason { // As it is.
			t.Errorf("%v", err)
		}
	})
}

func TestStreamingListUnsupported(t *testing.T) {
	for name, tt := range map[string]struct {
		code    int
		message string
		want    bool
	}{
		"gate off":      {422, `ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled`, true},
		"old server":    {422, `resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch`, true},
		"bad request":   {400, `unknown parameter sendInitialEvents`, true},
		"other invalid": {422, `resourceVersion: Invalid value: "x"`, false},
		"forbidden":     {403, `sendInitialEvents`, false},
	} {
		t.Run(name, func(t *testing.T) {
			asEvent := false
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if asEvent {
					fmt.Fprintf(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":%d,"message":%q}}`, tt.code, tt.message)
					return
				}
				writeStatus(w, tt.code, "", tt.message)
			})
			src := s.client(t).Source()
			for _, asEvent = range []bool{false, true} {
				got := watchAll(t, src, pods(), api.JSON, source.WatchOptions{SendInitialEvents: true})
				if errors.Is(got.err, source.ErrUnsupported) != tt.want || got.err == nil {
					t.Errorf("as event %v: %v", asEvent, got.err)
				}
				got = watchAll(t, src, pods(), api.JSON, source.WatchOptions{ResourceVersion: 1})
				if errors.Is(got.err, source.ErrUnsupported) {
					t.Errorf("a plain watch is unsupported: %v", got.err)
				}
			}
		})
	}
}

func TestBrokenWatches(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		forEncodings(t, func(t *testing.T, enc api.Encoding) {
			whole := event(t, enc, "ADDED", pod("a", "1"))
			for name, tt := range map[string]struct {
				serve func(w http.ResponseWriter)
				check func(error) bool
			}{
				"cut":             {func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, func(err error) bool { return err != nil }},
				"ends":            {func(w http.ResponseWriter) {}, func(err error) bool { return err == nil }},
				"ends in between": {func(w http.ResponseWriter) { _, _ = w.Write(whole[:10]) }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
				"huge": {func(w http.ResponseWriter) {
					big := pod("a", "2")
					big.Annotations = map[string]string{"x": strings.Repeat("y", 10000)}
					_, _ = w.Write(event(t, enc, "ADDED", big))
				}, func(err error) bool { return errors.Is(err, encoding.ErrTooLarge) }},
				"garbage": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("\x00\x00\x00\x05hello")) }, func(err error) bool { return err != nil }},
			} {
				t.Run(name, func(t *testing.T) {
					s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = w.Write(whole)
						w.(http.Flusher).Flush()
						tt.serve(w)
					}, options...)
					c := s.client(t, func(o *Options) { o.Limits.MaxObjectBytes = 5000 })
					got := watchAll(t, c.Source(), pods(), enc, source.WatchOptions{})
					if len(got.events) != 2 || !tt.check(got.err) {
						t.Errorf("%d events, %v", len(got.events), got.err)
					}
				})
			}
		})
	})
}

func TestCurrentVersion(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1234","continue":"x"},"items":[{"metadata":{"name":"a"}}]}`)
	})
	rv, err := s.client(t).Source().CurrentVersion(testContext(t), pods())
	if err != nil || rv != 1234 {
		t.Errorf("%d, %v", rv, err)
	}
	seen := s.last(t)
	if seen.RequestURI != "/api/v1/pods?limit=1" || !strings.HasPrefix(seen.Header.Get("Accept"), "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,") {
		t.Errorf("%s with %q", seen.RequestURI, seen.Header.Get("Accept"))
	}
}
