package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// pluginVariable makes the test binary an exec credential plugin that prints it.
const pluginVariable = "KUBEWEIR_TEST_PLUGIN"

func runPlugin() { fmt.Println(os.Getenv(pluginVariable)) }

// plugin configures an exec plugin that hands out a token and, if given, a
// certificate.
func plugin(t testing.TB, token string, cert, key []byte) *clientcmdapi.ExecConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	if token != "" {
		status["token"] = token
	}
	if cert != nil {
		status["clientCertificateData"], status["clientKeyData"] = string(cert), string(key)
	}
	credential, err := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status})
	if err != nil {
		t.Fatal(err)
	}
	return &clientcmdapi.ExecConfig{
		Command: self, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Env: []clientcmdapi.ExecEnvVar{
			{Name: pluginVariable, Value: string(credential)},
			{Name: "GORACE", Value: "atexit_sleep_ms=0"}, // a plugin built with -race would sleep for a second
		},
	}
}

func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// credentialKinds are all ways to give the gateway an identity, with what the
// upstream must see of each.
func credentialKinds(t testing.TB) map[string]struct {
	set                 func(*rest.Config)
	authorization, peer string
} {
	dir := t.TempDir()
	cert, key := certificate(t, "gateway")
	certFile, keyFile := writeFile(t, filepath.Join(dir, "c.pem"), cert), writeFile(t, filepath.Join(dir, "k.pem"), key)
	tokenFile := writeFile(t, filepath.Join(dir, "token"), []byte("file-token\n"))
	return map[string]struct {
		set                 func(*rest.Config)
		authorization, peer string
	}{
		"none":             {func(*rest.Config) {}, "", ""},
		"token":            {func(c *rest.Config) { c.BearerToken = "gateway-token" }, "Bearer gateway-token", ""},
		"token file":       {func(c *rest.Config) { c.BearerTokenFile = tokenFile }, "Bearer file-token", ""},
		"basic":            {func(c *rest.Config) { c.Username, c.Password = "gateway", "pw" }, "Basic Z2F0ZXdheTpwdw==", ""},
		"certificate":      {func(c *rest.Config) { c.CertData, c.KeyData = cert, key }, "", "gateway"},
		"certificate file": {func(c *rest.Config) { c.CertFile, c.KeyFile = certFile, keyFile }, "", "gateway"},
		"plugin token":     {func(c *rest.Config) { c.ExecProvider = plugin(t, "plugin-token", nil, nil) }, "Bearer plugin-token", ""},
		"plugin certificate": {
			func(c *rest.Config) { c.ExecProvider = plugin(t, "", cert, key) }, "", "gateway",
		},
		"plugin both": {
			func(c *rest.Config) { c.ExecProvider = plugin(t, "plugin-token-2", cert, key) }, "Bearer plugin-token-2", "gateway",
		},
	}
}

// TestPluginsOfClusters: a cluster that refuses what a plugin gave out has nothing of another
// cluster renewed, with the same plugin: nor its credentials nor its connections.
func TestPluginsOfClusters(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	exec := &clientcmdapi.ExecConfig{
		Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{"-c", `echo >> ` + calls + `; echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "'$(wc -l < ` + calls + `)'"}}'`},
	}
	good := newServer(t, func(http.ResponseWriter, *http.Request) {})
	bad := newServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	send := func(c *Client) {
		finish(t, c.Forward(t.Context(), request("GET", "/version"), Credentials{As: AsGateway}))
	}
	of := func(name string, s *server) *Client {
		return s.client(t, func(o *Options) { o.Name, o.Config.ExecProvider = name, exec })
	}
	a, b := of("a", good), of("b", bad)
	send(a)
	first := good.last(t).Header.Get("Authorization")
	for range 3 {
		send(b)
	}
	send(a)
	if again := good.last(t).Header.Get("Authorization"); again != first || again == "" {
		t.Errorf("%q, then %q", first, again)
	}
	if exec.StdinUnavailableMessage != "" || exec.StdinUnavailable {
		t.Errorf("what was given was modified: %+v", exec)
	}
}

