// Package upstream runs proxy/upstream against a real kube-apiserver.
package upstream

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/test/realkube"
)

func startCluster(t *testing.T, opts realkube.Options) *realkube.Cluster {
	t.Helper()
	// Building the binaries can take minutes.
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	c, err := realkube.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newClient returns a client that authenticates with a client certificate: the credential that
// could leak to other users with a shared connection.
func newClient(t *testing.T, c *realkube.Cluster, change ...func(*upstream.Options)) *upstream.Client {
	t.Helper()
	pair, err := c.IssueClientCert(realkube.GatewayUser, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	opts := upstream.Options{Config: c.ConfigForCert(pair)}
	for _, f := range change {
		f(&opts)
	}
	client, err := upstream.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func request(method, target string, header ...string) *api.Request {
	path, query, _ := strings.Cut(target, "?")
	r := &api.Request{Method: method, Path: path, RawPath: path, RawQuery: query, RemoteAddr: "192.0.2.1:1", Proto: "HTTP/1.1"}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	r.Upgrade = r.Header.Get("Upgrade")
	return r
}

func post(target string, object any, header ...string) *api.Request {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	r := request("POST", target, append(header, "Content-Type", "application/json")...)
	r.Body, r.ContentLength = bytes.NewReader(body), int64(len(body))
	return r
}

func read(t *testing.T, resp *api.Response) []byte {
	t.Helper()
	body := bytes.NewBuffer(resp.Body)
	if resp.BodyTo != nil {
		if _, err := resp.BodyTo.WriteTo(body); err != nil {
			t.Fatal(err)
		}
	}
	if resp.Done != nil {
		resp.Done(int64(body.Len()), nil)
	}
	return body.Bytes()
}

var crdBody = map[string]any{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.ex.com"},
	"spec": map[string]any{
		"group": "ex.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	},
}

var widgets = schema.GroupVersionResource{Group: "ex.com", Version: "v1", Resource: "widgets"}

// fill creates objects whose contents are hard to scan.
func fill(t *testing.T, client *upstream.Client, catalog *discovery.Catalog) {
	t.Helper()
	create := func(target string, object any) {
		t.Helper()
		resp := client.Forward(testContext(t), post(target, object), upstream.Credentials{As: upstream.AsGateway})
		if body := read(t, resp); resp.Status != 201 {
			t.Fatalf("%s: %d %s", target, resp.Status, body)
		}
	}
	awkward := map[string]string{"quotes": `"}]{[\"`, "backslash": `\`, "html": "<a href=\"x\">&</a>", "unicode": "é\u2028\U0001F600", "lines": "a\nb\t\r"}
	for i := range 20 {
		create("/api/v1/namespaces/default/configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}, Data: awkward, BinaryData: map[string][]byte{"b": {0, 1, 0xff}}})
	}
	create("/api/v1/namespaces/default/secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"large": bytes.Repeat([]byte{'x'}, 300_000)}})
	create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crdBody)
	for deadline := time.Now().Add(time.Minute); ; {
		if err := catalog.Refresh(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if _, ok := catalog.Lookup(widgets); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the definition does not appear in discovery")
		}
	}
	create("/apis/ex.com/v1/namespaces/default/widgets", map[string]any{
		"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{"items": awkward, "kind": []any{nil, true, 1.5e10}},
	})
}

func TestUpstream(t *testing.T) {
	c := startCluster(t, realkube.Options{})
	client := newClient(t, c)
	catalog := discovery.NewCatalog(client)
	if err := catalog.Refresh(testContext(t)); err != nil {
		t.Fatal(err)
	}
	fill(t, client, catalog)
	t.Run("discovery", func(t *testing.T) { testDiscovery(t, c, catalog) })
	t.Run("lists are watches", func(t *testing.T) { testListsAreWatches(t, client, catalog) })
	t.Run("references", func(t *testing.T) { testReferences(t, client, catalog) })
	t.Run("pages", func(t *testing.T) { testPages(t, client) })
	t.Run("current version", func(t *testing.T) { testCurrentVersion(t, client) })
	t.Run("identities", func(t *testing.T) { testIdentities(t, c, client) })
	t.Run("client-go", func(t *testing.T) { testClientGo(t, client) })
	t.Run("upgrades", func(t *testing.T) { testUpgrades(t, c, client) })
	t.Run("outages", func(t *testing.T) { testOutages(t, c) })
	t.Run("expired", func(t *testing.T) { testExpired(t, c, client) })
}

// testDiscovery compares the discovery documents with client-go's.
func testDiscovery(t *testing.T, c *realkube.Cluster, catalog *discovery.Catalog) {
	clientset, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := clientset.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		Kind       string
		Namespaced bool
		Verbs      []string
	}
	want, got := map[schema.GroupVersionResource]summary{}, map[schema.GroupVersionResource]summary{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // subresources are not read
				want[gv.WithResource(r.Name)] = summary{r.Kind, r.Namespaced, slices.Sorted(slices.Values(r.Verbs))}
			}
		}
	}
	for _, r := range resourcesOf(catalog) {
		got[r.GroupVersionResource] = summary{r.Kind, r.Namespaced, slices.Sorted(slices.Values(r.Verbs))}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 60 {
		t.Errorf("%d resources: %s", len(got), diff)
	}
}

// resourcesOf returns the resources in the discovery documents.
func resourcesOf(catalog *discovery.Catalog) (all []discovery.ServerResource) {
	docs := catalog.Documents()
	for _, group := range slices.Concat(docs.Core.Items, docs.Groups.Items) {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			for _, res := range version.Resources {
				if r, ok := catalog.Known(gv.WithResource(res.Resource)); ok {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// testListsAreWatches reads every watchable resource by list and by watch, in both encodings. The
// bytes of each object must be equal.
func testListsAreWatches(t *testing.T, client *upstream.Client, catalog *discovery.Catalog) {
	src := client.Source()
	done := errors.New("all initial events were received")
	objects := 0
	for _, r := range resourcesOf(catalog) {
		if !r.Supports("list") || !r.Supports("watch") || r.Resource == "leases" || r.Resource == "events" {
			continue // leases change all the time
		}
		res := &source.Resource{GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced, Custom: r.Group == "ex.com"}
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			var listed, watched [][]byte
			meta, err := src.List(testContext(t), res, enc, source.ListOptions{}, func(item []byte) error {
				listed = append(listed, item)
				return nil
			})
			if enc == api.Protobuf && res.Custom {
				if !errors.Is(err, source.ErrUnsupported) {
					t.Errorf("%s in protobuf: %v", res, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s in %s: %v", res, enc, err)
				continue
			}
			if meta.Kind != r.Kind+"List" || meta.APIVersion != r.GroupVersion().String() || meta.ResourceVersion == 0 {
				t.Errorf("%s: %+v", res, meta)
			}
			accepted := false
			err = src.Watch(testContext(t), res, enc, source.WatchOptions{SendInitialEvents: true}, func(e source.Event) error {
				switch e.Type {
				case source.WatchAccepted:
					accepted = len(watched) == 0
				case api.Added:
					watched = append(watched, e.Object)
				case api.Bookmark:
					if !e.InitialEventsEnd || e.ResourceVersion < meta.ResourceVersion || len(e.Object) == 0 {
						t.Errorf("%s: bookmark %+v", res, e)
					}
					return done
				default:
					t.Errorf("%s: %s", res, e.Type)
				}
				return nil
			})
			if !errors.Is(err, done) || !accepted {
				t.Errorf("%s in %s: %v", res, enc, err)
			}
			if !slices.EqualFunc(listed, watched, bytes.Equal) {
				t.Errorf("%s in %s: %d listed, %d watched; first: %s", res, enc, len(listed), len(watched), firstDifference(listed, watched))
			}
			objects += len(listed)
		}
	}
	if objects < 300 {
		t.Errorf("compared only %d objects", objects)
	}
}

func firstDifference(a, b [][]byte) string {
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			return fmt.Sprintf("%d: %q and %q", i, a[i], b[i])
		}
	}
	return "none"
}

func configMaps() *source.Resource {
	return &source.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true}
}

func testPages(t *testing.T, client *upstream.Client) {
	src := client.Source()
	list := func(opts source.ListOptions) (items []string, meta source.ListMeta) {
		t.Helper()
		meta, err := src.List(testContext(t), configMaps(), api.JSON, opts, func(item []byte) error {
			items = append(items, string(item))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return items, meta
	}
	all, whole := list(source.ListOptions{ResourceVersion: "0"})
	var paged []string
	opts := source.ListOptions{Limit: 7}
	for {
		items, meta := list(opts)
		if len(items) > 7 || opts.Continue != "" && meta.ResourceVersion < whole.ResourceVersion {
			t.Errorf("a page of %d items at %d", len(items), meta.ResourceVersion)
		}
		paged = append(paged, items...)
		if opts.Continue = meta.Continue; opts.Continue == "" {
			break
		}
	}
	if !slices.Equal(all, paged) || len(all) < 20 {
		t.Errorf("%d objects at once, %d in pages", len(all), len(paged))
	}
}

func testCurrentVersion(t *testing.T, client *upstream.Client) {
	src := client.Source()
	for i := range 10 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("v", i)}}
		resp := client.Forward(testContext(t), post("/api/v1/namespaces/kube-system/configmaps", object), upstream.Credentials{As: upstream.AsGateway})
		var created corev1.ConfigMap
		if err := json.Unmarshal(read(t, resp), &created); err != nil || resp.Status != 201 {
			t.Fatalf("%d, %v", resp.Status, err)
		}
		wrote, err := strconv.ParseUint(created.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		// Versions belong to the store, so other resources have the version, too.
		for _, res := range []*source.Resource{configMaps(), {GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node"}} {
			if current, err := src.CurrentVersion(testContext(t), res); err != nil || current < wrote {
				t.Errorf("current version of %s is %d, %v; want at least %d, the version of a write", res.Resource, current, err, wrote)
			}
		}
	}
}

// testIdentities queries as whom the server authenticates each forwarded request. The gateway's own
// certificate is an administrator's.
func testIdentities(t *testing.T, c *realkube.Cluster, client *upstream.Client) {
	alice := "Bearer " + c.Token(realkube.Alice)
	spoof := []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Impersonate-User", "admin", "Impersonate-Group", "system:masters"}
	for name, tt := range map[string]struct {
		cred     upstream.Credentials
		header   []string
		status   int
		user     string
		groups   []string
		extraKey string
	}{
		"client's token":             {upstream.Credentials{}, []string{"Authorization", alice}, 201, "alice", nil, ""},
		"client's token, spoofing":   {upstream.Credentials{}, append([]string{"Authorization", alice}, spoof...), 201, "alice", nil, ""},
		"client's own impersonation": {upstream.Credentials{KeepImpersonation: true}, append([]string{"Authorization", alice}, spoof...), 403, "", nil, ""},
		"admin's own impersonation": {
			upstream.Credentials{KeepImpersonation: true}, []string{"Authorization", "Bearer " + c.AdminToken(), "Impersonate-User", "bob", "Impersonate-Group", "g"}, 201, "bob", []string{"g", "system:authenticated"}, "",
		},
		"nobody":            {upstream.Credentials{}, nil, 403, "", nil, ""},
		"nobody, spoofing":  {upstream.Credentials{}, spoof, 403, "", nil, ""},
		"nobody's token":    {upstream.Credentials{}, []string{"Authorization", "Bearer nonsense"}, 401, "", nil, ""},
		"gateway":           {upstream.Credentials{As: upstream.AsGateway}, nil, 201, realkube.GatewayUser, nil, ""},
		"gateway, spoofing": {upstream.Credentials{As: upstream.AsGateway}, append([]string{"Authorization", alice}, spoof...), 201, realkube.GatewayUser, nil, ""},
		"impersonated": {
			upstream.Credentials{As: upstream.AsGateway, KeepImpersonation: true},
			[]string{
				"Authorization", alice, "Impersonate-User", "jane é", "Impersonate-Uid", "u7", "Impersonate-Group", "dev",
				"Impersonate-Group", "system:authenticated", "Impersonate-Extra-example.com%2Fscope", "a", "Impersonate-Extra-example.com%2Fscope", "b c",
			}, 201, "jane é", []string{"dev", "system:authenticated"}, "example.com/scope",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				resp := client.Forward(testContext(t), post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &authenticationv1.SelfSubjectReview{}, tt.header...), tt.cred)
				body := read(t, resp)
				var review authenticationv1.SelfSubjectReview
				if resp.Status == 201 {
					if err := json.Unmarshal(body, &review); err != nil {
						t.Fatal(err)
					}
				}
				user := review.Status.UserInfo
				if resp.Status != tt.status || user.Username != tt.user && tt.status == 201 {
					t.Errorf("%d %s", resp.Status, body)
				}
				if tt.groups != nil && !slices.Equal(user.Groups, tt.groups) {
					t.Errorf("groups %q, want %q", user.Groups, tt.groups)
				}
				if tt.extraKey != "" && (!maps.EqualFunc(user.Extra, map[string]authenticationv1.ExtraValue{tt.extraKey: {"a", "b c"}}, slices.Equal) || user.UID != "u7") {
					t.Errorf("%+v", user)
				}
				if !resp.Header.Has("Audit-Id") {
					t.Error("no Audit-Id")
				}
			}
		})
	}
}

func testClientGo(t *testing.T, client *upstream.Client) {
	clientset, err := kubernetes.NewForConfigAndClient(client.ClientGo())
	if err != nil {
		t.Fatal(err)
	}
	review, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(testContext(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != realkube.GatewayUser {
		t.Errorf("%+v, %v", review, err)
	}
}

// testUpgrades watches over a WebSocket, with the token as a subprotocol, and requests execs that
// are rejected.
func testUpgrades(t *testing.T, c *realkube.Cluster, client *upstream.Client) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	key := "dGhlIHNhbXBsZSBub25jZQ=="
	protocol := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(c.AdminToken()))
	resp := client.Forward(testContext(t), request("GET", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2",
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", key, "Origin", "http://origin",
		"Sec-WebSocket-Protocol", protocol+", x"), upstream.Credentials{})
	if resp.Upgrade == nil {
		t.Fatalf("%d %s", resp.Status, read(t, resp))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp.Upgrade(theirs)
		resp.Done(0, nil)
	}()
	all, err := io.ReadAll(ours)
	if err != nil {
		t.Error(err)
	}
	<-done
	if resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || bytes.Count(all, []byte(`{"type":"ADDED"`)) < 20 {
		t.Errorf("%v, %d bytes of frames", resp.Header, len(all))
	}

	for _, header := range [][]string{{"Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"}, {"Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", key, "Sec-WebSocket-Protocol", "v5.channel.k8s.io"}} {
		r := request("GET", "/api/v1/namespaces/default/pods/none/exec?command=sh&stdout=true", append(header, "Connection", "Upgrade")...)
		if resp := client.Forward(testContext(t), r, upstream.Credentials{As: upstream.AsGateway}); resp.Status != 404 || !strings.Contains(string(read(t, resp)), `pods \"none\" not found`) {
			t.Errorf("exec in a missing pod: %d", resp.Status)
		}
		if resp := client.Forward(testContext(t), r, upstream.Credentials{}); resp.Status != 403 {
			t.Errorf("anonymous exec: %d %s", resp.Status, read(t, resp))
		}
	}
}

// testExpired runs after a restart, which leaves the server without history.
func testExpired(t *testing.T, c *realkube.Cluster, client *upstream.Client) {
	src := client.Source()
	ctx := testContext(t)
	err := src.Watch(ctx, configMaps(), api.JSON, source.WatchOptions{ResourceVersion: 1}, func(source.Event) error { return nil })
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from version 1: %v", err)
	}
	revision, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = src.List(ctx, configMaps(), api.JSON, source.ListOptions{ResourceVersion: fmt.Sprint(revision + 1_000_000)}, nil)
	if !apierrors.IsTimeout(err) {
		t.Errorf("a list of the future: %v", err)
	}
}

// testOutages pauses, kills and restarts the server while a watch is open.
func testOutages(t *testing.T, c *realkube.Cluster) {
	client := newClient(t, c, func(o *upstream.Options) {
		o.Limits.PingInterval, o.Limits.PingTimeout = 500*time.Millisecond, 2*time.Second
	})
	src := client.Source()
	watch := func() (accepted chan struct{}, ended chan error) {
		accepted, ended = make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- src.Watch(t.Context(), configMaps(), api.Protobuf, source.WatchOptions{}, func(e source.Event) error {
				if e.Type == source.WatchAccepted {
					close(accepted)
				}
				return nil
			})
		}()
		return accepted, ended
	}
	wait := func(what string, ended chan error) {
		t.Helper()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: the watch ended without an error", what)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the watch did not end", what)
		}
	}

	accepted, ended := watch()
	<-accepted
	// For a second there are no requests: only pings maintain contact.
	deadline := time.Now().Add(time.Minute)
	for first := src.LastContact(); src.LastContact().Sub(first) <= time.Second; {
		if time.Now().After(deadline) {
			t.Fatal("an idle watch lost contact")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := c.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	wait("pause", ended)
	if err := c.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}

	accepted, ended = watch()
	<-accepted
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	wait("kill", ended)
	resp := client.Forward(testContext(t), request("GET", "/api/v1/pods"), upstream.Credentials{As: upstream.AsGateway})
	if body := read(t, resp); resp.Status != 503 || !bytes.Contains(body, []byte("ServiceUnavailable")) {
		t.Errorf("%d %s", resp.Status, body)
	}
	if err := c.StartAPIServer(testContext(t)); err != nil {
		t.Fatal(err)
	}
	resp = client.Forward(testContext(t), request("GET", "/api/v1/pods"), upstream.Credentials{As: upstream.AsGateway})
	if body := read(t, resp); resp.Status != 200 {
		t.Errorf("after the restart: %d %s", resp.Status, body)
	}
}

// TestWithoutWatchList checks that a watch from a server without streaming lists returns
// ErrUnsupported.
func TestWithoutWatchList(t *testing.T) {
	c := startCluster(t, realkube.Options{FeatureGates: map[string]bool{"WatchList": false}})
	src := newClient(t, c).Source()
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		err := src.Watch(testContext(t), configMaps(), enc, source.WatchOptions{SendInitialEvents: true}, func(source.Event) error { return nil })
		if !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("%s: %v", enc, err)
		}
	}
}
