package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/config"
)

// severalClusters is a gateway of standalones, whose configuration can be written anew.
type severalClusters struct {
	*Server
	t         *testing.T
	log       lockedBuffer
	dir, file string
	settings  string // more of the top level
	upstreams map[string]*Standalone
	clients   map[string]*http.Client
}

const topLevel = "listen: 127.0.0.1:0\nadminListen: \"\"\ncertDir: certs\nshutdown: {drain: 0s}\naudit: {path: audit.log}\nclusters:\n"

// entry is a cluster of the configuration.
func entry(name string, more ...string) string {
	text := fmt.Sprintf("- name: %s\n  hosts: [%[1]s.example]\n  kubeconfig: %[1]s.kubeconfig\n  authentication: {clientCAFile: %[1]s.crt}\n", name)
	for _, line := range more {
		text += "  " + line + "\n"
	}
	return text
}

// startSeveral starts standalones of the names, and a gateway of the given entries.
func startSeveral(t *testing.T, names []string, entries ...string) *severalClusters {
	t.Helper()
	s := prepareSeveral(t, names)
	s.write(entries...)
	s.start(func() {})
	return s
}

// prepareSeveral starts the standalones alone.
func prepareSeveral(t *testing.T, names []string) *severalClusters {
	t.Helper()
	s := &severalClusters{t: t, dir: t.TempDir(), upstreams: make(map[string]*Standalone), clients: make(map[string]*http.Client)}
	s.file = filepath.Join(s.dir, "gateway.yaml")
	for _, name := range names {
		upstream, _ := running(t, "")
		s.upstreams[name] = upstream
		if err := upstream.Material().WriteKubeconfig(filepath.Join(s.dir, name+".kubeconfig"), upstream.URL()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name+".crt"), upstream.Material().CA.CertPEM, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts the gateway. meanwhile is called when its configuration has been read and is
// not followed yet.
func (s *severalClusters) start(meanwhile func()) {
	s.t.Helper()
	c, err := config.Parse([]string{"--config", s.file})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.Server, err = NewGateway(c, "kubeweir/test", slog.New(slog.NewTextHandler(&s.log, nil))); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.Close)
	meanwhile()
	s.FollowConfig(ConfigSource{File: s.file, Load: func() (*config.Gateway, error) { return config.Parse([]string{"--config", s.file}) }})
	if err := s.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.Cut)
}

func (s *severalClusters) write(entries ...string) {
	s.t.Helper()
	text := s.settings + topLevel + strings.Join(entries, "")
	if len(entries) == 0 {
		text = strings.TrimSuffix(text, "clusters:\n")
	}
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// change has the gateway serve other entries.
func (s *severalClusters) change(entries ...string) error {
	s.t.Helper()
	s.write(entries...)
	c, err := config.Parse([]string{"--config", s.file})
	if err != nil {
		return err
	}
	return s.Reload(s.t.Context(), c)
}

// client is the administrator of a cluster, whose connections name host.
func (s *severalClusters) client(cluster, host string) *http.Client {
	s.t.Helper()
	if known := s.clients[cluster+" "+host]; known != nil {
		return known
	}
	m := s.upstreams[cluster].Material()
	pair, err := tls.X509KeyPair(m.Admin.CertPEM, m.Admin.KeyPEM)
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Server.form.(*gateway).cert.CACertPEM())
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12,
	}}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.clients[cluster+" "+host] = &http.Client{Transport: transport}
	return s.clients[cluster+" "+host]
}

// get is a request of a host, and its answer.
func (s *severalClusters) get(client *http.Client, host, path string) (int, string) {
	s.t.Helper()
	resp := s.open(s.t.Context(), client, host, path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (s *severalClusters) open(ctx context.Context, client *http.Client, host, path string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Addr().String()+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func (s *severalClusters) createNamespace(cluster, name string) {
	s.t.Helper()
	client := s.client(cluster, "")
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+s.Addr().String()+"/clusters/"+cluster+"/api/v1/namespaces", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		body, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: %s", resp.Status, body)
	}
}

// TestClusters: each is reached by its path and its names, by its own clients, and counted and audited by its name.
func TestClusters(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"), entry("b"))
	for _, name := range []string{"a", "b"} {
		s.createNamespace(name, "of-"+name)
		for _, way := range []struct{ sni, host, path string }{
			{"", "", "/clusters/" + name},
			{name + ".example", name + ".example", ""},
			{name + ".example", "", ""}, // tls-server-name
			{"localhost", name + ".example:8443", ""},
		} {
			for _, query := range []string{"", "?resourceVersion=0"} {
				code, body := s.get(s.client(name, way.sni), way.host, way.path+"/api/v1/namespaces"+query)
				if code != 200 || !strings.Contains(body, `"of-`+name+`"`) || strings.Count(body, `"name":"of-`) != 1 {
					t.Errorf("%s by %+v: %d %.300s", name, way, code, body)
				}
			}
		}
	}
	if code, body := s.get(s.client("a", "a.example"), "b.example", "/api/v1/namespaces"); code != 421 {
		t.Errorf("%d %s", code, body)
	}
	// A client that one cluster knows is unknown to the others.
	if code, body := s.get(s.client("a", ""), "", "/clusters/b/api/v1/namespaces"); code != 401 {
		t.Errorf("%d %s", code, body)
	}
	if code, body := s.get(s.client("a", ""), "", "/api/v1/namespaces"); code != 404 || !strings.Contains(body, "/clusters/NAME") {
		t.Errorf("%d %s", code, body)
	}
	families, err := s.gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]bool)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "kubeweir_requests_total" && l.GetName() == "cluster" {
					counted[l.GetValue()] = true
				}
				if f.GetName() == "kubeweir_connections" && l.GetName() == "cluster" {
					t.Error("connections have a cluster")
				}
			}
		}
	}
	if !counted["a"] || !counted["b"] || len(counted) != 2 {
		t.Errorf("requests of %v are counted", counted)
	}
	s.audit.Reopen() // writes what there is
	s.Drain()
	s.Close()
	log, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil || strings.Count(string(log), `"kubeweir/cluster":"a"`) < 8 || strings.Count(string(log), `"kubeweir/cluster":"b"`) < 8 {
		t.Errorf("%v: %s", err, log)
	}
}

