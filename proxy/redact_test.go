package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// seed is in all that is to be redacted; hidden are the forms in which it could come out.
const seed = "s3cr3t-S33D"

var hidden = []string{seed, "czNjcjN0LVMzM0", "YTNjcjN0LVMzM0"} // plain, in base64

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// redactedBench has a Secret, a Pod and a custom object, each with the seed, and shows "agent" a redacted view.
func redactedBench(t testing.TB, change func(*Options)) *gatewayBench {
	t.Helper()
	secretResource := &source.Resource{GroupVersionResource: secrets, Kind: "Secret", Namespaced: true, Schema: object.SchemaFor(secrets)}
	widgets := cachetest.WidgetResource()
	var err error
	widgets.Printer, err = table.NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Variable", Type: "string", JSONPath: ".spec.template.spec.containers[0].env[0].value"},
		{Name: "Image", Type: "string", JSONPath: ".spec.template.spec.containers[0].image"},
	})
	if err != nil {
		t.Fatal(err)
	}
	source := cachetest.New(cachetest.PodResource(), secretResource, widgets)
	b := newGatewayBench(t, func(o *Options) {
		manager, err := cache.NewManager(cache.Options{Source: source, Logger: o.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(manager.Close)
		verbs := []string{"get", "list", "watch", "create"}
		o.Manager = manager
		o.Resources = otherResources{discovery.NewResources(fakeDiscovery{
			cachetest.Pods: {GroupVersionResource: cachetest.Pods, Kind: "Pod", Namespaced: true, Verbs: verbs},
			secrets:        {GroupVersionResource: secrets, Kind: "Secret", Namespaced: true, Verbs: verbs},
		}, defaultPrinters{}, manager, o.Logger, discovery.Options{}), cachetest.Widgets, widgets, reason.NotForwarded}
		o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"agent"}}, Settings: policy.Settings{Redacted: policy.Yes}}}
		if change != nil {
			change(o)
		}
	})
	b.source = source
	copies := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"data":"` + seed + `"}`, "kept": "yes"}
	source.Create(secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: copies},
		Data:       map[string][]byte{"password": []byte(seed), "other": []byte("a" + seed)}, Type: "Opaque",
	})
	source.Create(cachetest.Pods, podWith("a", seed, copies))
	widget := cachetest.Widget("default/a", "red")
	widget.SetAnnotations(copies)
	spec := widget.Object["spec"].(map[string]any)
	spec["template"] = map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"image": "kept", "env": []any{map[string]any{"name": "PASSWORD", "value": seed}}}}}}
	spec["secret"] = map[string]any{"data": map[string]any{"a": seed}, "kind": "Secret"}
	source.Create(cachetest.Widgets, widget)
	return b
}

func podWith(name, value string, annotations map[string]string) *corev1.Pod {
	pod := cachetest.Pod("default/"+name, "node")
	pod.Annotations = annotations
	env := []corev1.EnvVar{{Name: "PASSWORD", Value: value}, {Name: "FROM", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	pod.Spec.Containers[0].Env = env
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Env: env}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: env}}}
	return pod
}

// read is the body of an answer, decompressed; of a watch its first events, as far as they are there at once.
func (b *gatewayBench) read(t testing.TB, line string, header ...string) (int, string) {
	t.Helper()
	resp := b.gateway.Serve(t.Context(), request(line, header...))
	var body bytes.Buffer
	switch {
	case resp.Stream != nil:
		w := &farEnd{}
		resp.Stream.Start(w)
		synctest.Wait()
		resp.Stream.Stop()
		body.WriteString(w.got.String())
	case resp.BodyTo != nil:
		if _, err := resp.BodyTo.WriteTo(&body); err != nil {
			t.Fatal(err)
		}
	default:
		body.Write(resp.Body)
	}
	resp.Done(int64(body.Len()), nil)
	text := body.Bytes()
	if resp.Header.Get("Content-Encoding") == "gzip" {
		r, err := gzip.NewReader(&body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ = io.ReadAll(r) // a watch has no end
	}
	return resp.Status, string(text)
}

func leaks(text string) bool {
	for _, s := range hidden {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// forms are those that a client may ask for.
var forms = []string{
	"", "application/json", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf,application/json",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/cbor;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/json;drop=metadata.managedFields", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "application/*", "text/html",
}

// readsOf are ways to read a resource in all of which the seed would be.
func readsOf(path string) []string {
	single := strings.Replace(path, "/v1/", "/v1/namespaces/default/", 1) + "/a"
	return []string{
		path, path + "?resourceVersion=0", path + "?pretty=true", path + "?limit=1", path + "?includeObject=Object&resourceVersion=0",
		path + "?resourceVersion=110&resourceVersionMatch=Exact", path + "?sortBy=.metadata.name", path + "?labelSelector=a!%3Db",
		path + "?where=.metadata.name%3Da", path + "?fields=.data,.spec,.metadata&resourceVersion=0", path + "?countBy=.data,.spec&resourceVersion=0",
		path + "?countBy=.spec.containers[0].env[0].value,.data.password", path + "?countBy=variable&resourceVersion=0",
		path + "?watch=1", path + "?watch=1&resourceVersion=0", path + "?watch=1&resourceVersion=100", path + "?watch=1&resourceVersion=100&includeObject=Object",
		path + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		single, single + "?resourceVersion=0", single + "?includeObject=Object", single + "/status", single + "?pretty=1",
		strings.Replace(path, "/v1/", "/v1/watch/", 1),
	}
}

// TestRedacted reads objects with a seed in every way and form, from the cache and not.
func TestRedacted(t *testing.T) {
	for _, mode := range []policy.Mode{policy.ModeStrict, policy.ModeSession} {
		bubble.Test(t, func(t *testing.T) {
			b := redactedBench(t, func(o *Options) { o.Policy.Consistency.Default, o.CompressWatchLists = mode, true })
			b.upstream.response = func(r *api.Request) *api.Response {
				return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "application/json"}},
					Body: []byte(`{"kind":"Secret","data":{"a":"` + seed + `"},"metadata":{"name":"a"}}`)}
			}
			responded := 0
			for _, path := range []string{"/api/v1/secrets", "/api/v1/pods", "/apis/example.com/v1/widgets"} {
				for _, line := range readsOf(path) {
					for _, accept := range forms {
						for _, more := range []string{"Accept-Encoding: gzip", "X: y"} {
							b.read(t, "GET "+line, "Authorization: Bearer jane", "Accept: "+accept, more) // what is derived for her is not shown
							status, text := b.read(t, "GET "+line, "Authorization: Bearer agent", "Accept: "+accept, more)
							if leaks(text) {
								t.Fatalf("%s as %q: %d %s", line, accept, status, text)
							}
							if status == 200 {
								responded++
							} else if accept == "" || accept == "application/json" {
								if status != 400 && !(status == 403 && strings.Contains(line, "countBy=variable")) {
									t.Errorf("%s: %d %s", line, status, text)
								}
							}
						}
					}
				}
			}
			if responded < 1000 {
				t.Errorf("%d were answered", responded)
			}
			// The others go on to see all, by the same path and form.
			for _, line := range []string{"/api/v1/secrets?resourceVersion=0", "/api/v1/pods?watch=1&resourceVersion=0", "/api/v1/namespaces/default/pods/a?resourceVersion=0"} {
				for _, user := range []string{"agent", "jane", "agent"} {
					if _, text := b.read(t, "GET "+line, "Authorization: Bearer "+user); leaks(text) != (user == "jane") {
						t.Errorf("%s of %s: %s", line, user, text)
					}
				}
			}
		})
	}
}

// TestRedactedKeeps: what is not secret is there, keys included, from the cache.
func TestRedactedKeeps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := redactedBench(t, nil)
		for line, want := range map[string][]string{
			"/api/v1/namespaces/default/secrets/a":   {`"password":"MTEgYnl0ZXM="`, `"other":"MTIgYnl0ZXM="`, `"kept":"yes"`, `"type":"Opaque"`},
			"/api/v1/secrets":                        {`"password":"MTEgYnl0ZXM="`, `"kind":"SecretList"`},
			"/api/v1/namespaces/default/pods/a":      {`{"name":"PASSWORD"}`, `"fieldPath":"metadata.name"`, `"annotations":{"kept":"yes"}`},
			"/apis/example.com/v1/widgets":           {`{"name":"PASSWORD"}`, `"data":{"a":"OCBieXRlcw=="}`, `"color":"red"`},
			"/api/v1/pods?watch=1&resourceVersion=0": {`{"name":"PASSWORD"}`, `"type":"ADDED"`},
			"/api/v1/pods?where=.spec.containers[0].env[0].name%3DPASSWORD&fields=.spec.nodeName": {`"items":[{"spec":{"nodeName":"node"}`},
			"/api/v1/pods?where=.spec.containers[0].env[0].value~s3cr3t":                          {`"items":[]`},
			"/api/v1/secrets?where=.data.password~czNj":                                           {`"items":[]`},
			"/api/v1/secrets?countBy=.data.password&limit=0":                                      {`"MTEgYnl0ZXM=":1`},
		} {
			status, text := b.read(t, "GET "+line, "Authorization: Bearer agent", "Accept: application/vnd.kubernetes.protobuf,application/json")
			for _, part := range want {
				if status != 200 || !strings.Contains(text, part) {
					t.Errorf("%s: %d %s lacks %s", line, status, text, part)
				}
			}
		}
		if n := b.upstream.count(); n > 0 {
			t.Errorf("%d were forwarded", n)
		}
		_, text := b.read(t, "GET /apis/example.com/v1/widgets", "Authorization: Bearer agent", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
		if !strings.Contains(text, `"cells":["a",null,"kept"`) && !strings.Contains(text, `"cells":["a","","kept"`) {
			t.Errorf("table: %s", text)
		}
	})
}

// TestRedactedWatch: every event of a watch is redacted, of every kind.
func TestRedactedWatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := redactedBench(t, nil)
		for _, header := range []string{"Accept: application/json", "Accept: application/cbor", "Accept: " + forms[5], "socket"} {
			for _, query := range []string{"", "&fieldSelector=spec.nodeName%3Dnode", "&includeObject=Object"} {
				lines := []string{"Authorization: Bearer agent", header}
				if header == "socket" {
					lines = append([]string{"Authorization: Bearer agent"}, socketHeader...)
				}
				resp := b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0"+query, lines...))
				if resp.Stream == nil {
					t.Fatalf("%s: %d %s", header, resp.Status, resp.Body)
				}
				w := &farEnd{}
				resp.Stream.Start(w)
				pod := b.source.Create(cachetest.Pods, podWith("b", seed, map[string]string{"kept": "yes"})).(*corev1.Pod).DeepCopy()
				synctest.Wait()
				pod.Spec.Containers[0].Env[0].Value = "more " + seed
				pod = b.source.Update(cachetest.Pods, pod).(*corev1.Pod).DeepCopy()
				synctest.Wait()
				pod.Spec.NodeName = "other" // leaves the selector
				b.source.Update(cachetest.Pods, pod)
				synctest.Wait()
				b.source.Delete(cachetest.Pods, "default/b")
				synctest.Wait()
				resp.Stream.Stop()
				resp.Done(0, nil)
				text := w.got.String()
				if leaks(text) || !strings.Contains(text, "DELETED") || !strings.Contains(text, "MODIFIED") {
					t.Errorf("%s %s: %q", header, query, text)
				}
			}
		}
	})
}

// TestRedactedRejects: what cannot be redacted is not asked for.
func TestRedactedRejects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := redactedBench(t, nil)
		const pod = "/api/v1/namespaces/default/pods/a"
		for _, c := range []struct{ line, header string }{
			{"POST /api/v1/namespaces/default/pods?dryRun=All", ""}, {"PATCH /api/v1/namespaces/default/secrets/a", ""}, {"PUT " + pod, ""},
			{"DELETE " + pod, ""}, {"DELETE /api/v1/secrets", ""}, {"POST /api/v1/namespaces/default/serviceaccounts/a/token", ""}, {"OPTIONS " + pod, ""},
			{"GET " + pod + "/log", ""}, {"GET " + pod + "/exec?command=env", "Upgrade: websocket"}, {"GET " + pod + "/proxy/env", ""},
			{"GET /api/v1/nodes/a/proxy/pods", ""}, {"GET /api/v1/proxy/nodes/a", ""}, {"HEAD " + pod, ""},
			{"GET /metrics", ""}, {"GET /logs/a", ""}, {"GET /debug/pprof/heap", ""}, {"GET /configz", ""},
			{"GET /api/v1//secrets", ""}, {"GET /api/v1/./secrets", ""}, {"GET /api/v1/secrets?unknown=1", ""}, {"GET /api/v1/secrets?limit=1&limit=2", ""},
			{"GET /api/v1/secrets?fieldSelector=a&fieldSelector=b", ""}, {"GET /api/v1/secrets?fieldSelector=data.password%3Da", ""},
			{"GET /apis/example.com/v1/widgets?fieldSelector=spec.env.A%3Da", ""}, {"GET /apis/none.example.com/v1/things?watch=1", "Upgrade: websocket"},
			{"GET /apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/vnc", ""},
		} {
			for _, as := range [][]string{{"Authorization: Bearer agent"}, {"Authorization: Bearer jane", "Impersonate-User: agent"}, {"Authorization: Bearer agent", "Impersonate-User: jane"}} {
				header := append([]string{c.header, "Content-Type: application/json"}, as...)
				status, text := b.read(t, c.line, header...)
				if status != 403 || !strings.Contains(text, "redacted view") || b.upstream.count() > 0 {
					t.Errorf("%s %s: %d %s", c.line, as, status, text)
				}
			}
		}
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 200, Body: []byte("whole")} }
		for _, line := range []string{"GET /api", "GET /apis", "GET /apis/apps/v1", "GET /openapi/v3", "GET /version", "GET /", "POST " + accessReviews} {
			if status, text := b.read(t, line, "Authorization: Bearer agent"); status != 200 || text != "whole" {
				t.Errorf("%s: %d %s", line, status, text)
			}
		}
	})
}

// TestRedactedForwarded: an answer of the upstream is redacted or refused.
func TestRedactedForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := redactedBench(t, nil)
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return true }
		const line = "GET /apis/none.example.com/v1/namespaces/a/things"
		const secret = `{"kind":"Secret","data":{"a":"` + seed + `"}}`
		isJSON := api.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Etag", Value: seed}}
		for name, c := range map[string]struct {
			response api.Response
			line     string
			accept   string
			status   int
			want     string
		}{
			"object":   {response: api.Response{Status: 200, Header: isJSON, Body: []byte(secret)}, status: 200, want: `{"kind":"Secret","data":{"a":"OCBieXRlcw=="}}`},
			"in parts": {response: api.Response{Status: 200, Header: isJSON, BodyTo: bytes.NewBufferString(secret), Length: -1}, status: 200, want: `"OCBieXRlcw=="`},
			"error":    {response: api.Response{Status: 404, Header: isJSON, Body: []byte(`{"kind":"Status","code":404}`)}, status: 404, want: `"code":404`},
			"table":    {response: api.Response{Status: 200, Header: isJSON, Body: []byte(`{"kind":"Table","rows":[{"cells":["` + seed + `"]}]}`)}, status: 403, want: "nobody knows what is in its cells"},
			"table event": {line: line + "?watch=1", response: api.Response{Status: 200, Header: isJSON, Stream: &scriptedStream{frames: []string{`{"type":"ADDED","object":{"kind":"Table","rows":[{"cells":["` + seed + `"]}]}}` + "\n"}}}, status: 200,
				want: `{"type":"ERROR","object":{"kind":"Status"`},
			"a custom resource of that kind": {line: line + "/a", response: api.Response{Status: 200, Header: isJSON, Body: []byte(`{"apiVersion":"none.example.com/v1","kind":"Table","metadata":{"name":"a"}}`)}, status: 200, want: `"name":"a"`},
			"an event of it": {line: line + "?watch=1", response: api.Response{Status: 200, Header: isJSON, Stream: &scriptedStream{frames: []string{`{"type":"ADDED","object":{"apiVersion":"none.example.com/v1","kind":"Table","metadata":{"name":"a"}}}` + "\n"}}}, status: 200,
				want: `"name":"a"`},
			"table of a version": {response: api.Response{Status: 200, Header: isJSON, Body: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[{"cells":["` + seed + `"]}]}`)}, status: 403, want: "nobody knows what is in its cells"},
			"malformed":          {response: api.Response{Status: 200, Header: isJSON, Body: []byte(secret[1:])}, status: 403, want: "cannot be redacted"},
			"no JSON":            {response: api.Response{Status: 200, Body: []byte(secret)}, status: 403, want: "cannot be redacted"},
			"text error":         {response: api.Response{Status: 404, Header: api.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(seed)}, status: 404, want: `"reason":"NotFound"`},
			"compressed":         {response: api.Response{Status: 200, Header: append(isJSON[:1:1], api.Header{{Name: "Content-Encoding", Value: "gzip"}}...), Body: []byte(secret)}, status: 403, want: "cannot be redacted"},
			"too large":          {response: api.Response{Status: 200, Header: isJSON, BodyTo: strings.NewReader(strings.Repeat(" ", maxRedactedResponse) + secret), Length: -1}, status: 403, want: "limit=500"},
			"protobuf":           {accept: "application/vnd.kubernetes.protobuf", status: 406, want: "application/json"},
			"watch": {line: line + "?watch=1", response: api.Response{Status: 200, Header: isJSON, Stream: &scriptedStream{frames: []string{`{"type":"ADDED","object":` + secret + "}\n", `{"type":"DELETED","obj`, `ect":` + secret + "}\n" + `{"type":"ADDED"`}}}, status: 200,
				want: `{"type":"ADDED","object":{"kind":"Secret","data":{"a":"OCBieXRlcw=="}}}` + "\n" + `{"type":"DELETED","object":{"kind":"Secret","data":{"a":"OCBieXRlcw=="}}}` + "\n"},
			"broken watch": {line: line + "?watch=1", response: api.Response{Status: 200, Header: isJSON, Stream: &scriptedStream{frames: []string{`{"type":"ADDED","object":` + secret[1:] + "}\n"}}}, status: 200,
				want: `{"type":"ERROR","object":{"kind":"Status"`},
		} {
			var requested *api.Request
			b.upstream.response = func(r *api.Request) *api.Response {
				requested = r
				response := c.response
				return &response
			}
			if c.line == "" {
				c.line = line
			}
			status, text := b.read(t, c.line, "Authorization: Bearer agent", "Accept: "+c.accept, "Accept-Encoding: gzip", "If-None-Match: *", "Range: bytes=1-2")
			if status != c.status || !strings.Contains(text, c.want) || leaks(text) {
				t.Errorf("%s: %d %s", name, status, text)
			}
			if requested != nil && (requested.Header.Has("Accept-Encoding") || requested.Header.Has("If-None-Match") || requested.Header.Has("Range") || requested.Header.Get("Accept") != "application/json") {
				t.Errorf("%s: asked with %v", name, requested.Header)
			}
		}
		if free := b.gateway.forwards.redactedResponses.InUse() + b.gateway.forwards.redactedWatches.InUse(); free != 0 {
			t.Errorf("%d places are taken", free)
		}
	})
}

type scriptedStream struct {
	frames []string
	err    error // of writing
}

func (s *scriptedStream) Start(w api.StreamWriter) {
	for _, f := range s.frames {
		if s.err = w.WriteFrames([][]byte{[]byte(f[:len(f)/2]), []byte(f[len(f)/2:])}); s.err != nil {
			w.Abort()
			return
		}
	}
	w.Close()
}

func (s *scriptedStream) Stop() {}
