package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/proxy/console"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

func number(v float64) *float64 { return &v }

// topFixture returns the documents of a gateway.
func topFixture() *topFrame {
	return &topFrame{
		Session: console.Session{Mode: "gateway", Version: "v1.2.3", Pages: []string{"overview"}},
		Overview: console.Overview{
			At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Checks: []console.Check{{Name: "ping", OK: true}, {Name: "feeds", Reason: "pods is stale"}},
			Requests: console.Requests{Figure: console.Figure{Total: 1000, Rate: number(123.4)}, BySource: map[string]console.Figure{"cached": {Rate: number(100)}, "forwarded": {Rate: number(1.5)}}},
			Reads:    console.Reads{HitShare: number(.95), HitShareRecent: number(.995)},
			Bytes:    console.Traffic{Sent: console.Figure{Rate: number(5 << 20)}},
			Saved:    console.Saved{Requests: 123456, Bytes: 3 << 30, CPUSeconds: 90},
			Watches:  console.WatchFigures{Open: 10, EventsIn: console.Figure{Rate: number(5)}, EventsOut: console.Figure{Rate: number(50)}},
			Lag:      console.Lag{Seconds: number(.42), Collection: "pods"}, Memory: console.Memory{Resident: 64 << 20}, CPU: console.CPU{Cores: number(.25)},
			Collections: console.CollectionsSummary{Total: 2, Objects: 15005, Bytes: 9 << 20},
		},
		Clients: console.Clients{Users: []console.Client{{Row: usage.Row{Name: "jane\x1b[2J", Cost: usage.Cost{Requests: 12, Bytes: 2048, UpstreamRequests: 1, UpstreamBytes: 100}, CPUSeconds: .25, Watches: 2}}}},
		Collections: console.Collections{Collections: []console.Collection{
			{CollectionName: console.CollectionName{Group: "apps", Resource: "deployments", Encoding: "json"}, State: "synced", Objects: 5, Bytes: 5000, Age: number(.1), Watchers: 9, EventsIn: console.Figure{Rate: number(2)}, History: console.History{Seconds: 60}},
			{CollectionName: console.CollectionName{Resource: "pods", Encoding: "protobuf"}, State: "stale", Error: "no answer", Objects: 15000, Bytes: 9 << 20, Age: number(61)},
		}},
	}
}

const topGolden = `kubeweir gateway v1.2.3 at 127.0.0.1:9444: NOT READY  03:04:05 UTC
  ! feeds: pods is stale
requests  123/s  cached 100  revalidated -  coalesced -  forwarded 1.50  errors -/s
cache     hit ratio 99.5 %, 95.0 % since start  sent 5.0 MiB/s  received -/s
watches   10 open, 0 lagging  events 5.00/s in, 50/s out  max feed lag 400ms (pods)
saved     about 123.5k upstream requests, 3.0 GiB, 1m30s of kube-apiserver CPU
memory    64.0 MiB  CPU 0.25 cores  collections 2 with 15.0k objects, 9.0 MiB

CLIENT    REQUESTS     SENT    CPU  WATCHES  UPSTREAM  RECEIVED
jane?[2J        12  2.0 KiB  250ms        2         1     100 B

COLLECTION        ENCODING   STATE  OBJECTS    BYTES    LAG  WATCHERS  EVENTS/S  HISTORY
pods              protobuf  stale !    15.0k  9.0 MiB   1m1s         0         -       0s
deployments.apps      json   synced        5  4.9 KiB  100ms         9      2.00     1m0s
`

func topOf(sort string) *topClient {
	return &topClient{topOptions: &topOptions{sort: sort}, base: &url.URL{Host: "127.0.0.1:9444"}}
}

