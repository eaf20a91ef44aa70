package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

var writeStateTable = flag.Bool("e2e.state.write", false, "write the table of docs/warm-start.md from what TestStateTable sees")

// Sources of reads and watches after a start.
const (
	fromState = "from the checkpoint"
	fromList  = "from a new list"
	goOn      = "continue"
	sentOn    = "continue, from the cluster's events"
	// theirs is not checked: versions of one cluster are meaningless in another.
	theirs = "as that cluster responds"
)

// A stateCase is an event that happens to a gateway with a state directory, or to the directory.
type stateCase struct {
	what   string
	sealed bool // the saved state is encrypted
	// happens makes the event happen, or changes how the gateway is started.
	happens func(ctx context.Context, t *testing.T, s *stateScene)
	// reads and watches say what clients get after the start. Both are empty if the gateway exits.
	reads, watches string
	// says are parts, in order, of the line about the event in the log or on standard error. It is
	// empty if there is no such line.
	messages []string
}

var stateCases = []stateCase{
	{what: "SIGTERM", reads: fromState, watches: goOn, happens: runAndEnd(func(ctx context.Context, t *testing.T, g *realkube.Gateway) {
		must(t, g.Stop(ctx))
	})},
	{what: "kill -9", reads: fromState, watches: goOn, happens: runAndEnd(func(_ context.Context, _ *testing.T, g *realkube.Gateway) { g.Kill() })},
	{what: "disk full during a save", reads: fromState, watches: goOn, happens: fullDisk,
		messages: []string{"checkpoint failed", "writing the state: "}},
	{what: "last bytes of a file missing", reads: fromState, watches: goOn, happens: changeImage(func(b []byte) []byte { return b[:len(b)-7] })},
	{what: "half of a file missing", reads: fromList, watches: sentOn, happens: changeImage(func(b []byte) []byte { return b[:len(b)/4] }),
		messages: []string{"checkpoint dropped, relisting", "it was never complete"}},
	{what: "empty file", reads: fromList, watches: sentOn, happens: changeImage(func([]byte) []byte { return nil }),
		messages: []string{"checkpoint dropped, relisting", "damaged"}},
	{what: "one bit of a file changed", reads: fromList, watches: sentOn, happens: changeImage(func(b []byte) []byte {
		b[len(b)/4] ^= 4
		return b
	}), messages: []string{"checkpoint dropped, relisting", "it was never complete"}},
	{what: "marker file of the directory damaged", reads: fromList, watches: sentOn, happens: changeMarker("x"),
		messages: []string{"state dropped: damaged"}},
	{what: "state of a newer format", reads: fromList, watches: sentOn, happens: changeMarker(`{"format":2}`),
		messages: []string{"state dropped: unknown format", "format=2 known=1"}},
	{what: "state of an older format", reads: fromList, watches: sentOn, happens: changeMarker(`{"format":0}`),
		messages: []string{"state dropped: unknown format", "format=0 known=1"}},
	{what: "another cluster at the same address", reads: fromList, watches: theirs, happens: otherCluster,
		messages: []string{"checkpoint dropped, relisting", "different cluster"}},
	{what: "different `--drop-managed-fields`", reads: fromList, watches: sentOn, happens: withArgs("--drop-managed-fields=configmaps"),
		messages: []string{"checkpoint dropped, relisting", "the resource was ConfigMap"}},
	{what: "state older than `--state-max-age`", reads: fromList, watches: sentOn, happens: grownOld,
		messages: []string{"checkpoint dropped, relisting", "s old"}},
	{what: "key added to an unencrypted state", reads: fromList, watches: sentOn, happens: withKey("other"),
		messages: []string{"state dropped: not encrypted"}},
	{what: "same key", sealed: true, reads: fromState, watches: goOn, happens: withKey("key")},
	{what: "different key", sealed: true, happens: withKey("other"), messages: []string{"is encrypted with a key other than --state-key-file"}},
	{what: "encrypted state without a key", sealed: true, happens: withArgs(), messages: []string{"is encrypted: set --state-key-file, or use another directory"}},
	{what: "directory in use by another process", happens: inUse, messages: []string{"is in use by another process"}},
	{what: "other files in the directory", happens: otherFolder, messages: []string{"contains other files", ": use an empty directory"}},
}

const (
	stateNamespace = "kept-table"
	stateObjects   = 20
	// stateFile is the checkpoint of ConfigMaps in a state directory.
	stateFile = "configmaps.v1.json.image"
)

// A stateScene is how a gateway is started after the event.
type stateScene struct {
	n           int    // number of the case, for names
	keys        string // directory of keys
	dir         string // state directory
	upstream    *rest.Config
	from        uint64 // a version that a client has seen
	changed     string // an object changed after from
	opts        realkube.GatewayOptions
	earlierLogs string // log of earlier gateways
}