// TestCredentials checks on the upstream's side that the gateway's credentials go
// where they belong, and that nothing of them ever comes with a client's request:
// in each protocol, for requests and for upgrades, over fresh and pooled
// connections.
func TestCredentials(t *testing.T) {
	for _, proto := range []struct {
		name    string
		options []serverOption
	}{{"HTTP/2.0", nil}, {"HTTP/1.1", []serverOption{http1Only}}} {
		for name, kind := range credentialKinds(t) {
			t.Run(proto.name+"/"+name, func(t *testing.T) {
				s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Upgrade") != "" {
						w.WriteHeader(http.StatusForbidden)
					}
				}, proto.options...)
				c := s.client(t, func(o *Options) { kind.set(o.Config) })
				for range 2 {
					for _, tt := range []struct {
						cred                Credentials
						token               string
						authorization, peer string
					}{
						{Credentials{As: AsGateway}, "", kind.authorization, kind.peer},
						{Credentials{As: AsGateway}, "client-token", kind.authorization, kind.peer},
						{Credentials{As: AsGateway, KeepImpersonation: true}, "client-token", kind.authorization, kind.peer},
						{Credentials{}, "client-token", "Bearer client-token", ""},
						{Credentials{As: AsClient, KeepImpersonation: true}, "client-token", "Bearer client-token", ""},
						{Credentials{}, "", "", ""},
					} {
						for kind, want := range map[string]struct {
							proto  string
							status int
						}{"list": {"HTTP/1.1", 200}, "watch": {proto.name, 200}, "upgrade": {"HTTP/1.1", 403}} {
							r := request("GET", "/api/v1/pods")
							if kind == "watch" {
								r.RawQuery = "watch=1"
							}
							if tt.token != "" {
								r.Header.Add("Authorization", "Bearer "+tt.token)
							}
							if kind == "upgrade" {
								r.Upgrade = "websocket"
							}
							resp := c.Forward(testContext(t), r, tt.cred)
							finish(t, resp)
							if resp.Status != want.status {
								t.Fatalf("status %d, want %d", resp.Status, want.status)
							}
							seen := s.last(t)
							if got := seen.Header.Values("Authorization"); len(got) > 1 || seen.Header.Get("Authorization") != tt.authorization {
								t.Errorf("%+v, %s: Authorization %q, want %q", tt.cred, kind, got, tt.authorization)
							}
							if got := peer(seen); got != tt.peer {
								t.Errorf("%+v, %s: client certificate %q, want %q", tt.cred, kind, got, tt.peer)
							}
							if seen.Proto != want.proto {
								t.Errorf("%s: protocol %s, want %s", kind, seen.Proto, want.proto)
							}
						}
					}
				}
			})
		}
	}
}

// TestDirectRequestsAreBounded: what is above pool.MaxHTTP1 shares HTTP/2
// connections, and each request that is over makes room for another.
func TestDirectRequestsAreBounded(t *testing.T) {
	const n = pool.MaxHTTP1 + 8
	var protos sync.Map
	var arrived atomic.Int64
	all := make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		count, _ := protos.LoadOrStore(r.Proto, new(atomic.Int64))
		count.(*atomic.Int64).Add(1)
		if arrived.Add(1) == n {
			close(all)
		}
		<-all
	})
	c := s.client(t)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { finish(t, c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{})) })
	}
	wg.Wait()
	for proto, want := range map[string]int64{"HTTP/1.1": pool.MaxHTTP1, "HTTP/2.0": n - pool.MaxHTTP1} {
		if count, ok := protos.Load(proto); !ok || count.(*atomic.Int64).Load() != want {
			t.Errorf("not %d requests over %s", want, proto)
		}
	}
	if left := c.direct.Load(); left != 0 {
		t.Errorf("%d places were not given back", left)
	}
}

// TestSmallRequestsFarAway share a connection, so that none waits for a new one; large
// ones, which the small would wait for, do not share it.
func TestSmallRequestsFarAway(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // where requests came from and how, by what they are
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Method+" "+r.URL.String()] = r.Proto + " " + r.RemoteAddr
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	})
	var far atomic.Bool
	c := s.client(t, func(o *Options) {
		o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return farConn{conn, &far}, err
		}
	})
	const pods = "/api/v1/namespaces/n/pods"
	small := []string{"GET " + pods + "/a", "POST " + pods, "PATCH " + pods + "/a", "DELETE " + pods + "/a"}
	large := []string{"GET " + pods, "DELETE " + pods, "PUT " + pods + "/a"}
	send := func() {
		for _, what := range slices.Concat(small, large) {
			r := request(strings.Fields(what)[0], strings.Fields(what)[1])
			switch r.Method {
			case "POST", "PATCH":
				withBody(r, "{}")
			case "PUT":
				withBody(r, strings.Repeat(" ", smallRequest+1))
			}
			finish(t, c.Forward(testContext(t), r, Credentials{As: AsGateway}))
		}
		if _, err := c.Source().CurrentVersion(testContext(t), &source.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}); err != nil {
			t.Error(err)
		}
	}
	measure(t, c, false)
	send()
	for what, how := range seen {
		if !strings.HasPrefix(how, "HTTP/1.1 ") {
			t.Errorf("near: %s came over %s", what, how)
		}
	}
	clear(seen)
	far.Store(true)
	time.Sleep(time.Second) // one is measured a second
	measure(t, c, true)
	far.Store(false)
	send()
	var shared string
	for _, what := range small {
		how := seen[what]
		if shared = cmp.Or(shared, how); how != shared || !strings.HasPrefix(how, "HTTP/2.0 ") {
			t.Errorf("far: %s came over %s, another over %s", what, how, shared)
		}
	}
	if how := seen["GET /api/v1/pods?limit=1"]; how != shared {
		t.Errorf("far: the version was asked for over %s, the small requests came over %s", how, shared)
	}
	for _, what := range large {
		if how := seen[what]; !strings.HasPrefix(how, "HTTP/1.1 ") {
			t.Errorf("far: %s came over %s", what, how)
		}
	}
}

