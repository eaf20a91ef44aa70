package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const identitiesNamespace = "identities"

// whoAmI queries as whom the server authenticates the client.
var whoAmI = request{
	method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", typ: typeJSON, accept: typeJSON,
	body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
}

// caller is a kind of credentials.
type caller struct {
	name    string
	who     identity
	headers [][2]string
	// user is the name that kube-apiserver must see, or "" if it rejects the caller.
	user string
	// rejected is the status of the rejection.
	rejected int
}

func (c caller) clients(t *testing.T, g *realkube.Gateway) (up, gw *client) {
	t.Helper()
	up, gw = direct(t, c.who), through(t, g, c.who)
	for _, h := range c.headers {
		up, gw = up.with(h[0], h[1]), gw.with(h[0], h[1])
	}
	return up, gw
}

// TestIdentities checks that kube-apiserver authenticates a client through the gateway as it does
// without it, for reads from the cache and for forwarded requests.
func TestIdentities(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, identitiesNamespace)
	r := newRights(t)
	r.inNamespace(ctx, identitiesNamespace, "carol", "carol", editors())
	r.inNamespace(ctx, identitiesNamespace, "frank", "frank", editors())
	r.inNamespace(ctx, identitiesNamespace, "bob", realkube.Bob, editors())
	r.inNamespace(ctx, identitiesNamespace, "alice", realkube.Alice, editors())
	r.everywhere(ctx, "e2e-impersonate-bob", realkube.Jane, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}, ResourceNames: []string{realkube.Bob},
	})
	g := startGateway(t, "--anonymous-auth",
		"--requestheader-client-ca-file="+kube.FrontProxyCAFile(), "--requestheader-allowed-names="+kube.FrontProxyName())

	for _, c := range callers(ctx, t) {
		t.Run(c.name, func(t *testing.T) { testCaller(ctx, t, g, c) })
	}
	t.Run("anonymous", func(t *testing.T) { testAnonymous(ctx, t, g) })
	t.Run("anonymous off", func(t *testing.T) {
		g := startGateway(t)
		if a := through(t, g, identity{}).get(ctx, t, configMapsIn(identitiesNamespace)+"?resourceVersion=0", ""); a.status != http.StatusUnauthorized {
			t.Errorf("request without credentials: %s", a)
		}
	})
	t.Run("impersonation revoked", func(t *testing.T) { testImpersonationRevoked(ctx, t, g, r) })
}

// editors is a rule to read and write ConfigMaps.
func editors() rbacv1.PolicyRule {
	rule := readers()
	rule.Verbs = append(rule.Verbs, "create", "update", "patch", "delete")
	return rule
}

