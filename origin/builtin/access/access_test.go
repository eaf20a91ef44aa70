package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kubeweir/kubeweir/origin/pki"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// fixture is an Access over a fake client.
type fixture struct {
	*Access
	material *pki.Material
	client   *fake.Clientset
	factory  informers.SharedInformerFactory
}

func newFixture(t *testing.T, change func(*Config), objects ...runtime.Object) *fixture {
	t.Helper()
	material, err := pki.InMemory(pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{material: material, client: fake.NewClientset(objects...)}
	f.factory = informers.NewSharedInformerFactory(f.client, 0)
	cfg := Config{
		ClientCA:      material.CA.CertPEM,
		RequestHeader: KubeadmRequestHeader(material.FrontProxyCA.CertPEM, pki.FrontProxyUser),
		Anonymous:     true,
		Issuers:       []string{issuer},
		SigningKey:    material.ServiceAccountKey,
		Client:        f.client, Informers: f.factory,
	}
	if change != nil {
		change(&cfg)
	}
	if f.Access, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f.factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); f.factory.Shutdown() })
	f.factory.WaitForCacheSync(ctx.Done())
}

// authenticate authenticates a request as the server's handler does it.
func (f *fixture) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	ctx := authenticator.WithAudiences(r.Context(), f.Audiences)
	return f.Authenticator.AuthenticateRequest(r.WithContext(ctx))
}

func request(edit func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	if edit != nil {
		edit(r)
	}
	return r
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func withCert(pair *pki.KeyPair) func(*http.Request) {
	return func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Certificate}}
	}
}

