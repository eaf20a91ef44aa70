package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Step is one request of a scenario. Placeholders in its path, headers and body are {ns} for the
// namespace, and {rv:NAME}, {uid:NAME} and {name:NAME} for the metadata in the response to the step
// with that name.
type Step struct {
	Name string // "" if no later step refers to it
	Request
	As       string
	Want     int // the oracle's status; the default is 200
	WantText []string
	// IgnoreBody compares only the status and headers.
	IgnoreBody bool
	// Timeout is how long to retry the request until it has the wanted status: new definitions and
	// permissions take effect asynchronously.
	Timeout time.Duration
}

// A Scenario is a sequence of requests that write. It runs once through each server, in its own
// namespace. The responses must be equal except for what servers generate: versions, UIDs, times
// and random suffixes, which must change, and stay the same, where they do at the oracle.
type Scenario struct {
	Name  string
	Steps []Step
}

// vars are the values of placeholders.
type vars map[string]string

var placeholder = regexp.MustCompile(`\{(ns|(?:rv|uid|name):[a-z0-9-]+)\}`)

func (v vars) fill(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string { return v[p[1:len(p)-1]] })
}

func (v vars) request(r Request) Request {
	r.Path, r.Body = v.fill(r.Path), v.fill(r.Body)
	if r.Header != nil {
		h := make(map[string]string, len(r.Header))
		for k, s := range r.Header {
			h[k] = v.fill(s)
		}
		r.Header = h
	}
	return r
}

// learn stores the metadata of a response.
func (v vars) learn(step string, body []byte) {
	var o struct {
		Metadata struct{ Name, UID, ResourceVersion string } `json:"metadata"`
	}
	if step == "" || json.Unmarshal(body, &o) != nil {
		return
	}
	v["rv:"+step], v["uid:"+step], v["name:"+step] = o.Metadata.ResourceVersion, o.Metadata.UID, o.Metadata.Name
}

// play sends the steps in order and returns the responses. The administrator creates the namespace
// first.
func play(ctx context.Context, env *Env, server *Target, v vars, steps []Step) ([]Response, error) {
	create := Step{Request: Request{Method: "POST", Path: "/api/v1/namespaces", Type: typeJSON,
		Body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}"}}`}}
	if v["created"] == "" {
		v["created"] = "yes"
		if r, err := send(ctx, env, server, v, create); err != nil || r.Status != http.StatusCreated {
			return nil, fmt.Errorf("create namespace %s: %d %s (%w)", v["ns"], r.Status, r.Body, err)
		}
	}
	var out []Response
	for _, s := range steps {
		r, err := send(ctx, env, server, v, s)
		if err != nil {
			return out, fmt.Errorf("step %s %s: %w", s.Method, s.Path, err)
		}
		v.learn(s.Name, r.Body)
		out = append(out, r)
	}
	return out, nil
}

func send(ctx context.Context, env *Env, server *Target, v vars, s Step) (Response, error) {
	as := s.As
	if as == "" {
		as = admin
	}
	var r Response
	deadline := time.Now().Add(s.Timeout)
	err := poll(ctx, func() (done bool, err error) {
		r, err = server.Send(ctx, v.request(s.Request), env.Users[as])
		return r.Status == s.want() || time.Now().After(deadline), err
	})
	return r, err
}

func (s Step) want() int {
	if s.Want == 0 {
		return http.StatusOK
	}
	return s.Want
}

// RunScenarios runs scenarios, each as a subtest, through both servers and compares them. Both must
// write to the same store, or to stores with the same seed. The names of namespaces start with
// prefix, which must be unused in the store.
func RunScenarios(ctx context.Context, t *testing.T, env *Env, oracle, target *Target, prefix string, scenarios []Scenario) {
	t.Helper()
	for i, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			// Names of the same length keep the lengths in responses equal.
			atOracle := vars{"ns": fmt.Sprintf("%s-%d-a", prefix, i)}
			atTarget := vars{"ns": fmt.Sprintf("%s-%d-b", prefix, i)}
			want, err := play(ctx, env, oracle, atOracle, s.Steps)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range want {
				step := s.Steps[i]
				if step.Want != anyStatus && r.Status != step.want() {
					t.Fatalf("step %d, %s %s: the oracle returns %d, want %d: %.500s", i, step.Method, step.Path, r.Status, step.want(), r.Body)
				}
				for _, text := range step.WantText {
					if !bytes.Contains(r.Body, []byte(text)) {
						t.Fatalf("step %d, %s %s: the oracle's response does not contain %q: %.500s", i, step.Method, step.Path, text, r.Body)
					}
				}
			}
			got, err := play(ctx, env, target, atTarget, s.Steps)
			if err != nil {
				t.Fatal(err)
			}
			compareScenario(t, s, target, newInvented(atOracle["ns"]), newInvented(atTarget["ns"]), want, got)
		})
	}
}

