package visible

import (
	"context"
	"crypto/tls"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// cases returns the number of requests to compare.
func cases() int { return soak.Cases(200, 5000) }

// casesPerState is the number of requests to compare before permissions change.
const casesPerState = 25

// rules is the gateway's configuration.
const rules = `rules:
- groups: [screens]
  view: redacted
- groups: [visible]
  visibleLists: true
  consistency: session
`

//go:embed testdata/widgets.yaml
var widgetsYAML []byte

// A user is a user with changing permissions.
type user struct {
	name   string
	groups []string
}

var users = []user{
	{"ann", []string{"visible", "team-a"}},
	{"ben", []string{"visible", "team-a", "team-b"}},
	{"cat", []string{"visible"}},
	{"dan", []string{"visible", "team-b"}},
	{"fay", []string{"visible", "team-a", "screens"}},
	{"system:serviceaccount:v-a:eve", []string{"visible", "system:serviceaccounts", "system:serviceaccounts:v-a"}},
}

var (
	bed  *testbed.Testbed
	hook *webhook
)

func TestMain(m *testing.M) {
	hook = newWebhook()
	opts := realkube.Options{AuthorizationWebhook: hook.forKube()}
	for _, u := range users {
		opts.Users = append(opts.Users, realkube.User{Name: u.name, Groups: u.groups})
	}
	testbed.Run(m, testbed.Options{Kube: opts, Program: true, Prepare: func(ctx context.Context, b *testbed.Testbed) error {
		bed = b
		return nil
	}})
}

// startGateway starts a gateway with additional arguments.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(rules), 0o600))
	return bed.StartGateway(t, realkube.GatewayOptions{ExtraArgs: append(args, "--config="+file, "--max-requests-inflight=2000")})
}

// aggregate runs kube-controller-manager's controller of aggregated ClusterRoles until the test
// ends.
func aggregate(ctx context.Context, t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(bed.Kube.AdminConfig())
	must(t, err)
	shared := informers.NewSharedInformerFactory(client, 0)
	controller := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())
	ctx, stop := context.WithCancel(ctx)
	shared.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.Run(ctx, 2)
	}()
	t.Cleanup(func() { stop(); <-done; shared.Shutdown() })
}

// A client sends requests to one server.
type client struct {
	url  string
	http *http.Client
}

func newClient(t *testing.T, url string) *client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: bed.Kube.ServingCAs()}, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 32,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{url, &http.Client{Transport: transport}}
}

// open sends a GET request and returns the response with its body unread.
func (c *client) open(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	return c.http.Do(req)
}

// get sends a GET request and returns the response and its body, decompressed.
func (c *client) get(ctx context.Context, path string, header http.Header) (resp *http.Response, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err = c.open(ctx, path, header)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	plain, err := decompressed(resp)
	if err == nil {
		body, err = io.ReadAll(plain)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return resp, body, nil
}

// header returns the headers of a request of the user, with the user's token or with the
// administrator's and impersonation.
func (u user) header(impersonated bool) http.Header {
	h := http.Header{"User-Agent": {"visible"}, "Accept": {"application/json"}}
	if !impersonated {
		h.Set("Authorization", "Bearer "+bed.Kube.Token(u.name))
		return h
	}
	h.Set("Authorization", "Bearer "+bed.Kube.AdminToken())
	h.Set("Impersonate-User", u.name)
	h["Impersonate-Group"] = u.groups
	return h
}

func admin() http.Header {
	return http.Header{"Authorization": {"Bearer " + bed.Kube.AdminToken()}, "Accept": {"application/json"}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