func TestTopRender(t *testing.T) {
	if got := topOf("bytes").render(topFixture(), 120, 0); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(topGolden), " ") || strings.Contains(got, "\x1b") {
		t.Errorf("got\n%s\nwant\n%s", got, topGolden)
	}
	if got := topOf("watchers").render(topFixture(), 120, 0); strings.Index(got, "deployments.apps") > strings.Index(got, "pods   ") {
		t.Errorf("by watchers:\n%s", got)
	}
	for _, width := range []int{1, 20, 40, 80} {
		for _, height := range []int{1, 5, 12, 24} {
			text := topOf("name").render(topFixture(), width, height)
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) > height {
				t.Errorf("%d x %d: %d lines", width, height, len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("%d x %d: a line of %d", width, height, n)
				}
			}
		}
	}
}

func TestTopAgainstServers(t *testing.T) {
	frame := topFixture()
	documents := map[string]any{"session": frame.Session, "overview": frame.Overview, "clients": frame.Clients, "collections": frame.Collections}
	serve := func(token string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
				w.WriteHeader(http.StatusUnauthorized)
				_ = json.NewEncoder(w).Encode(console.Failure{Error: "this is not the token"})
				return
			}
			_ = json.NewEncoder(w).Encode(documents[strings.TrimPrefix(r.URL.Path, "/console/api/")])
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-token-of-a-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		handler        http.HandlerFunc
		args           []string
		code           int
		stdout, stderr string
	}{
		"once":          {serve(""), []string{"--once"}, 0, "kubeweir gateway v1.2.3 at", ""},
		"json":          {serve(""), []string{"-o", "json"}, 0, `"hitShareRecent": 0.995`, ""},
		"token":         {serve("a-token-of-a-test"), []string{"--token-file", file}, 0, "kubeweir gateway", ""},
		"no token":      {serve("a-token-of-a-test"), nil, 1, "", "requires a token: set --token-file"},
		"wrong token":   {serve("another-token-of-a-test"), []string{"--token-file", file}, 1, "", "rejects the request: this is not the token"},
		"a web page":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, nil, 1, "", "is not a kubeweir admin listener with --console"},
		"bad sort":      {serve(""), []string{"--sort", "none"}, 2, "", `--sort must be one of name, objects, bytes, watchers, events, age, not "none"`},
		"bad interval":  {serve(""), []string{"--interval", "1ms"}, 2, "", "--interval must be at least 500ms, not 1ms"},
		"no token file": {serve(""), []string{"--token-file", file + "x"}, 2, "", "--token-file: "},
		"bad output":    {serve(""), []string{"-o", "xml"}, 2, "", "--output must be one of table, json"},
		"an argument":   {serve(""), []string{"pods"}, 2, "", `unexpected argument "pods"`},
		"another's json": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("[]"))
		}, nil, 1, "", "is not a console that this kubeweir supports"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			var stdout, stderr bytes.Buffer
			code := command(context.Background(), append([]string{"top", "--admin", s.URL}, c.args...), &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) || strings.Count(stderr.String(), "\n") > 1 {
				t.Errorf("%d\n%s\n%s", code, stdout.String(), stderr.String())
			}
		})
	}
	var stderr bytes.Buffer
	if code := command(context.Background(), []string{"top", "--admin", "http://127.0.0.1:1"}, &stderr, &stderr); code != 1 || !strings.Contains(stderr.String(), "no gateway responds at http://127.0.0.1:1") {
		t.Errorf("nobody: %d %s", code, stderr.String())
	}
}

func TestTopJSONIsSafeForTerminals(t *testing.T) {
	var out bytes.Buffer
	frame := topFixture()
	const name = "jane\x1b[2J\u009b2J\u007fé"
	frame.Clients.Users[0].Name = name
	var again topFrame
	if err := writeJSON(&out, frame); err != nil || json.Unmarshal(out.Bytes(), &again) != nil || again.Clients.Users[0].Name != name {
		t.Errorf("%v: %q", err, again.Clients.Users[0].Name)
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b\u007f") {
		t.Errorf("%q", out.String())
	}
}