func compareScenario(t *testing.T, s Scenario, target *Target, atOracle, atTarget *invented, want, got []Response) {
	for i := range want {
		step := s.Steps[i]
		var diffs []string
		if want[i].Status != got[i].Status {
			diffs = append(diffs, fmt.Sprintf("status: %d, want %d: %.300q", got[i].Status, want[i].Status, got[i].Body))
		}
		if strings.HasPrefix(step.Path, "/openapi/v3") {
			// The documents must be equal; their hashes may differ.
			want[i].Body, got[i].Body = documentHash.ReplaceAll(want[i].Body, []byte("HASH")), documentHash.ReplaceAll(got[i].Body, []byte("HASH"))
			want[i].Header.Del("Etag")
			got[i].Header.Del("Etag")
		}
		if strings.HasPrefix(step.Path, customGroup) {
			// kube-apiserver lists the resources of a group in the random order of a map.
			want[i].Body, got[i].Body = sortResources(want[i].Body), sortResources(got[i].Body)
		}
		diffs = append(diffs, headerDifferences(
			atOracle.header(want[i].Header), atTarget.header(got[i].Header))...)
		switch {
		case target.HasPriority: // with objects of its own
			diffs = append(diffs, priorityDifferences(atOracle.priority(want[i].Header), atTarget.priority(got[i].Header))...)
		case step.Method != "": // only forwarded requests pass priority and fairness
			diffs = append(diffs, priorityDifferences(want[i].Header, got[i].Header)...)
		}
		if d := diffBytes(atOracle.mask(want[i].Body), atTarget.mask(got[i].Body)); d != "" && !step.IgnoreBody {
			diffs = append(diffs, "body: "+d)
		}
		if len(diffs) > 0 {
			t.Errorf("step %d, %s %s:\n%s", i, step.Method, step.Path, lines(diffs))
		}
	}
}