func callers(ctx context.Context, t *testing.T) []caller {
	t.Helper()
	carol, err := kube.IssueClientCert("carol", "ops", "dev")
	must(t, err)
	proxy, err := kube.IssueFrontProxyCert()
	must(t, err)
	impostor, err := kube.IssueFrontProxyCertFor("impostor")
	must(t, err)
	typed, _ := directClients(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: identitiesNamespace}}
	if _, err := typed.CoreV1().ServiceAccounts(identitiesNamespace).Create(ctx, account, metav1.CreateOptions{}); !errors.IsAlreadyExists(err) {
		must(t, err)
	}
	robot, err := typed.CoreV1().ServiceAccounts(identitiesNamespace).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	byCert, byProxy := identity{cert: &carol}, identity{cert: &proxy}
	masters := [][2]string{{"X-Remote-User", "admin"}, {"X-Remote-Group", "system:masters"}}
	impersonate := func(pairs ...string) (out [][2]string) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, [2]string{"Impersonate-" + pairs[i], pairs[i+1]})
		}
		return out
	}
	return []caller{
		{name: "token", who: as(realkube.Alice), user: "alice"},
		{name: "service account", who: identity{token: robot.Status.Token}, user: "system:serviceaccount:identities:robot"},
		{name: "certificate", who: byCert, user: "carol"},
		{name: "token and certificate", who: identity{token: kube.Token(realkube.Alice), cert: &carol}, user: "carol"},
		{name: "front proxy", who: byProxy, user: "frank", headers: [][2]string{
			{"X-Remote-User", "frank"}, {"X-Remote-Group", "g1"}, {"X-Remote-Group", "g2"}, {"X-Remote-Uid", "u-1"},
			{"X-Remote-Extra-Scopes", "a"}, {"X-Remote-Extra-Acme.com%2fProject", "some value"},
		}},
		{name: "front proxy without a user", who: byProxy, rejected: http.StatusUnauthorized},
		{name: "front proxy of a name not allowed", who: identity{cert: &impostor}, headers: masters, rejected: http.StatusUnauthorized},
		{name: "proxy headers with a token", who: as(realkube.Alice), headers: masters, user: "alice"},
		{name: "proxy headers with a certificate", who: byCert, headers: masters, user: "carol"},
		{name: "invalid token", who: identity{token: "nonsense"}, rejected: http.StatusUnauthorized},
		{name: "impersonation", who: as(realkube.Admin), user: "bob", headers: impersonate("User", "bob")},
		{name: "impersonation with everything", who: as(realkube.Admin), user: "bob", headers: impersonate(
			"User", "bob", "Group", "g1", "Group", "g2", "Uid", "u-2", "Extra-Scopes", "a", "Extra-Scopes", "b", "Extra-Acme.com%2fProject", "x y")},
		{name: "impersonation of a service account", who: as(realkube.Admin), user: "system:serviceaccount:identities:robot",
			headers: impersonate("User", "system:serviceaccount:identities:robot")},
		{name: "impersonation by one who may", who: as(realkube.Jane), user: "bob", headers: impersonate("User", "bob")},
		{name: "impersonation of somebody else", who: as(realkube.Jane), headers: impersonate("User", "alice"), rejected: http.StatusForbidden},
		{name: "impersonation with a group", who: as(realkube.Jane), headers: impersonate("User", "bob", "Group", "system:masters"), rejected: http.StatusForbidden},
		{name: "impersonation by one who may not", who: as(realkube.Alice), headers: impersonate("User", "admin"), rejected: http.StatusForbidden},
		{name: "impersonation by certificate", who: byCert, headers: impersonate("User", "bob"), rejected: http.StatusForbidden},
		{name: "impersonation without a user", who: as(realkube.Admin), headers: impersonate("Group", "g1"), rejected: -1},
	}
}

// testCaller compares the caller's identity, its permission to read from the cache, and its
// identity in writes, with and without the gateway.
func testCaller(ctx context.Context, t *testing.T, g *realkube.Gateway, c caller) {
	up, gw := c.clients(t, g)
	cached := request{path: configMapsIn(identitiesNamespace) + "/absent?resourceVersion=0"}
	elsewhere := request{path: configMapsIn("default") + "?resourceVersion=0"}
	if c.user == "" {
		for _, r := range []request{cached, elsewhere, whoAmI, {path: "/version"}, {path: "/apis/example.com/v1/widgets?resourceVersion=0", accept: typeTable}} {
			want := c.rejected
			if want < 0 {
				a, err := up.send(ctx, r)
				must(t, err)
				want = a.status
				if want < 400 {
					t.Errorf("kube-apiserver does not reject %s", r)
				}
			}
			sameResponse(ctx, t, up, gw, r, want)
		}
		return
	}
	want, got := review(ctx, t, up), review(ctx, t, gw)
	if want.Username != c.user {
		t.Fatalf("kube-apiserver authenticates the caller as %q, want %q", want.Username, c.user)
	}
	if !sameJSON(t, want, got) {
		t.Errorf("kube-apiserver sees\n %+v, through the gateway\n %+v", want, got)
	}
	editor := c.user == "carol" || c.user == "frank" || c.user == "bob" || c.user == "alice"
	if !editor {
		sameResponse(ctx, t, up, gw, cached, http.StatusForbidden)
		return
	}
	sameResponse(ctx, t, up, gw, cached, http.StatusNotFound)
	sameResponse(ctx, t, up, gw, elsewhere, http.StatusForbidden)
	testWrite(ctx, t, gw, c)
}

func review(ctx context.Context, t *testing.T, c *client) authenticationv1.UserInfo {
	t.Helper()
	a, err := c.send(ctx, whoAmI)
	must(t, err)
	if a.status != http.StatusCreated {
		t.Fatalf("%s: %s", c.name, a)
	}
	var out authenticationv1.SelfSubjectReview
	must(t, json.Unmarshal([]byte(a.body), &out))
	return out.Status.UserInfo
}

func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	must(t, err)
	y, err := json.Marshal(b)
	must(t, err)
	return bytes.Equal(x, y)
}

