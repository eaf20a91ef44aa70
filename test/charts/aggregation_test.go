package charts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

const (
	remoteGroup     = "remote.charts.example.com"
	remoteNamespace = "remote-api"
)

// A remoteAPI is an API server outside: it serves notes in v1 of a group and stores only their
// names.
type remoteAPI struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		requested []string // user, method and path of each request for notes
	}
}

func newRemoteAPI(t *testing.T) *remoteAPI {
	t.Helper()
	r := &remoteAPI{}
	mux := http.NewServeMux()
	response := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
	}
	version := "/apis/" + remoteGroup + "/v1"
	response(version, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+remoteGroup+`/v1","resources":[
		{"name":"notes","singularName":"note","namespaced":true,"kind":"Note","verbs":["get","list","create","watch"]}]}`)
	response("/openapi/v3", `{"paths":{"apis/`+remoteGroup+`/v1":{"serverRelativeURL":"/openapi/v3/apis/`+remoteGroup+`/v1?hash=1"}}}`)
	response("/openapi/v3/apis/"+remoteGroup+"/v1", `{"openapi":"3.0.0","info":{"title":"notes","version":"1"},"paths":{}}`)
	response("/openapi/v2", `{"swagger":"2.0","info":{"title":"notes","version":"1"},"paths":{"`+version+`/notes":{"get":{"responses":{"200":{"description":"OK",
		"schema":{"$ref":"#/definitions/com.example.Note"}}}}}},"definitions":{"com.example.Note":{"type":"object"}}}`)
	mux.HandleFunc(version+"/namespaces/", func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.mu.requested = append(r.mu.requested, req.Header.Get("X-Remote-User")+" "+req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case req.URL.Query().Get("watch") != "":
			for i := range 3 {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Note","apiVersion":"%s/v1","metadata":{"name":"n%d","resourceVersion":"%d"}}}`+"\n", remoteGroup, i, i+1)
				w.(http.Flusher).Flush()
			}
		case strings.HasSuffix(req.URL.Path, "/notes/teapot"):
			w.WriteHeader(http.StatusTeapot)
		case req.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.Copy(w, req.Body)
		default:
			_, _ = fmt.Fprintf(w, `{"kind":"NoteList","apiVersion":"%s/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}`, remoteGroup)
		}
	})
	r.Server = httptest.NewTLSServer(mux)
	t.Cleanup(r.Close)
	return r
}

// TestAggregation registers an external API server at each of the servers.
func TestAggregation(t *testing.T) {
	originConfig, err := origin.AdminConfig()
	must(t, err)
	for i, config := range []*rest.Config{kube.AdminConfig(), originConfig} {
		t.Run(serverNames[i], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			testAggregation(ctx, t, config)
		})
	}
}

// registerRemote creates an APIService for r and a Service that points to this machine.
func registerRemote(ctx context.Context, t *testing.T, config *rest.Config, r *remoteAPI) aggregator.Interface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	services, err := aggregator.NewForConfig(config)
	must(t, err)
	address, err := url.Parse(r.URL)
	must(t, err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	must(t, err)
	number := int32(port)
	_, err = clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}, metav1.CreateOptions{})
	must(t, err)
	_, err = clients.CoreV1().Services(remoteNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: number}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = services.ApiregistrationV1().APIServices().Create(ctx, &apiregistration.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + remoteGroup},
		Spec: apiregistration.APIServiceSpec{
			Group: remoteGroup, Version: "v1", GroupPriorityMinimum: 1500, VersionPriority: 20, InsecureSkipTLSVerify: true,
			Service: &apiregistration.ServiceReference{Namespace: remoteNamespace, Name: "notes", Port: &number},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	within(ctx, t, change, "the APIService is available", func() error {
		made, err := services.ApiregistrationV1().APIServices().Get(ctx, "v1."+remoteGroup, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(made.Status.Conditions, func(c apiregistration.APIServiceCondition) bool {
			return c.Type == apiregistration.Available && c.Status == apiregistration.ConditionTrue
		}) {
			err = fmt.Errorf("conditions %+v", made.Status.Conditions)
		}
		return err
	})
	return services
}

func testAggregation(ctx context.Context, t *testing.T, config *rest.Config) {
	r := newRemoteAPI(t)
	services := registerRemote(ctx, t, config, r)
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	do := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		response, err := client.Do(req)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		read, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(read)
	}
	const notes = "/apis/" + remoteGroup + "/v1/namespaces/default/notes"
	within(ctx, t, soon, "notes are served", func() error {
		if status, body := do(http.MethodGet, notes, ""); status != http.StatusOK || !strings.Contains(body, `"NoteList"`) {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if status, body := do(http.MethodPost, notes, `{"kind":"Note"}`); status != http.StatusCreated || body != `{"kind":"Note"}` {
		t.Errorf("create: %d %s", status, body)
	}
	if status, body := do(http.MethodGet, notes+"?watch=true", ""); status != http.StatusOK || strings.Count(body, "ADDED") != 3 {
		t.Errorf("watch: %d %s", status, body)
	}
	if status, _ := do(http.MethodGet, notes+"/teapot", ""); status != http.StatusTeapot {
		t.Errorf("a status of the external server was not passed on: %d", status)
	}
	r.mu.Lock()
	if len(r.mu.requested) < 4 || slices.ContainsFunc(r.mu.requested, func(line string) bool { return strings.HasPrefix(line, " ") }) {
		t.Errorf("received %q", r.mu.requested)
	}
	r.mu.Unlock()
	announced := func(path string) error {
		if status, body := do(http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(body, remoteGroup) {
			return fmt.Errorf("%d %.200s", status, body)
		}
		return nil
	}
	for _, path := range []string{"/apis", "/apis/" + remoteGroup, "/apis/" + remoteGroup + "/v1", "/openapi/v3", "/openapi/v2"} {
		within(ctx, t, change, path+" lists the group", func() error { return announced(path) })
	}

	must(t, services.ApiregistrationV1().APIServices().Delete(ctx, "v1."+remoteGroup, metav1.DeleteOptions{}))
	within(ctx, t, soon, "notes are not served", func() error {
		if status, body := do(http.MethodGet, notes, ""); status != http.StatusNotFound {
			return fmt.Errorf("%d %s", status, body)
		}
		var groups metav1.APIGroupList
		_, body := do(http.MethodGet, "/apis", "")
		if err := json.Unmarshal([]byte(body), &groups); err != nil {
			return err
		}
		if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == remoteGroup }) {
			return fmt.Errorf("the group is listed")
		}
		return nil
	})
}
