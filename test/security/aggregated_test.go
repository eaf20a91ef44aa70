package security

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	personalService = "/apis/apiregistration.k8s.io/v1/apiservices"
)

// A personalAPI is an API server behind kube-apiserver that shows everybody notes of their own.
type personalAPI struct {
	*httptest.Server
	asked sync.Map // users who asked for notes
}

func newPersonalAPI(t *testing.T) *personalAPI {
	t.Helper()
	p := &personalAPI{}
	answer := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
	note := func(user string) string {
		return fmt.Sprintf(`{"kind":"Note","apiVersion":"%s/v1","metadata":{"name":"mine","resourceVersion":"7","uid":"%s"},"owner":%q}`, personalGroup, user, user)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(personalVersion, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+personalGroup+`/v1","resources":[
			{"name":"notes","singularName":"note","namespaced":false,"kind":"Note","verbs":["get","list","watch"]}]}`)
	})
	mux.HandleFunc(personalNotes+"/mine", func(w http.ResponseWriter, r *http.Request) {
		answer(w, note(p.user(r)))
	})
	mux.HandleFunc(personalNotes, func(w http.ResponseWriter, r *http.Request) {
		user := p.user(r)
		if r.URL.Query().Get("watch") == "" {
			answer(w, fmt.Sprintf(`{"kind":"NoteList","apiVersion":"%s/v1","metadata":{"resourceVersion":"7"},"items":[%s]}`, personalGroup, note(user)))
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			http.Error(w, "not known here", http.StatusUnprocessableEntity)
			return
		}
		answer(w, fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n", note(user)))
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *personalAPI) user(r *http.Request) string {
	user := r.Header.Get("X-Remote-User")
	p.asked.Store(user, true)
	return user
}

// register makes p known to kube-apiserver until the test ends, by way of a service that names this machine.
func (p *personalAPI) register(ctx context.Context, t *testing.T) {
	t.Helper()
	address, err := url.Parse(p.URL)
	must(t, err)
	admin := func(method, path, body string) answer {
		return do(ctx, t, kube.URL(), kube.AdminToken(), method, path, body)
	}
	service := fmt.Sprintf(`{"metadata":{"name":"personal"},"spec":{"type":"ExternalName","externalName":"localhost","ports":[{"port":%s}]}}`, address.Port())
	registration := fmt.Sprintf(`{"metadata":{"name":"v1.%s"},"spec":{"group":%q,"version":"v1","groupPriorityMinimum":1500,"versionPriority":20,
		"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"personal","port":%s}}}`, personalGroup, personalGroup, address.Port())
	rules := fmt.Sprintf(`{"metadata":{"name":"personal"},"rules":[{"apiGroups":[%q],"resources":["*"],"verbs":["*"]}]}`, personalGroup)
	binding := `{"metadata":{"name":"personal"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"personal"},
		"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}]}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces/default/services", service}, {"/apis/rbac.authorization.k8s.io/v1/clusterroles", rules},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding}, {personalService, registration},
	} {
		if a := admin("POST", made[0], made[1]); a.status != 201 {
			t.Fatalf("%s: %s", made[0], a)
		}
		var object struct{ Metadata struct{ Name string } }
		must(t, json.Unmarshal([]byte(made[1]), &object))
		t.Cleanup(func() {
			do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", made[0]+"/"+object.Metadata.Name, "")
		})
	}
	eventually(ctx, t, func() error {
		if a := admin("GET", personalNotes, ""); a.status != 200 {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// personalReads are the reads that kubeweir answers itself where it may.
var personalReads = []string{
	personalNotes, personalNotes + "?resourceVersion=0", personalNotes + "/mine", personalNotes + "/mine?resourceVersion=0",
	personalNotes + "?watch=1&resourceVersion=0&timeoutSeconds=1", personalNotes + "?watch=1&timeoutSeconds=1",
}

// What an aggregated API server answers one user is never shown to another, nor what it would answer the gateway (S9).
func TestAggregatedAnswersAreNotShared(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	g := startGateway(t)
	personal := newPersonalAPI(t)
	personal.register(ctx, t)
	discovered(ctx, t, g)
	users := []string{realkube.Alice, realkube.Bob, realkube.Jane}
	var all sync.WaitGroup
	for range 3 { // at the same time, so that they could be joined
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
	if _, asked := personal.asked.Load(realkube.GatewayUser); asked {
		t.Error("the gateway asked for notes itself")
	}
}

// discovered waits until the gateway knows of the notes: from then on it could cache them.
func discovered(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	t.Helper()
	eventually(ctx, t, func() error {
		do(ctx, t, g.URL(), kube.AdminToken(), "GET", personalNotes, "")
		m, err := g.Metrics(ctx)
		if err == nil && m.Sum("kubeweir_requests_total", map[string]string{"group": personalGroup, "resource": "notes"}) == 0 {
			err = fmt.Errorf("no request is labelled with it")
		}
		return err
	})
}

// A group of the configuration is cached, as its operator said that it answers everybody alike.
func TestConfiguredAggregatedGroupIsCached(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	g := startGateway(t, "--cache-aggregated-groups="+personalGroup)
	newPersonalAPI(t).register(ctx, t)
	discovered(ctx, t, g)
	eventually(ctx, t, func() error {
		a := do(ctx, t, g.URL(), kube.Token(realkube.Alice), "GET", personalNotes+"?resourceVersion=0", "")
		if a.status != 200 || !strings.Contains(a.body, fmt.Sprintf(`"owner":%q`, realkube.GatewayUser)) {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}