// farConn is a connection on which what is sent is under way for farAfter while it is far.
type farConn struct {
	net.Conn
	far *atomic.Bool
}

func (c farConn) Write(p []byte) (int, error) {
	if c.far.Load() {
		time.Sleep(farAfter)
	}
	return c.Conn.Write(p)
}

// measure has it measured whether the upstream is far.
func measure(t *testing.T, c *Client, far bool) {
	t.Helper()
	c.health.Lag()
	eventually(t, "a measurement", func() bool {
		before, known := c.health.RTT()
		time.Sleep(20 * time.Millisecond)
		after, _ := c.health.RTT()
		return known && c.far() == far && before == after // which grows while a response is waited for
	})
}

func TestCertificateFilesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	cert, key := certificate(t, "first")
	writeFile(t, certFile, cert)
	writeFile(t, keyFile, key)
	open := make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes/n/proxy/slow" {
			w.(http.Flusher).Flush()
			<-open
			fmt.Fprint(w, "whole")
		}
	})
	config := s.config()
	config.CertFile, config.KeyFile = certFile, keyFile
	c := s.client(t, func(o *Options) { o.Config = config })
	rotate := testRotator(t, c, config)
	expect := func(want string) {
		t.Helper()
		finish(t, c.Forward(testContext(t), request("GET", "/"), Credentials{As: AsGateway}))
		if got := peer(s.last(t)); got != want {
			t.Errorf("client certificate %q, want %q", got, want)
		}
	}
	expect("first")
	slow := c.Forward(testContext(t), request("GET", "/api/v1/nodes/n/proxy/slow"), Credentials{As: AsGateway})

	cert, key = certificate(t, "second")
	writeFile(t, certFile, cert) // the key does not fit yet
	rotate.Check()
	rotate.Check()
	expect("first")
	writeFile(t, keyFile, key)
	rotate.Check()
	expect("second")

	close(open)
	if got := finish(t, slow); got != "whole" {
		t.Errorf("what was under way brought %q", got)
	}
}

func TestCAFileIsReloaded(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	other, _ := certificate(t, "another CA")
	caFile := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), other)
	config := s.config()
	config.CAData, config.CAFile = nil, caFile
	c := s.client(t, func(o *Options) { o.Config = config })
	rotate := testRotator(t, c, config)
	for _, want := range []int{503, 200} {
		rotate.Check()
		for _, as := range []As{AsClient, AsGateway} {
			if resp := c.Forward(testContext(t), request("GET", "/"), Credentials{As: as}); resp.Status != want {
				t.Errorf("status %d, want %d: %s", resp.Status, want, resp.Body)
			}
		}
		writeFile(t, caFile, s.config().CAData)
	}
}