func TestAuthentication(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("sesame,ali,40,\"thieves,cave\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *Config) { c.TokenFile, c.BootstrapTokens = tokens, true },
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
			Type:       corev1.SecretTypeBootstrapToken,
			Data: map[string][]byte{
				"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			},
		})
	jane, err := f.material.IssueClient("jane", "dev")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := pki.InMemory(pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	remote := func(r *http.Request) {
		r.Header.Set("X-Remote-User", "bob")
		r.Header.Set("X-Remote-Group", "proxied")
		r.Header.Set("X-Remote-Extra-Scope%2Fx", "s1")
	}
	for _, tc := range []struct {
		name   string
		edit   func(*http.Request)
		user   string // empty: refused
		groups []string
		extra  string // a key that must be there
	}{
		{"nothing", nil, "system:anonymous", []string{"system:unauthenticated"}, ""},
		{"certificate", withCert(jane), "jane", []string{"dev", "system:authenticated"}, "authentication.kubernetes.io/credential-id"},
		{"admin", withCert(f.material.Admin), "kubernetes-admin", []string{"system:masters", "system:authenticated"}, "authentication.kubernetes.io/credential-id"},
		{"another CA's certificate", withCert(stranger.Admin), "", nil, ""},
		{"token file", bearer("sesame"), "ali", []string{"thieves", "cave", "system:authenticated"}, ""},
		{"unknown token", bearer("sesam"), "", nil, ""},
		{"bootstrap token", bearer("abcdef.0123456789abcdef"), "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:authenticated"}, ""},
		{"wrong bootstrap token", bearer("abcdef.0123456789abcdee"), "", nil, ""},
		{"certificate before token", func(r *http.Request) { withCert(jane)(r); bearer("sesame")(r) }, "jane", []string{"dev", "system:authenticated"}, ""},
		{"front proxy", func(r *http.Request) { withCert(f.material.FrontProxyClient)(r); remote(r) }, "bob", []string{"proxied", "system:authenticated"}, "scope/x"},
		{"remote headers alone mean nothing", remote, "system:anonymous", []string{"system:unauthenticated"}, ""},
		{"remote headers with a client's certificate mean nothing", func(r *http.Request) { withCert(jane)(r); remote(r) }, "jane", []string{"dev", "system:authenticated"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok, err := f.authenticate(request(tc.edit))
			if tc.user == "" {
				if ok {
					t.Fatalf("taken for %v", got.User)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("%v, %v", ok, err)
			}
			if got.User.GetName() != tc.user || !slices.Equal(got.User.GetGroups(), tc.groups) {
				t.Errorf("%s %q", got.User.GetName(), got.User.GetGroups())
			}
			if _, ok := got.User.GetExtra()[tc.extra]; tc.extra != "" && !ok {
				t.Errorf("extra %v", got.User.GetExtra())
			}
		})
	}
}

func TestNothingConfigured(t *testing.T) {
	client := fake.NewClientset()
	a, err := New(t.Context(), Config{Client: client, Informers: informers.NewSharedInformerFactory(client, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.Authenticator.AuthenticateRequest(request(nil)); ok || err != nil {
		t.Errorf("without any method: %v, %v", ok, err)
	}
}

func TestBadConfig(t *testing.T) {
	client := fake.NewClientset()
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no PEM", Config{ClientCA: []byte("x")}, "client CA: "},
		{"no PEM of the front proxies' CA", Config{RequestHeader: KubeadmRequestHeader([]byte("x"))}, "front proxies' CA: "},
		{"no token file", Config{TokenFile: "/nonexistent/tokens"}, "authenticators: open /nonexistent/tokens"},
		{"no key", Config{Issuers: []string{issuer}, SigningKey: "secret"}, "service-account signing key: a string cannot sign"},
		{"unknown curve", Config{Issuers: []string{issuer}, SigningKey: p224}, "service-account signing key: "},
		{"no issuer", Config{SigningKey: p224}, "an issuer is needed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.Client, tc.cfg.Informers = client, informers.NewSharedInformerFactory(client, 0)
			if _, err := New(t.Context(), tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestFaultsOfFiles checks that an error names the flag and the file, in one line.
func TestFaultsOfFiles(t *testing.T) {
	client := fake.NewClientset()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: "
	empty, junk := file("empty", ""), file("junk", "kind: Junk")
	wrong := file("wrong", head+"AuthenticationConfiguration\njwt: [{issuer: {url: 'http://a', audiences: []}}]")
	own := file("own", head+"AuthenticationConfiguration\njwt: [{issuer: {url: '"+issuer+"', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]")
	both := file("both", head+"AuthenticationConfiguration\nanonymous: {enabled: true}")
	none := file("none", head+"AuthorizationConfiguration\nauthorizers: []")
	named := file("named", head+"AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: other}]")
	abac := file("abac", head+"AuthorizationConfiguration\nauthorizers: [{type: ABAC, name: abac}]")
	authentication := func(path string) Config { return Config{Authentication: Authentication{ConfigFile: path}} }
	authorization := func(path string) Config { return Config{Authorization: Authorization{ConfigFile: path}} }
	tokens := func(path, version string) Config {
		return Config{Authentication: Authentication{Webhook: TokenWebhook{ConfigFile: path, Version: version}}}
	}
	access := func(path string) Config {
		return Config{Authorization: Authorization{Modes: []string{"Webhook"}, Webhook: AccessWebhook{ConfigFile: path, Version: "v1"}}}
	}
	fixed := authentication(both)
	fixed.AnonymousIsSet = true
	always := file("always", head+"AuthorizationConfiguration\nauthorizers: [{type: AlwaysAllow, name: alwaysallow}]")
	open := authorization(always)
	open.Anonymous = true
	disallowed := authentication(own)
	disallowed.Issuers = []string{issuer}
	for _, tc := range []struct {
		cfg              Config
		flag, file, want string
	}{
		{authentication("/none"), "authentication-config", "/none", "no such file"},
		{authentication(empty), "authentication-config", empty, "empty config data"},
		{authentication(junk), "authentication-config", junk, "Junk"},
		{authentication(wrong), "authentication-config", wrong, "URL scheme must be https"},
		{disallowed, "authentication-config", own, "URL must not overlap with disallowed issuers"},
		{fixed, "authentication-config", both, "--anonymous-auth flag cannot be set"},
		{Config{Authentication: Authentication{OIDC: OIDC{IssuerURL: "https://a", ClientID: "b", CAFile: "/none"}}}, "oidc-issuer-url", "https://a", "no such file"},
		{Config{Authentication: Authentication{OIDC: OIDC{IssuerURL: "https://a", ClientID: "b", UsernameClaim: "sub", SigningAlgs: []string{"none"}}}}, "oidc-issuer-url", "https://a", "none"},
		{tokens("/none", "v1"), "authentication-token-webhook-config-file", "/none", "no such file"},
		{tokens(junk, "v1"), "authentication-token-webhook-config-file", junk, ""},
		{authorization("/none"), "authorization-config", "/none", "no such file"},
		{authorization(junk), "authorization-config", junk, "Junk"},
		{open, "authorization-config", always, "AlwaysAllow would allow everything to everybody; set --anonymous-auth=false"},
		{authorization(none), "authorization-config", none, "at least one authorization mode must be defined"},
		{authorization(named), "authorization-config", named, "expected name rbac"},
		{authorization(abac), "authorization-config", abac, ""},
		{access("/none"), "authorization-webhook-config-file", "/none", "no such file"},
		{access(junk), "authorization-webhook-config-file", junk, ""},
		{Config{Authorization: Authorization{Modes: []string{"Other"}}}, "authorization-mode", "Other", "unknown authorization mode"},
	} {
		tc.cfg.Client, tc.cfg.Informers = client, informers.NewSharedInformerFactory(client, 0)
		_, err := New(t.Context(), tc.cfg)
		if err == nil || !strings.HasPrefix(err.Error(), "--"+tc.flag+"="+tc.file+": ") || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want --%s=%s with %q", err, tc.flag, tc.file, tc.want)
		}
	}
}

func TestServiceAccountTokens(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "sa-1"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker", UID: "pod-1"}}
	f := newFixture(t, nil, account, pod)
	mint := func(t *testing.T, a *Access, uid types.UID, bound *core.Pod, audiences ...string) string {
		t.Helper()
		sa := core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: uid}}
		claims, private, err := serviceaccount.Claims(sa, bound, nil, nil, nil, nil, 3600, 0, audiences, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := a.Tokens.GenerateToken(t.Context(), claims, private)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	inPod := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker", UID: "pod-1"}}
	gone := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone", UID: "pod-2"}}
	other := newFixture(t, nil)
	for _, tc := range []struct {
		name  string
		token string
		ok    bool
	}{
		{"unbound", mint(t, f.Access, "sa-1", nil, issuer), true},
		{"bound to a pod", mint(t, f.Access, "sa-1", inPod, issuer), true},
		{"several audiences", mint(t, f.Access, "sa-1", nil, "vault", issuer), true},
		{"another audience", mint(t, f.Access, "sa-1", nil, "vault"), false},
		{"bound to a pod that is gone", mint(t, f.Access, "sa-1", gone, issuer), false},
		{"account made anew", mint(t, f.Access, "sa-0", nil, issuer), false},
		{"another server's key", mint(t, other.Access, "sa-1", nil, issuer), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok, err := f.authenticate(request(bearer(tc.token)))
			if ok != tc.ok {
				t.Fatalf("%v, %v", ok, err)
			}
			if !ok {
				return
			}
			if got.User.GetName() != "system:serviceaccount:ns:robot" || got.User.GetUID() != "sa-1" {
				t.Errorf("%s (%s)", got.User.GetName(), got.User.GetUID())
			}
			want := []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}
			if !slices.Equal(got.User.GetGroups(), want) {
				t.Errorf("groups %q", got.User.GetGroups())
			}
			id := got.User.GetExtra()["authentication.kubernetes.io/credential-id"]
			if len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
				t.Errorf("extra %v", got.User.GetExtra())
			}
		})
	}
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(issuer, "", "127.0.0.1:6443", f.PublicKeys)
	if err != nil {
		t.Fatal(err)
	}
	config, _ := metadata.GetConfigJSON()
	keys, _ := metadata.GetKeysetJSON()
	for text, want := range map[string]string{
		string(config): `"jwks_uri":"https://127.0.0.1:6443/openid/v1/jwks"`, string(keys): `"alg":"ES256"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

// TestLegacyTokens: tokens in secrets, as kube-controller-manager makes them.
func TestLegacyTokens(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "sa-1"}}
	f := newFixture(t, nil, account)
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, f.material.ServiceAccountKey)
	if err != nil {
		t.Fatal(err)
	}
	secret := corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot-token"},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	claims, private := serviceaccount.LegacyClaims(*account, secret)
	token, err := generator.GenerateToken(t.Context(), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := f.authenticate(request(bearer(token))); ok {
		t.Error("good without its secret")
	}
	secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)}
	if _, err := f.client.CoreV1().Secrets("ns").Create(t.Context(), &secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, ok, err := f.authenticate(request(bearer(token)))
	if !ok {
		t.Fatal(err)
	}
	if got.User.GetName() != "system:serviceaccount:ns:robot" {
		t.Errorf("%v", got.User)
	}
	used, err := f.client.CoreV1().Secrets("ns").Get(t.Context(), "robot-token", metav1.GetOptions{})
	if err != nil || used.Labels[serviceaccount.LastUsedLabelKey] == "" {
		t.Errorf("not labelled as used: %v, %v", used.Labels, err)
	}
}

func TestAuthorization(t *testing.T) {
	rules := func(verb, group, resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}}
	}
	bind := func(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{subject},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	jane := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}
	f := newFixture(t, nil,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: rules("get", "", "pods")},
		bind("jane-reads", "reader", jane),
		bind("max-does-what", "missing", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "max"}),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "editor"}, Rules: rules("update", "apps", "deployments")},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "jane-edits"},
			Subjects:   []rbacv1.Subject{jane},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		})
	// The fake lists and watches at different moments: what is deleted between them is not seen.
	watched := make(chan struct{}, 10)
	f.client.PrependWatchReactor("clusterrolebindings", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := f.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		watched <- struct{}{}
		return true, w, err
	})
	f.start(t)
	<-watched
	as := func(name string, groups ...string) user.Info { return &user.DefaultInfo{Name: name, Groups: groups} }
	attrs := func(who user.Info, verb, group, resource, namespace string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: who, Verb: verb, APIGroup: group, Resource: resource, Namespace: namespace, ResourceRequest: true}
	}
	for _, tc := range []struct {
		name   string
		attrs  authorizer.AttributesRecord
		allow  bool
		reason string
	}{
		{"master", attrs(as("root", "system:masters"), "delete", "", "nodes", ""), true, ""},
		{"by cluster role", attrs(as("jane"), "get", "", "pods", "any"), true,
			`RBAC: allowed by ClusterRoleBinding "jane-reads" of ClusterRole "reader" to User "jane"`},
		{"by role", attrs(as("jane"), "update", "apps", "deployments", "ns"), true,
			`RBAC: allowed by RoleBinding "jane-edits/ns" of Role "editor" to User "jane"`},
		{"in another namespace", attrs(as("jane"), "update", "apps", "deployments", "other"), false, ""},
		{"another verb", attrs(as("jane"), "list", "", "pods", "any"), false, ""},
		{"a role that is missing", attrs(as("max"), "get", "", "pods", "any"), false,
			`rbac: RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decision, reason, err := f.Authorizer.Authorize(t.Context(), tc.attrs)
			if err != nil || (decision == authorizer.DecisionAllow) != tc.allow || reason != tc.reason {
				t.Errorf("%v %q %v", decision, reason, err)
			}
		})
	}
	resources, _, incomplete, err := f.RuleResolver.RulesFor(t.Context(), as("jane"), "ns")
	if err != nil || incomplete || len(resources) != 2 {
		t.Errorf("rules %v, incomplete %v, %v", resources, incomplete, err)
	}

	// A change is effective once the informer has it.
	seen := make(chan struct{})
	_, err = f.factory.Rbac().V1().ClusterRoleBindings().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { close(seen) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "jane-reads", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-time.After(10 * time.Second):
		t.Fatal("the informer never saw the deletion")
	}
	if decision, _, _ := f.Authorizer.Authorize(t.Context(), attrs(as("jane"), "get", "", "pods", "any")); decision != authorizer.DecisionNoOpinion {
		t.Errorf("after the binding was deleted: %v", decision)
	}
}

// TestNodeInformers checks that the Node authorizer does not wait for a resource that the server does not serve.
func TestNodeInformers(t *testing.T) {
	for _, served := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PodCertificateRequest, served)
		f := newFixture(t, func(c *Config) { c.Nodes = true })
		f.start(t)
		synced := f.factory.WaitForCacheSync(t.Context().Done())
		if _, found := synced[reflect.TypeFor[*certificatesv1.PodCertificateRequest]()]; found != served {
			t.Errorf("served %v, informers of %v", served, synced)
		}
	}
}

func TestWithKey(t *testing.T) {
	a, b := newFixture(t, nil).material.ServiceAccountKey.Public(), newFixture(t, nil).material.ServiceAccountKey.Public()
	for _, tc := range []struct {
		name string
		in   []any
		want []any
	}{
		{"alone", nil, []any{a}},
		{"first", []any{b}, []any{a, b}},
		{"once", []any{b, a}, []any{a, b}},
	} {
		if got := withKey(tc.in, a); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %d keys", tc.name, len(got))
		}
	}
}
