package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A Live case watches both servers while steps write through the oracle. Both servers have the same
// store, so all bytes of the events must be equal.
type Live struct {
	Name string
	// Case is the watch. Placeholders in its path are replaced as in steps. Events are all expected
	// events.
	Case Case
	// Before is written before the watches start, During once both are open.
	Before, During []Step
}

// RunLive runs live cases, each as a subtest in its own namespace, whose name starts with prefix.
func RunLive(ctx context.Context, t *testing.T, env *Env, oracle, target *Target, prefix string, cases []Live) {
	t.Helper()
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			v := vars{"ns": fmt.Sprintf("%s-%d", prefix, i)}
			if err := write(ctx, env, oracle, v, c.Before); err != nil {
				t.Fatal(err)
			}
			watched := c.Case
			watched.Watch = true
			watched.Request = v.request(watched.Request)
			watched = watched.mask(columns).mask(ages)
			responses := make(chan liveResponse, 2)
			for _, server := range []*Target{oracle, target} {
				opened := make(chan struct{})
				go func() {
					a, err := exchange(withOpened(ctx, opened), server, watched, env.Users[watched.as()])
					responses <- liveResponse{server, a, err}
				}()
				select {
				case <-opened:
				case a := <-responses:
					t.Fatalf("%s: the watch did not open: %v %+v", a.server.Name, a.err, a.pages)
				}
			}
			if err := write(ctx, env, oracle, v, c.During); err != nil {
				t.Fatal(err)
			}
			got := make(map[*Target]response, 2)
			for range 2 {
				a := <-responses
				if a.err != nil {
					t.Errorf("%v", a.err)
				}
				got[a.server] = a.response
			}
			if s := surprises(watched, got[oracle]); len(s) > 0 {
				t.Fatalf("the oracle's events contradict the case:\n%s", lines(s))
			}
			if d := differences(watched, got[oracle], got[target]); len(d) > 0 {
				t.Errorf("%s:\n%s", watched.Path, lines(d))
			}
		})
	}
}

// columns matches the column definitions of a Table. kube-apiserver documents that only the first
// event has them, but if two watchers get the same first event, one of them gets them with the
// second event, too. Cases that read history do not mask them.
const columns = `"columnDefinitions":(null|\[.*?\]),"rows"`

// ages matches ages in the cells of a Table, which can differ by a second between the servers.
const ages = `"[0-9]+s"|"<invalid>"`

type liveResponse struct {
	server *Target
	response
	err error
}

func write(ctx context.Context, env *Env, server *Target, v vars, steps []Step) error {
	responses, err := play(ctx, env, server, v, steps)
	if err != nil {
		return err
	}
	for i, r := range responses {
		if r.Status != steps[i].want() {
			return fmt.Errorf("%s %s: %d, want %d: %.500s", steps[i].Method, steps[i].Path, r.Status, steps[i].want(), r.Body)
		}
	}
	return nil
}

type openedKey struct{}

// withOpened returns a context that closes ch once a watch is open: the client has read the header,
// which a server sends when the watch has started, and the initial events, which could otherwise
// include what is written next.
func withOpened(ctx context.Context, ch chan struct{}) context.Context {
	return context.WithValue(ctx, openedKey{}, ch)
}

func reportOpened(ctx context.Context) {
	if ch, ok := ctx.Value(openedKey{}).(chan struct{}); ok {
		close(ch)
	}
}