// TestClustersHealth: one that is away is told of, and disturbs no other.
func TestClustersHealth(t *testing.T) {
	s := startSeveral(t, []string{"a", "away"}, entry("a"), entry("away"))
	s.upstreams["away"].Cut()
	s.createNamespace("a", "of-a")
	if code, body := s.get(s.client("a", ""), "", "/clusters/a/api/v1/namespaces"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if code, body := s.get(s.client("away", ""), "", "/clusters/away/version"); code != 503 {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/clusters/a/readyz": "ok", "/readyz/clusters": "ok", "/readyz?verbose": "[+]clusters ok",
	} {
		if code, body := s.get(s.client("a", ""), "", path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// watching reads a watch until it ends.
type watching struct {
	first chan struct{} // closed with the first event
	ended chan string   // all of it
}

func (s *severalClusters) watch(cluster, query string) *watching {
	s.t.Helper()
	w := &watching{first: make(chan struct{}), ended: make(chan string, 1)}
	resp := s.open(s.t.Context(), s.client(cluster, ""), "", "/clusters/"+cluster+"/api/v1/namespaces?watch=1"+query)
	go func() {
		defer resp.Body.Close()
		var all strings.Builder
		in := bufio.NewReader(resp.Body)
		for {
			line, err := in.ReadString('\n')
			if all.Len() == 0 && line != "" {
				close(w.first)
			}
			all.WriteString(line)
			if err != nil {
				w.ended <- all.String()
				return
			}
		}
	}()
	<-w.first
	return w
}

// TestReload: clusters come and go while others are watched, and leave nothing behind.
func TestReload(t *testing.T) {
	s := startSeveral(t, []string{"a", "b", "c"}, entry("a"), entry("b"))
	onA := s.watch("a", "")
	memberOf := func(name string) *member {
		for _, m := range *s.several.members.Load() {
			if m.name == name {
				return m
			}
		}
		return nil
	}
	a := memberOf("a")
	var before goleak.Option
	for round := range 2 {
		if err := s.change(entry("a"), entry("b")); err != nil {
			t.Fatal(err)
		}
		onB := s.watch("b", "")
		// b goes, c comes.
		if err := s.change(entry("a"), entry("c")); err != nil {
			t.Fatal(err)
		}
		if text := <-onB.ended; !strings.Contains(text, "ADDED") {
			t.Errorf("the watch of b: %s", text)
		}
		if code, body := s.get(s.client("b", ""), "", "/clusters/b/api/v1/namespaces"); code != 404 {
			t.Errorf("%d %s", code, body)
		}
		if code, body := s.get(s.client("b", "a.example"), "b.example", "/api/v1/namespaces"); code == 200 {
			t.Errorf("b by its name: %s", body)
		}
		if code, body := s.get(s.client("c", "c.example"), "c.example", "/api/v1/namespaces"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		// Another name only: nothing is made anew.
		c := memberOf("c")
		if err := s.change(strings.Replace(entry("c"), "c.example", "other.example", 1), entry("a")); err != nil {
			t.Fatal(err)
		}
		if code, body := s.get(s.client("c", "other.example"), "other.example", "/api/v1/namespaces"); code != 200 || memberOf("c") != c {
			t.Errorf("%d %s", code, body)
		}
		// c is changed: its watches begin again.
		onC := s.watch("c", "")
		if err := s.change(entry("c", "watchListCompression: false"), entry("a")); err != nil {
			t.Fatal(err)
		}
		<-onC.ended
		if code, body := s.get(s.client("c", ""), "", "/clusters/c/api/v1/namespaces"); code != 200 || memberOf("c") == c {
			t.Errorf("%d %s", code, body)
		}
		if err := s.change(entry("a")); err != nil {
			t.Fatal(err)
		}
		s.several.running.Wait() // until no cluster starts or ends any more
		if round == 0 {
			before = goleak.IgnoreCurrent()
		} else if err := goleak.Find(before,
			// Connections of the test's clients, which both sides read in ever new goroutines.
			goleak.IgnoreAnyFunction("github.com/kubeweir/kubeweir/proxy/edge/h2.(*conn).read"),
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"),
			// Idle connections within the origin, whose number varies.
			goleak.IgnoreAnyFunction("github.com/kubeweir/kubeweir/internal/inprocess.(*pipe).read"),
			goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		); err != nil {
			t.Error(err)
		}
	}
	if memberOf("a") != a {
		t.Error("a was touched")
	}
	select {
	case text := <-onA.ended:
		t.Errorf("the watch of a ended: %s", text)
	default:
	}
}

// TestReloadRejected: what cannot be used changes nothing.
func TestReloadRejected(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"), entry("b"))
	onA := s.watch("a", "")
	before := *s.several.members.Load()
	broken := filepath.Join(s.dir, "broken.kubeconfig")
	if err := os.WriteFile(broken, []byte("{apiVersion: v1, kind: Config, current-context: gone}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, entries := range map[string][]string{
		"gateway.yaml:":         {entry("a"), entry("a")},
		`no context "gone"`:     {entry("a"), "- name: broken\n  kubeconfig: broken.kubeconfig\n"},
		"does not exist":        {entry("a"), entry("none")},
		"kubeconfig is not set": {"  []\n"},
	} {
		err := s.change(entries...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := s.Reload(t.Context(), config.Default()); err == nil || !strings.Contains(err.Error(), "no cluster is left") {
		t.Error(err)
	}
	after := *s.several.members.Load()
	if len(after) != 2 || after[0] != before[0] || after[1] != before[1] {
		t.Error("members changed")
	}
	if code, body := s.get(s.client("b", ""), "", "/clusters/b/api/v1/namespaces"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	select {
	case <-onA.ended:
		t.Error("a watch ended")
	default:
	}
	if one, err := NewGateway(&before[0].config.Gateway, "kubeweir/test", slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	} else {
		if err := one.Reload(t.Context(), s.source.current); err == nil {
			t.Error("a gateway of one cluster became one of several")
		}
		one.Close()
	}
}

// TestReloadByFile: a file that changes, and SIGHUP, are enough.
func TestReloadByFile(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"))
	s.write(entry("a"), entry("b"))
	await(t, s, "b", 200)
	s.write(entry("b"))
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, s, "a", 404)
}

// TestReloadSeesLaterChanges: what is written while a configuration is taken over is read, too.
func TestReloadSeesLaterChanges(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"))
	load := s.source.Load
	for name, write := range map[string]func(){
		"the configuration": func() { s.write(entry("b"), entry("a"), "# changed meanwhile\n") },
		"a kubeconfig": func() {
			file := filepath.Join(s.dir, "a.kubeconfig")
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(content, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		s.source.mu.Lock()
		s.source.Load = func() (*config.Gateway, error) {
			c, err := load()
			write()
			return c, err
		}
		s.source.mu.Unlock()
		s.write(entry("a"), entry("b"))
		s.reload(t.Context(), true)
		s.source.mu.Lock()
		if s.source.Load = load; maps.Equal(s.source.look(s.source.current), s.source.seen) {
			t.Errorf("a change of %s is overlooked", name)
		}
		s.source.mu.Unlock()
	}
}

// TestReloadOfHalfAFile: a file that is still being written is not read.
func TestReloadOfHalfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	c := configSource{ConfigSource: ConfigSource{File: file}, current: &config.Gateway{}}
	c.seen = c.look(c.current)
	text := topLevel
	for i := range 4 {
		if text += entry(fmt.Sprint("c", i)); os.WriteFile(file, []byte(text), 0o600) != nil {
			t.Fatal("not written")
		}
		if c.changed() {
			t.Errorf("%d clusters are read of a file that grows", i+1)
		}
	}
	if !c.changed() {
		t.Error("a change is overlooked")
	}
	if c.seen = c.look(c.current); c.changed() {
		t.Error("what is read is read again")
	}
}

// await asks for a cluster until the answer has a status.
func await(t *testing.T, s *severalClusters, cluster string, code int) {
	t.Helper()
	client := s.client(cluster, "")
	for t.Context().Err() == nil {
		if got, _ := s.get(client, "", "/clusters/"+cluster+"/api/v1/namespaces"); got == code {
			return
		}
	}
}

// count is a metric of a cluster with a result.
func (s *severalClusters) count(name, cluster, result string) (n float64) {
	s.t.Helper()
	families, err := s.gatherer.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["cluster"] == cluster && labels["result"] == result {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