// testWrite writes through the gateway and checks the client in the object's managedFields and the
// user in the audit log.
func testWrite(ctx context.Context, t *testing.T, gw *client, c caller) {
	t.Helper()
	a, err := gw.send(ctx, request{
		method: http.MethodPost, path: configMapsIn(identitiesNamespace), typ: typeJSON, accept: typeJSON,
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"written-"},"data":{"a":"b"}}`,
	})
	must(t, err)
	if a.status != http.StatusCreated {
		t.Fatalf("creating: %s", a)
	}
	var made corev1.ConfigMap
	must(t, json.Unmarshal([]byte(a.body), &made))
	if len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "e2e" {
		t.Errorf("managed fields: %+v", made.ManagedFields)
	}
	audited := awaitAudit(ctx, t, a.header.Get("Audit-Id"))
	who := audited.User.Username
	if audited.ImpersonatedUser != nil {
		who = audited.ImpersonatedUser.Username
	}
	if who != c.user || audited.UserAgent != "e2e" || audited.Verb != "create" {
		t.Errorf("audit log: %s by user %q with user agent %q", audited.Verb, who, audited.UserAgent)
	}
	if c.who.token != "" && c.who.cert == nil && audited.User.Username == realkube.GatewayUser {
		t.Error("a client with a token of its own was impersonated")
	}
}

// awaitAudit waits for the event of a request in kube-apiserver's audit log.
func awaitAudit(ctx context.Context, t *testing.T, id string) auditv1.Event {
	t.Helper()
	if id == "" {
		t.Fatal("the response has no Audit-Id")
	}
	var found auditv1.Event
	eventually(ctx, t, waitTimeout, func() error {
		f, err := os.Open(kube.AuditLog())
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e auditv1.Event
			if bytes.Contains(lines.Bytes(), []byte(id)) && json.Unmarshal(lines.Bytes(), &e) == nil && string(e.AuditID) == id {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no audit event with ID %s", id)
	})
	return found
}

// testAnonymous checks that a client without credentials is system:anonymous, as at kube-apiserver.
func testAnonymous(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	up, gw := direct(t, identity{}), through(t, g, identity{})
	for path, want := range map[string]int{
		configMapsIn(identitiesNamespace) + "?resourceVersion=0": http.StatusForbidden,
		configMapsIn(identitiesNamespace):                        http.StatusForbidden,
		configMapsIn(identitiesNamespace) + "?watch=true":        http.StatusForbidden,
		"/version":    http.StatusOK,
		"/api":        http.StatusForbidden,
		"/apis":       http.StatusForbidden,
		"/openapi/v3": http.StatusForbidden,
	} {
		sameResponse(ctx, t, up, gw, request{path: path}, want)
	}
	sameResponse(ctx, t, up, gw, whoAmI, http.StatusForbidden)
	impersonated := caller{who: as(realkube.Admin), headers: [][2]string{{"Impersonate-User", "system:anonymous"}}}
	up, gw = impersonated.clients(t, g)
	sameResponse(ctx, t, up, gw, request{path: configMapsIn(identitiesNamespace) + "?resourceVersion=0"}, http.StatusForbidden)
	sameResponse(ctx, t, up, gw, whoAmI, http.StatusForbidden)
}

// testImpersonationRevoked checks that revoking the permission to impersonate takes effect as soon
// as for any other permission.
func testImpersonationRevoked(ctx context.Context, t *testing.T, g *realkube.Gateway, r rights) {
	c := caller{who: as(realkube.Jane), headers: [][2]string{{"Impersonate-User", realkube.Bob}}}
	up, gw := c.clients(t, g)
	list := request{path: configMapsIn(identitiesNamespace) + "?resourceVersion=0"}
	awaitStatus(ctx, t, gw, list.path, http.StatusOK)
	w := gw.mustWatch(ctx, t, request{path: configMapsIn(identitiesNamespace) + "?watch=true"}, 0, true)
	r.revokeEverywhere(ctx, "e2e-impersonate-bob")
	eventually(ctx, t, revocationTime, func() error {
		a, err := gw.send(ctx, list)
		if err == nil && a.status != http.StatusForbidden {
			err = fmt.Errorf("still %d", a.status)
		}
		return err
	})
	sameResponse(ctx, t, up, gw, list, http.StatusForbidden)
	if err := w.await(revocationTime); err != nil {
		t.Error(err)
	}
}