// LiveCases returns watches of objects while they change.
func LiveCases() []Live {
	const now = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
	since := func(path, query string) string { return path + "?watch=1&resourceVersion={rv:start}" + query }
	start := post(configMaps, named(configMap, "start")).as("start")
	life := []Step{post(configMaps, configMap), merge(configMaps+"/one", `{"data":{"k":"w"}}`), remove(configMaps + "/one")}
	lifeEvents := []string{added, modified, deleted}
	widgetLife := []Step{post(widgets, widget), merge(widgets+"/one", `{"spec":{"color":"blue"}}`), remove(widgets + "/one")}
	podLife := []Step{
		post(pods, onePod), patch(strategicPatch, pods+"/one/status", `{"status":{"phase":"Running"}}`),
		merge(pods+"/one", `{"metadata":{"labels":{"app":"b"}}}`), remove(pods + "/one?gracePeriodSeconds=0"),
	}
	podEvents := []string{added, modified, modified, modified, deleted} // the last change marks the pod as terminating
	return []Live{
		{"live/1 from a version", watch("", since(configMaps, ""), lifeEvents...), []Step{start}, life},
		{"live/1 in all namespaces", watch("", since("/api/v1/configmaps", ""), lifeEvents...), []Step{start}, life},
		{"live/2 from a list's version", watch("", configMaps+"?watch=1&resourceVersion={rv:list}", lifeEvents...), []Step{start, read(configMaps).as("list")}, life},
		{"live/from now on", watch("", configMaps+"?watch=1"+now, lifeEvents...), []Step{start}, life},
		{"live/initial events, then live", watch("", configMaps+"?watch=1", added, added, modified, deleted).initial(1), []Step{start}, life},
		{"live/14 marked, then live", watch("", configMaps+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			added, bookmark, added, modified, deleted).initial(2), []Step{start}, life},
		{"live/protobuf", watch("", since(configMaps, ""), lifeEvents...).accept(typeProto), []Step{start}, life},
		{"live/23 table: later events have no columns", watch("", since(configMaps, ""), lifeEvents...).accept(typeTable), []Step{start}, life},
		{"live/metadata", watch("", since(configMaps, ""), lifeEvents...).accept(typeMeta), []Step{start}, life},
		{"live/protobuf metadata", watch("", since(configMaps, ""), lifeEvents...).accept(typeProtoMeta), []Step{start}, life},
		{"live/WebSocket", socketed(watch("", since(configMaps, ""), lifeEvents...)), []Step{start}, life},
		{"live/custom", watch("", since(widgets, ""), lifeEvents...), []Step{start}, widgetLife},
		{"live/custom table", watch("", since(widgets, ""), lifeEvents...).accept(typeTable), []Step{start}, widgetLife},
		{"live/22 custom protobuf metadata", watch("", since(widgets, ""), lifeEvents...).accept(typeProtoMeta), []Step{start}, widgetLife},
		{"live/custom, another version", watch("", strings.Replace(since(widgets, ""), "/v1/", "/v1beta1/", 1), lifeEvents...), []Step{start}, widgetLife},
		{"live/custom, field selector", watch("", since(widgets, "&fieldSelector=spec.color%3Dred"), added, deleted), []Step{start}, widgetLife},
		{"live/7 custom, entering a field selector", watch("", since(widgets, "&fieldSelector=spec.color%3Dblue"), added, deleted), []Step{start}, widgetLife},
		{"live/6 pod leaves a label selector", watch("", since(pods, "&labelSelector=app%3Da"), added, modified, deleted).contains(`"app":"a"`), []Step{start}, podLife},
		{"live/7 pod enters a label selector", watch("", since(pods, "&labelSelector=app%3Db"), added, modified, deleted), []Step{start}, podLife},
		{"live/6 absence of a label", watch("", since(pods, "&labelSelector=app,app+notin+(b)"), added, modified, deleted), []Step{start}, podLife},
		{"live/56 phase", watch("", since(pods, "&fieldSelector=status.phase%3DPending"), added, deleted), []Step{start}, podLife},
		{"live/56 phase, the other", watch("", since(pods, "&fieldSelector=status.phase%21%3DPending"), added, modified, modified, deleted), []Step{start}, podLife},
		{"live/55 name", watch("", since(pods, "&fieldSelector=metadata.name%3Done"), podEvents...), []Step{start}, append([]Step{post(pods, named(onePod, "two"))}, podLife...)},
		{"live/pods as a table", watch("", since(pods, ""), podEvents...).accept(typeKubectl), []Step{start}, podLife},
		{"live/pods in protobuf", watch("", since(pods, ""), podEvents...).accept(typeProto), []Step{start}, podLife},
		{"live/10 no-op writes are no events", watch("", since(configMaps, ""), lifeEvents...), []Step{start},
			[]Step{life[0], merge(configMaps+"/one", `{"data":{"k":"v"}}`), life[1], merge(configMaps+"/one", `{"data":{"k":"w"}}`), life[2]}},
		{"live/26 finalizers", watch("", since(configMaps, ""), added, modified, deleted), []Step{start}, []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","finalizers":["example.com/x"]}}`),
			remove(configMaps + "/one"), merge(configMaps+"/one", `{"metadata":{"finalizers":null}}`),
		}},
		{"live/32 a collection goes", watch("", since(configMaps, "&labelSelector=app%3Da"), deleted, deleted), []Step{post(configMaps, configMap), start},
			[]Step{remove(configMaps + "?labelSelector=app%3Da")}},
		{"live/other namespaces are not seen", watch("", since(configMaps, ""), lifeEvents...), []Step{start},
			append([]Step{post("/api/v1/namespaces/empty/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"other-"}}`)}, life...)},
		{"live/54 a definition goes", watch("", "/apis/{ns}.example.com/v1/things?watch=1&resourceVersion={rv:thing}", deleted).toEOF(), thingBefore(),
			[]Step{remove("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{ns}.example.com")}},
	}
}

func socketed(c Case) Case {
	c.WebSocket = true
	return c
}

// thingBefore returns steps that create a definition and an object of it.
func thingBefore() []Step {
	crd := post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.{ns}.example.com"},
		"spec":{"group":"{ns}.example.com","scope":"Cluster","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	thing := post("/apis/{ns}.example.com/v1/things", `{"apiVersion":"{ns}.example.com/v1","kind":"Thing","metadata":{"name":"one"}}`).as("thing")
	thing.Timeout = 10 * time.Second
	return []Step{crd, thing}
}