var priorityHeaders = []string{"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

func priorityDifferences(want, got http.Header) []string {
	var out []string
	for _, name := range priorityHeaders {
		if w, g := want.Values(name), got.Values(name); !slices.Equal(w, g) {
			out = append(out, fmt.Sprintf("header %s: %q, want %q", name, g, w))
		}
	}
	return out
}

// invented masks generated values but preserves their identity: the namespace is always "NS", the
// first UID is "UID1" and so on, likewise for versions. Times are masked without identity.
type invented struct {
	namespace string
	seen      map[string]map[string]int
}

func newInvented(namespace string) *invented {
	return &invented{namespace: namespace, seen: make(map[string]map[string]int)}
}

var (
	anyUID       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyVersionOf = regexp.MustCompile(`"?resourceVersion\\*"?:\s*\\*"[0-9]+\\*"|in record \([0-9]+\)`)
	anyTime      = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z`)
	anySuffix    = regexp.MustCompile(`generated-[a-z0-9]{5}`)
	anyClusterIP = regexp.MustCompile(`10\.0\.0\.[0-9]+`)
	anyNodePort  = regexp.MustCompile(`(?:nodePort|healthCheckNodePort)"?:\s*[0-9]+|(?:^|[:,])3[0-2][0-9]{3}/TCP`)
	documentHash = regexp.MustCompile(`hash=[0-9A-F]{128}`)
	anyServer    = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
	isList       = regexp.MustCompile(`"kind":"([A-Za-z]*List|Table)"`)
	anyTypeHash  = regexp.MustCompile(`"storageVersionHash":"[^"]+"`)
	anyAge       = regexp.MustCompile(ages)
)

func (m *invented) mask(body []byte) []byte {
	if inner, ok := bytes.CutPrefix(body, protoMagic); ok {
		body = append(bytes.Clone(protoMagic), m.proto(inner)...)
	}
	if isList.Match(body) {
		body = listMetadata(body, AnyVersion) // the version of a list depends on other writes to the store
	}
	if bytes.Contains(body, []byte(m.namespace)) {
		body = anyTypeHash.ReplaceAll(body, []byte("HASH")) // it depends on the name of the group
	}
	body = maskBookmarks(body)
	body = sortManagers(body)
	body = bytes.ReplaceAll(body, []byte(m.namespace), []byte("NS"))
	body = anyServer.ReplaceAll(body, []byte("SERVER"))
	body = m.number(body, anyUID, "UID")
	body = m.number(body, anyVersionOf, "VERSION")
	body = m.number(body, anySuffix, "SUFFIX")
	body = anyClusterIP.ReplaceAll(body, []byte("IP")) // chosen at random, and reused once free
	body = anyNodePort.ReplaceAll(body, []byte("PORT"))
	if bytes.Contains(body, []byte(`"kind":"Table"`)) {
		body = anyAge.ReplaceAll(body, []byte("AGE"))
	}
	return anyTime.ReplaceAll(body, []byte("TIME"))
}

// maskBookmarks masks the versions of bookmarks in a JSON watch, because another write to the store
// may precede a bookmark at one server only. It does not mask a version lower than that of an
// earlier event, so that the comparison fails.
func maskBookmarks(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"type":"BOOKMARK"`)) {
		return body
	}
	var out []byte
	var last uint64
	for line := range bytes.Lines(body) {
		frame, err := jsonFrame(line)
		if err != nil {
			return body
		}
		version, err := frame.version()
		if err == nil && frame.Type == bookmark && version >= last {
			line = frame.compared()
		}
		last = max(last, version)
		out = append(out, line...)
	}
	return out
}

// proto masks versions and times in the metadata of a protobuf object.
func (m *invented) proto(object []byte) []byte {
	for _, hide := range []struct {
		path []protowire.Number
		f    func([]byte) []byte
	}{
		{[]protowire.Number{unknownRaw, objectMeta, objectVersion}, func(b []byte) []byte {
			return m.number(fmt.Appendf(nil, `resourceVersion: "%s"`, b), anyVersionOf, "VERSION")
		}},
		{[]protowire.Number{unknownRaw, objectMeta, objectCreated}, func([]byte) []byte { return []byte("TIME") }},
		{[]protowire.Number{unknownRaw, objectMeta, objectManaged, managedTime}, func([]byte) []byte { return []byte("TIME") }},
	} {
		masked, err := rewrite(object, hide.path, hide.f)
		if err != nil {
			return object // not an object: compare it unmasked
		}
		object = masked
	}
	return object
}

func (m *invented) number(body []byte, pattern *regexp.Regexp, as string) []byte {
	if m.seen[as] == nil {
		m.seen[as] = make(map[string]int)
	}
	return pattern.ReplaceAllFunc(body, func(b []byte) []byte {
		n, ok := m.seen[as][string(b)]
		if !ok {
			n = len(m.seen[as]) + 1
			m.seen[as][string(b)] = n
		}
		return fmt.Appendf(nil, "%s%d", as, n)
	})
}

// priority masks the headers of priority and fairness.
func (m *invented) priority(h http.Header) http.Header {
	out := make(http.Header)
	for _, name := range priorityHeaders {
		for _, v := range h.Values(name) {
			out.Add(name, string(m.mask([]byte(v))))
		}
	}
	return out
}

// header masks the headers to compare, without those of priority and fairness.
func (m *invented) header(h http.Header) http.Header {
	out := h.Clone()
	for _, name := range priorityHeaders {
		out.Del(name)
	}
	for _, values := range out {
		for i := range values {
			values[i] = string(m.mask([]byte(values[i])))
		}
	}
	return out
}

// customGroup is the discovery document of the seed's custom resources.
const customGroup = "/apis/conf.example.com/v1"

// sortResources sorts the resources of a discovery document, and leaves all other bytes unchanged.
func sortResources(body []byte) []byte {
	var list struct {
		Kind      string          `json:"kind"`
		Resources json.RawMessage `json:"resources"`
	}
	var resources []json.RawMessage
	if json.Unmarshal(body, &list) != nil || list.Kind != "APIResourceList" || json.Unmarshal(list.Resources, &resources) != nil {
		return body
	}
	slices.SortFunc(resources, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	sorted := []byte("[")
	for i, r := range resources {
		if i > 0 {
			sorted = append(sorted, ',')
		}
		sorted = append(sorted, r...)
	}
	return bytes.Replace(body, list.Resources, append(sorted, ']'), 1)
}
