package security

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	personalGroup   = "personal.security.example.com"
	personalVersion = "/apis/" + personalGroup + "/v1"
	personalNotes   = personalVersion + "/notes"
)

// An aggregatedAPI is an API server behind kube-apiserver that serves v1 of a group.
type aggregatedAPI struct {
	*httptest.Server
	group, port string
}

// A personalAPI is an aggregatedAPI that returns different notes to each user.
type personalAPI struct {
	aggregatedAPI
	requested sync.Map // users who requested notes
}

func newPersonalAPI(t *testing.T) *personalAPI {
	t.Helper()
	p := &personalAPI{}
	response := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
	note := func(user string) string {
		return fmt.Sprintf(`{"kind":"Note","apiVersion":"%s/v1","metadata":{"name":"mine","resourceVersion":"7","uid":"%s"},"owner":%q}`, personalGroup, user, user)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(personalVersion, func(w http.ResponseWriter, _ *http.Request) {
		response(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+personalGroup+`/v1","resources":[
			{"name":"notes","singularName":"note","namespaced":false,"kind":"Note","verbs":["get","list","watch"]}]}`)
	})
	mux.HandleFunc(personalNotes+"/mine", func(w http.ResponseWriter, r *http.Request) {
		response(w, note(p.user(r)))
	})
	mux.HandleFunc(personalNotes, func(w http.ResponseWriter, r *http.Request) {
		user := p.user(r)
		if r.URL.Query().Get("watch") == "" {
			response(w, fmt.Sprintf(`{"kind":"NoteList","apiVersion":"%s/v1","metadata":{"resourceVersion":"7"},"items":[%s]}`, personalGroup, note(user)))
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			http.Error(w, "unsupported", http.StatusUnprocessableEntity)
			return
		}
		response(w, fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n", note(user)))
	})
	p.aggregatedAPI = newAggregatedAPI(t, personalGroup, mux)
	return p
}

func newAggregatedAPI(t *testing.T, group string, h http.Handler) aggregatedAPI {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	return aggregatedAPI{Server: server, group: group, port: port}
}

func (p *personalAPI) user(r *http.Request) string {
	user := r.Header.Get("X-Remote-User")
	p.requested.Store(user, true)
	return user
}

// create creates an object at kube-apiserver, and deletes it at the end of the test.
func (p *aggregatedAPI) create(ctx context.Context, t *testing.T, path, name, rest string) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q},%s}`, name, rest)
	if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", path, body); a.status != 201 {
		t.Fatalf("%s: %s", path, a)
	}
	t.Cleanup(func() { do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", path+"/"+name, "") })
}

// place creates what the registration of p needs: permissions for everybody, and a Service that
// points to this machine. kube-apiserver retries a registered server only after half a minute if it
// did not yet know the Service, so tests start the gateway between place and register.
func (p *aggregatedAPI) place(ctx context.Context, t *testing.T) {
	t.Helper()
	p.create(ctx, t, "/api/v1/namespaces/default/services", "aggregated-"+p.port,
		fmt.Sprintf(`"spec":{"type":"ExternalName","externalName":"localhost","ports":[{"port":%s}]}`, p.port))
	p.create(ctx, t, "/apis/rbac.authorization.k8s.io/v1/clusterroles", p.group,
		fmt.Sprintf(`"rules":[{"apiGroups":[%q],"resources":["*"],"verbs":["*"]}]`, p.group))
	p.create(ctx, t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", p.group,
		fmt.Sprintf(`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},
		"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}]`, p.group))
}

// register registers p at kube-apiserver and waits until g knows the resource at path. From then on
// the gateway could cache it.
func (p *aggregatedAPI) register(ctx context.Context, t *testing.T, g *realkube.Gateway, path string) {
	t.Helper()
	p.create(ctx, t, "/apis/apiregistration.k8s.io/v1/apiservices", "v1."+p.group,
		fmt.Sprintf(`"spec":{"group":%q,"version":"v1","groupPriorityMinimum":1500,"versionPriority":20,
		"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"aggregated-%s","port":%s}}`, p.group, p.port, p.port))
	eventually(ctx, t, func() error {
		if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", path, ""); a.status != 200 {
			return fmt.Errorf("%s", a)
		}
		m, err := g.Metrics(ctx)
		if err == nil && m.Sum("kubeweir_requests_total", map[string]string{"group": p.group, "resource": path[strings.LastIndex(path, "/")+1:]}) == 0 {
			err = errors.New("the gateway has not discovered the resource")
		}
		return err
	})
}

// personalReads are reads that kubeweir serves itself if it may.
var personalReads = []string{
	personalNotes, personalNotes + "?resourceVersion=0", personalNotes + "/mine", personalNotes + "/mine?resourceVersion=0",
	personalNotes + "?watch=1&resourceVersion=0&timeoutSeconds=1", personalNotes + "?watch=1&timeoutSeconds=1",
}

// TestAggregatedResponsesAreNotShared checks that the response of an aggregated API server to one
// user is never sent to another user, and that users never get its response to the gateway (S9).
func TestAggregatedResponsesAreNotShared(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	personal := newPersonalAPI(t)
	personal.place(ctx, t)
	g := startGateway(t)
	personal.register(ctx, t, g, personalNotes)
	users := []string{realkube.Alice, realkube.Bob, realkube.Jane}
	var all sync.WaitGroup
	for range 3 { // concurrently, so that requests could be coalesced
		for _, path := range personalReads {
			for _, user := range users {
				all.Go(func() {
					a := do(ctx, t, g.URL(), kube.Token(user), "GET", path, "")
					if a.status != 200 || !strings.Contains(a.body, fmt.Sprintf(`"owner":%q`, user)) {
						t.Errorf("%s as %s: %s", path, user, a)
					}
				})
			}
		}
		all.Wait()
	}
	if _, requested := personal.requested.Load(realkube.GatewayUser); requested {
		t.Error("the gateway requested notes with its own identity")
	}
}

// TestConfiguredAggregatedGroupIsCached checks that an aggregated group is cached if the
// configuration says so. The operator thereby asserts that the API server responds alike to all
// users.
func TestConfiguredAggregatedGroupIsCached(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	personal := newPersonalAPI(t)
	personal.place(ctx, t)
	g := startGateway(t, "--cache-aggregated-groups="+personalGroup)
	personal.register(ctx, t, g, personalNotes)
	eventually(ctx, t, func() error {
		a := do(ctx, t, g.URL(), kube.Token(realkube.Alice), "GET", personalNotes+"?resourceVersion=0", "")
		if a.status != 200 || !strings.Contains(a.body, fmt.Sprintf(`"owner":%q`, realkube.GatewayUser)) {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}