// TestStateTable tests every row of the table in docs/warm-start.md: it makes the event happen to a
// gateway with a state directory, and checks the responses and the log.
func TestStateTable(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, stateNamespace)
	keys := t.TempDir()
	for _, name := range []string{"key", "other"} {
		writeKey(t, filepath.Join(keys, name))
	}
	up := direct(t, as(realkube.Admin))
	for i := range stateObjects {
		putConfigMap(ctx, t, up, http.MethodPost, i, noise(4<<10))
	}
	open := keepFolder(ctx, t, up)
	sealed := keepFolder(ctx, t, up, "--state-key-file", filepath.Join(keys, "key"))
	from := putConfigMap(ctx, t, up, http.MethodPut, 1, "what the gateway has to fetch") - 1

	rows := make([]string, len(stateCases))
	t.Run("cases", func(t *testing.T) {
		for i := range stateCases {
			c := &stateCases[i]
			t.Run(c.what, func(t *testing.T) {
				t.Parallel()
				s := &stateScene{n: i, keys: keys, dir: filepath.Join(t.TempDir(), "state"), upstream: kube.AdminConfig(), from: from, changed: "kept-1"}
				base := open
				if c.sealed {
					base = sealed
				}
				must(t, os.CopyFS(s.dir, os.DirFS(base)))
				rows[i] = s.play(ctx, t, c)
			})
		}
	})
	checkStateTable(t, rows)
}

// noise returns incompressible text.
func noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	b := randomBytes(n)
	for i := range b {
		b[i] = letters[b[i]&63]
	}
	return string(b)
}

// putConfigMap writes one of the test's objects and returns its version.
func putConfigMap(ctx context.Context, t *testing.T, c *client, method string, i int, text string) uint64 {
	t.Helper()
	name := fmt.Sprintf("kept-%d", i)
	path := "/api/v1/namespaces/" + stateNamespace + "/configmaps"
	if method == http.MethodPut {
		path += "/" + name
	}
	return written(ctx, t, c, request{method: method, path: path, typ: typeJSON, body: fmt.Sprintf(`{"metadata":{"name":%q},"data":{"text":%q}}`, name, text)})
}

// written sends a write and returns the object's version.
func written(ctx context.Context, t *testing.T, c *client, r request) uint64 {
	t.Helper()
	a, err := c.send(ctx, r)
	must(t, err)
	if a.status >= 300 {
		t.Fatalf("%s: %s", r, a)
	}
	var object metav1.PartialObjectMetadata
	must(t, json.Unmarshal([]byte(a.body), &object))
	rv, err := api.ParseResourceVersion(object.ResourceVersion)
	must(t, err)
	return rv
}

const allConfigMaps = "/api/v1/configmaps"

// keepFolder returns a state directory that a gateway left after SIGTERM, with ConfigMaps and later
// changes.
func keepFolder(ctx context.Context, t *testing.T, up *client, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	g := startGateway(t, append([]string{"--shutdown-drain=1s", "--state-dir", dir}, args...)...)
	gw := through(t, g, as(realkube.Admin))
	gw.get(ctx, t, allConfigMaps+"?resourceVersion=0", typeJSON)
	eventually(ctx, t, time.Minute, func() error {
		_, err := os.Stat(filepath.Join(dir, stateFile))
		return err
	})
	rv := putConfigMap(ctx, t, up, http.MethodPut, 0, noise(4<<10))
	if a := gw.get(ctx, t, fmt.Sprintf("%s?resourceVersion=%d", allConfigMaps, rv), typeJSON); a.status != http.StatusOK {
		t.Fatal(a)
	}
	must(t, g.Stop(ctx))
	return dir
}

// play runs a case: it makes the event happen, starts the gateway and checks it. It returns the row
// of the table.
func (s *stateScene) play(ctx context.Context, t *testing.T, c *stateCase) string {
	t.Helper()
	s.opts.Path, s.opts.ExtraArgs = bed.Program, []string{"--shutdown-drain=1s"}
	c.happens(ctx, t, s)
	s.opts.ExtraArgs = append(s.opts.ExtraArgs, "--state-dir", s.dir)
	if c.reads == "" {
		g, err := realkube.StartGatewayWith(ctx, kube, s.opts)
		if err == nil {
			g.Close()
			t.Fatal("the gateway started, want an error")
		}
		if line := lineWith(err.Error(), c.messages); line == "" || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("the error does not contain %q: %v", c.messages, err)
		}
		return c.row("none: the gateway exits with code 1", "")
	}
	g := bed.StartGateway(t, s.opts)
	gw := through(t, g, as(realkube.Admin))
	if err := s.sameObjects(ctx, g); err != nil {
		t.Error(err)
	}
	log := g.Log()
	reads := fromList
	if lineWith(log, []string{"collection loaded from its checkpoint, unconfirmed", "resource=configmaps"}) != "" && lineWith(log, []string{"dropped", stateFile[:9]}) == "" {
		reads = fromState
	}
	watches := theirs
	if c.watches != theirs {
		watches = s.watch(ctx, t, g, gw)
	}
	if reads != c.reads || watches != c.watches {
		t.Errorf("reads: %s, watches: %s; want %s, %s", reads, watches, c.reads, c.watches)
	}
	log = s.earlierLogs + g.Log()
	if len(c.messages) > 0 && lineWith(log, c.messages) == "" {
		t.Errorf("the log does not contain %q", c.messages)
	}
	if line := lineWith(log, []string{"dropped"}) + lineWith(log, []string{"checkpoint failed"}) + lineWith(log, []string{"not kept"}); len(c.messages) == 0 && line != "" {
		t.Errorf("unexpected log line %q", line)
	}
	return c.row(reads, watches)
}