func testRotator(t *testing.T, c *Client, config *rest.Config) *pool.Rotator {
	t.Helper()
	f, err := pool.NewFactory(c.base, config, pool.Options{Log: c.log})
	if err != nil {
		t.Fatal(err)
	}
	r, err := pool.NewRotator(f, c.allPools, c.log, c.metrics.reloads)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// kubeconfigFile has two contexts: one, the current one, and two.
func kubeconfigFile(t *testing.T, url string, ca ...byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: url, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"one": {Token: "one"}, "two": {Token: "two", Impersonate: "boss", ImpersonateGroups: []string{"g"}},
		},
		Contexts:       map[string]*clientcmdapi.Context{"one": {Cluster: "c", AuthInfo: "one"}, "two": {Cluster: "c", AuthInfo: "two"}},
		CurrentContext: "one",
	}
	if err := clientcmd.WriteToFile(kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNewFromKubeconfig(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	file := kubeconfigFile(t, s.URL+"/prefix/", s.config().CAData...)
	for context, token := range map[string]string{"": "one", "one": "one", "two": "two"} {
		c, err := New(Options{Kubeconfig: file, Context: context})
		if err != nil {
			t.Fatal(err)
		}
		finish(t, c.Forward(testContext(t), request("GET", "/version"), Credentials{As: AsGateway}))
		c.Close()
		seen := s.last(t)
		if seen.Header.Get("Authorization") != "Bearer "+token || seen.RequestURI != "/prefix/version" {
			t.Errorf("context %q: %s with %q", context, seen.RequestURI, seen.Header.Get("Authorization"))
		}
		if want := map[string]string{"two": "boss"}[context]; seen.Header.Get("Impersonate-User") != want {
			t.Errorf("context %q impersonates %q, want %q", context, seen.Header.Get("Impersonate-User"), want)
		}
	}
}

func TestNewRejects(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	empty := writeFile(t, filepath.Join(t.TempDir(), "empty"), nil)
	for name, opts := range map[string]Options{
		"nothing":         {},
		"no such file":    {Kubeconfig: "/does/not/exist"},
		"empty file":      {Kubeconfig: empty},
		"no such context": {Kubeconfig: kubeconfigFile(t, "https://x"), Context: "nonsense"},
		"bad address":     {Config: &rest.Config{Host: "https://a b"}},
		"no such CA":      {Config: &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}}},
		"bad certificate": {Config: &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("y")}}},
		"own transport":   {Config: &rest.Config{Host: "https://x", Transport: http.DefaultTransport}},
		"two identities":  {Config: &rest.Config{Host: "https://x", Username: "a", Password: "b", BearerToken: "c"}},
	} {
		if c, err := New(opts); err == nil {
			c.Close()
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestUntrustedServer(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	c := s.client(t, func(o *Options) { o.Config.CAData, _ = certificate(t, "another CA") })
	for _, as := range []As{AsClient, AsGateway} {
		resp := c.Forward(testContext(t), request("GET", "/", "Authorization", "Bearer secret"), Credentials{As: as})
		if resp.Status != 503 {
			t.Errorf("status %d", resp.Status)
		}
		t.Logf("%s", resp.Body)
	}
	if s.count() != 0 {
		t.Error("a request reached a server that is not trusted")
	}
}

// TestPluginHangs: a plugin that does not come to an end is not waited for by who needs nothing
// of it, by the client's end, or by anybody for long, and is no reason to take the upstream, or
// one of several servers, for away.
func TestPluginHangs(t *testing.T) {
	hangs := func(hold string) *clientcmdapi.ExecConfig {
		return &clientcmdapi.ExecConfig{
			Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Args: []string{"-c", `while [ -e ` + hold + ` ]; do sleep 0.02; done
echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "late"}}'`},
		}
	}
	const silence = 5 * time.Second // a plugin is a process: there is no clock but the machine's, which may be busy
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprint(servers, " servers"), func(t *testing.T) {
			t.Parallel()
			hold := writeFile(t, filepath.Join(t.TempDir(), "hold"), nil)
			var list []string
			var first *server
			for range servers {
				s := newServer(t, func(http.ResponseWriter, *http.Request) {})
				if first == nil {
					first = s
				}
				list = append(list, s.URL)
			}
			c := first.client(t, func(o *Options) {
				o.Config.ExecProvider, o.Limits.SilenceTimeout = hangs(hold), silence
				o.Limits.ServerSilence, o.Limits.ServerCheck = silence/2, 50*time.Millisecond
				if servers > 1 {
					o.Servers, o.Config.Insecure, o.Config.CAData = list, true, nil
				}
			})
			forward := func(as As) *api.Response {
				resp := c.Forward(testContext(t), request("POST", "/api/v1/pods", "Authorization", "Bearer client"), Credentials{As: as})
				finish(t, resp)
				return resp
			}
			for range 3 {
				if resp := forward(AsGateway); resp.Status != 503 || !strings.Contains(string(resp.Body), "waits for credentials") {
					t.Errorf("%d %s", resp.Status, resp.Body)
				}
			}
			eventually(t, "it is known that the plugin hangs", c.pluginStuck)
			began := time.Now()
			eventually(t, "more time than silence is borne", func() bool { return time.Since(began) > silence*5/4 })
			if ok, _ := c.Reachable(); !ok || c.CheckServers() != nil {
				t.Error("the upstream is away")
			}
			if resp := forward(AsClient); resp.Status != 200 {
				t.Errorf("as a client: %d %s", resp.Status, resp.Body)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.Close()
			}()
			within(t, ended, "the end of the client")
			if err := os.Remove(hold); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of the plugin", func() bool { return !c.pluginStuck() })
		})
	}
}