// sameObjects checks that the first response has the same objects as the cluster.
func (s *stateScene) sameObjects(ctx context.Context, g *realkube.Gateway) error {
	versions := func(cfg *rest.Config, query string) (map[string]string, error) {
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, err
		}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/namespaces/"+stateNamespace+"/configmaps"+query, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s %.300s %w", resp.Status, b, err)
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(b, &list); err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, o := range list.Items {
			if !strings.HasPrefix(o.Name, "own-") {
				out[o.Name] = o.ResourceVersion
			}
		}
		return out, nil
	}
	got, err := versions(g.AdminConfig(), "?resourceVersion=0")
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	want, err := versions(s.upstream, "")
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if len(got) != len(want) {
		return fmt.Errorf("the gateway has %d objects, the cluster %d", len(got), len(want))
	}
	for name, rv := range want {
		if got[name] != rv {
			return fmt.Errorf("%s has version %q, in the cluster %q", name, got[name], rv)
		}
	}
	return nil
}

// watch resumes a watch from an earlier version and returns how the gateway serves it.
func (s *stateScene) watch(ctx context.Context, t *testing.T, g *realkube.Gateway, gw *client) string {
	t.Helper()
	path := fmt.Sprintf("/api/v1/namespaces/%s/configmaps?watch=true&resourceVersion=%d", stateNamespace, s.from)
	w := gw.mustWatch(ctx, t, request{path: path, accept: typeJSON}, s.from, false)
	eventually(ctx, t, time.Minute, func() error {
		if status := w.status(); status != nil || !w.has(api.Modified, objectKey(stateNamespace, s.changed)) {
			return fmt.Errorf("the watch from version %d has not received the change: %v, %v", s.from, w.seen().Events, status)
		}
		return nil
	})
	m, err := g.Metrics(ctx)
	must(t, err)
	switch {
	case m.Sum("kubeweir_forwarded_reads_total", map[string]string{"reason": "history"}) > 0:
		return "forwarded"
	case m.Sum("kubeweir_cache_backfills_total", map[string]string{"result": "done"}) > 0:
		return sentOn
	}
	return goOn
}

// lineWith returns the first line that contains all parts in order, or "".
func lineWith(text string, parts []string) string {
	for line := range strings.Lines(text) {
		rest, ok := line, true
		for _, part := range parts {
			if _, rest, ok = strings.Cut(rest, part); !ok {
				break
			}
		}
		if ok {
			return line
		}
	}
	return ""
}

// row returns the case's row of the table.
func (c *stateCase) row(reads, watches string) string {
	messages := ""
	if len(c.messages) > 0 {
		messages = "`" + strings.Join(c.messages, "…") + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", c.what, reads, watches, messages)
}

const stateTableBegin, stateTableEnd = "<!-- begin of the table that go test ./test/e2e -run TestStateTable -e2e.state.write writes -->\n", "<!-- end -->\n"

// checkStateTable compares the table in the document with the rows, or writes it.
func checkStateTable(t *testing.T, rows []string) {
	t.Helper()
	if slices.Contains(rows, "") {
		return // some cases were skipped or failed
	}
	root, err := realkube.RepoRoot()
	must(t, err)
	path := filepath.Join(root, "docs", "warm-start.md")
	b, err := os.ReadFile(path)
	must(t, err)
	before, rest, ok := strings.Cut(string(b), stateTableBegin)
	had, after, found := strings.Cut(rest, stateTableEnd)
	if !ok || !found {
		t.Fatalf("%s: the markers of the table are missing", path)
	}
	table := "\n| event | reads after the start | resumed watches | log |\n|---|---|---|---|\n" + strings.Join(rows, "") + "\n"
	switch {
	case had == table:
	case *writeStateTable && !t.Failed():
		must(t, os.WriteFile(path, []byte(before+stateTableBegin+table+stateTableEnd+after), 0o644))
	default:
		t.Errorf("the table in %s is outdated; -e2e.state.write writes\n%s", path, table)
	}
}
