package standalone

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// issuer is an OpenID Connect issuer on loopback.
type issuer struct {
	*httptest.Server
	mu      sync.Mutex
	key     *rsa.PrivateKey
	version int // of the key
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		n := base64.RawURLEncoding.EncodeToString(i.key.N.Bytes())
		e := base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.key.E)).Bytes())
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"key-%d","n":%q,"e":%q}]}`, i.version, n, e)
	})
	i.Server = httptest.NewUnstartedServer(mux)
	i.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

// rotate replaces the key.
func (i *issuer) rotate(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.version = key, i.version+1
}

func caOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// signed returns a token with header and claims. sign signs the hash of both.
func signed(header, claims map[string]any, sign func(text string) []byte) string {
	part := func(m map[string]any) string {
		text, _ := json.Marshal(m)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(header) + "." + part(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// token returns a token with the claims of a valid one, changed.
func (i *issuer) token(change map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.signWith(i.key, change)
}

func (i *issuer) signWith(key *rsa.PrivateKey, change map[string]any) string {
	return signed(map[string]any{"alg": "RS256", "kid": fmt.Sprintf("key-%d", i.version)}, i.claims(change), func(text string) []byte {
		hash := sha256.Sum256([]byte(text))
		signature, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
		return signature
	})
}

// claims are those of a valid token, changed. A nil removes a claim.
func (i *issuer) claims(change map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": "kubernetes", "sub": "jane", "email": "jane@example.com", "email_verified": true,
		"groups": []string{"devs"}, "tenant": "blue", "team": "storage",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for name, value := range change {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// tokens are a valid token and such that are not.
func (i *issuer) tokens(t *testing.T) map[string]string {
	t.Helper()
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{
		"valid":             i.token(nil),
		"expired":           i.token(map[string]any{"exp": time.Unix(1e9, 0).Unix()}),
		"not yet valid":     i.token(map[string]any{"nbf": time.Unix(1e10, 0).Unix()}),
		"without expiry":    i.token(map[string]any{"exp": nil}),
		"another audience":  i.token(map[string]any{"aud": "elsewhere"}),
		"several audiences": i.token(map[string]any{"aud": []string{"elsewhere", "kubernetes"}}),
		"no audience":       i.token(map[string]any{"aud": nil}),
		"another issuer":    i.token(map[string]any{"iss": "https://127.0.0.1:1"}),
		"slash issuer":      i.token(map[string]any{"iss": i.URL + "/"}),
		"no issuer":         i.token(map[string]any{"iss": nil}),
		"unverified email":  i.token(map[string]any{"email_verified": false}),
		"no email":          i.token(map[string]any{"email": nil}),
		"system user":       i.token(map[string]any{"email": "system:admin", "sub": "system:admin"}),
		"masters":           i.token(map[string]any{"groups": []string{"system:masters"}}),
		"another team":      i.token(map[string]any{"team": "network"}),
		"groups as text":    i.token(map[string]any{"groups": "devs"}),
		"groups as numbers": i.token(map[string]any{"groups": []int{1}}),
		"no subject":        i.token(map[string]any{"sub": nil}),
		"jti":               i.token(map[string]any{"jti": "one"}),
		"unknown key":       i.signWith(stranger, nil),
		"no signature":      signed(map[string]any{"alg": "none"}, i.claims(nil), func(string) []byte { return nil }),
		"signed with the public key": signed(map[string]any{"alg": "HS256", "kid": "key-1"}, i.claims(nil), func(text string) []byte {
			public, _ := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
			mac := hmac.New(sha256.New, public)
			_, _ = io.WriteString(mac, text)
			return mac.Sum(nil)
		}),
		"another algorithm": signed(map[string]any{"alg": "ES256", "kid": "key-1"}, i.claims(nil), func(text string) []byte {
			hash := sha256.Sum256([]byte(text))
			r, s, _ := ecdsa.Sign(rand.Reader, curve, hash[:])
			return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}),
	}
	head, rest, _ := strings.Cut(tokens["valid"], ".")
	_, signature, _ := strings.Cut(rest, ".")
	forged, _ := json.Marshal(i.claims(map[string]any{"email": "root@example.com", "sub": "root"}))
	tokens["forged claims"] = head + "." + base64.RawURLEncoding.EncodeToString(forged) + "." + signature
	tokens["cut off"] = strings.TrimSuffix(tokens["valid"], signature)
	return tokens
}

// hook is a webhook for tokens and for access.
type hook struct {
	*httptest.Server
	ended chan struct{} // ends requests that hang
	mu    sync.Mutex
	// failing is the status of all responses; 0 if the webhook works.
	failing int
	// valid are the tokens that are accepted besides those that begin with good.
	revoked bool
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/tokens", h.tokens)
	mux.HandleFunc("/access", h.access)
	h.Server = httptest.NewUnstartedServer(mux)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(func() { close(h.ended); h.Close() })
	return h
}

func (h *hook) set(failing int, revoked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing, h.revoked = failing, revoked
}

// fails responds as the webhook fails, and reports whether it did.
func (h *hook) fails(w http.ResponseWriter, r *http.Request, hangs bool) bool {
	h.mu.Lock()
	failing := h.failing
	h.mu.Unlock()
	if hangs {
		select {
		case <-h.ended:
		case <-r.Context().Done():
		}
		return true
	}
	if failing != 0 {
		http.Error(w, "broken", failing)
	}
	return failing != 0
}

func (h *hook) tokens(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	token := review.Spec.Token
	if h.fails(w, r, token == "hang") {
		return
	}
	h.mu.Lock()
	revoked := h.revoked
	h.mu.Unlock()
	switch {
	case token == "broken":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case token == "junk":
		_, _ = io.WriteString(w, "junk")
		return
	case strings.HasPrefix(token, "good"), token == "revocable" && !revoked:
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{
			Username: "hooked-" + token, UID: "u1", Groups: []string{"hooked"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}},
		}}
		if token == "good-elsewhere" {
			review.Status.Audiences = []string{"elsewhere"}
		}
	default:
		review.Status.Error = "the webhook does not know the token"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// access permits and rejects by the name of the resource.
func (h *hook) access(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := ""
	if a := review.Spec.ResourceAttributes; a != nil {
		name = a.Name
	}
	if h.fails(w, r, name == "hang") {
		return
	}
	switch name {
	case "permitted":
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "the webhook permits it"}
	case "rejected":
		review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "the webhook <rejects> it"}
	case "both":
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}
	case "broken":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	default:
		review.Status.Reason = "the webhook has no opinion"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// kubeconfig writes the file of a webhook and returns its path.
func (h *hook) kubeconfig(t *testing.T, path string) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "webhook.yaml"), fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hook, cluster: {server: %s%s, certificate-authority-data: %s}}]
users: [{name: hook, user: {}}]
contexts: [{name: hook, context: {cluster: hook, user: hook}}]
current-context: hook
`, h.URL, path, base64.StdEncoding.EncodeToString(caOf(h.Server))))
}

func writeFile(t *testing.T, file, text string) string {
	t.Helper()
	// As a mounted ConfigMap is replaced: never half of it.
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// compare starts kube-apiserver and kubeweir, each with configure, and compares the responses to scenario.
func compare(t *testing.T, configure func(*testing.T, *envtest.APIServer), scenario func(context.Context, *flagged)) {
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	responses := func(program, dir string) (out string) {
		t.Run(program, func(t *testing.T) {
			env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute}
			configure(t, env.ControlPlane.GetAPIServer())
			f := &flagged{T: t, env: env, admin: startEnvironment(t, env)}
			scenario(t.Context(), f)
			out = f.responses.String()
			t.Log("\n" + out)
		})
		return out
	}
	theirs := responses("kube-apiserver", filepath.Dir(paths.KubeAPIServer))
	ours := responses("kubeweir", assets(t.Context(), t))
	want := strings.Split(theirs, "\n")
	for i, line := range strings.Split(ours, "\n") {
		if i >= len(want) || line != want[i] {
			t.Errorf("line %d of kubeweir:\n%s\nof kube-apiserver:\n%s", i, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
}

// do sends a request with a bearer token and returns the status and the body, or the message of a
// Status. The status is 0 if there is no response.
func (f *flagged) do(ctx context.Context, method, path, token, body string) (int, string) {
	config := rest.AnonymousClientConfig(f.env.Config)
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err.Error()
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	var status metav1.Status
	if json.Unmarshal(content, &status) == nil && status.Kind == "Status" {
		return resp.StatusCode, status.Message
	}
	return resp.StatusCode, resp.Header.Get("Content-Type") + " " + string(bytes.TrimSpace(content))
}

// records does a request and records the response.
func (f *flagged) records(ctx context.Context, name, method, path, token, body string) {
	f.Helper()
	code, text := f.do(ctx, method, path, token, body)
	f.record(name, nil, code, text)
}

// whoAmI records which user a token stands for.
func (f *flagged) whoAmI(ctx context.Context, name, token string) {
	f.Helper()
	f.record("user of "+name, nil, f.who(ctx, token))
}

func (f *flagged) who(ctx context.Context, token string) string {
	code, text := f.do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", token,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	var review authenticationv1.SelfSubjectReview
	if code == http.StatusCreated {
		_, text, _ = strings.Cut(text, " ")
		f.must(json.Unmarshal([]byte(text), &review))
		user, _ := json.Marshal(review.Status.UserInfo)
		text = string(user)
	}
	return fmt.Sprint(code, " ", text)
}

// review records the TokenReview of a token.
func (f *flagged) review(ctx context.Context, name, token string) {
	f.Helper()
	review, err := f.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	f.must(err)
	// kube-apiserver compares each token with that of its own loopback client first.
	reason := strings.Trim(strings.TrimPrefix(review.Status.Error, "[invalid bearer token, "), "[]")
	reason, _, _ = strings.Cut(reason, "current time")
	f.record("review of "+name, nil, review.Status.Authenticated, review.Status.User.Username, len(review.Status.Audiences), reason)
}

// reaches polls until a request with a token gets a status.
func (f *flagged) reaches(ctx context.Context, name string, want string, token func() string) {
	f.Helper()
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		sent := token()
		got := f.who(ctx, sent)
		if strings.HasPrefix(got, want) {
			return nil
		}
		review, err := f.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: sent}}, metav1.CreateOptions{})
		f.must(err)
		return fmt.Errorf("%s: %s (%s)", name, got, review.Status.Error)
	}))
	f.record(name, nil, want)
}

// reloads polls until the server has counted reloads of a kind.
func (f *flagged) reloads(ctx context.Context, kind, status string) {
	f.Helper()
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		text, err := f.admin.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "apiserver_"+kind+"_config_controller_automatic_reloads_total{") && strings.Contains(line, `status="`+status+`"`) {
				return nil
			}
		}
		return fmt.Errorf("no reload of %s with %s", kind, status)
	}))
	f.record("reload of "+kind, nil, status)
}

// permit lets a group read ConfigMaps and Secrets.
func (f *flagged) permit(ctx context.Context, group string) {
	f.Helper()
	_, err := f.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{})
	f.must(err)
	_, err = f.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
	}, metav1.CreateOptions{})
	f.must(err)
	for _, name := range []string{"permitted", "rejected", "both", "other", "broken", "hang"} {
		for _, namespace := range []string{"default", "kube-public"} {
			_, err := f.admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			f.must(err)
			_, err = f.admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			f.must(err)
		}
	}
}

// reads records which objects a token reads and changes, of those that RBAC permits (ConfigMaps) and others.
func (f *flagged) reads(ctx context.Context, when, token string, names ...string) {
	f.Helper()
	var requests []func() string
	for _, name := range names {
		for _, resource := range []string{"configmaps", "secrets"} {
			for _, namespace := range []string{"default", "kube-public"} {
				path := "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name
				for _, method := range []string{http.MethodGet, http.MethodDelete} {
					requests = append(requests, func() string {
						code, text := f.do(ctx, method, path, token, `{"dryRun":["All"]}`)
						if code == http.StatusOK {
							text = ""
						}
						text, _, _ = strings.Cut(text, "Post ") // what follows depends on the moment
						return fmt.Sprint(when, " ", method, " ", path, ": ", code, " ", text)
					})
				}
			}
		}
	}
	var all sync.WaitGroup // each takes seconds if the webhook fails
	out := make([]string, len(requests))
	for i, request := range requests {
		all.Go(func() { out[i] = request() })
	}
	all.Wait()
	for _, line := range out {
		fmt.Fprintln(&f.responses, line)
	}
}

// TestStructuredAccessLikeKubeAPIServer compares kubeweir and kube-apiserver with --authentication-config,
// --authorization-config, --authentication-token-webhook-config-file and bootstrap tokens.
func TestStructuredAccessLikeKubeAPIServer(t *testing.T) {
	issued, hooks := newIssuer(t), newHook(t)
	authentication, authorization := filepath.Join(t.TempDir(), "authentication.yaml"), filepath.Join(t.TempDir(), "authorization.yaml")
	authenticates := func(t *testing.T, audience, anonymous string) {
		writeFile(t, authentication, fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: %s}, {path: /readyz}, {path: /healthz}]
jwt:
- issuer:
    url: %s
    audiences: [%s]
    certificateAuthority: %q
  claimValidationRules:
  - {expression: "claims.email_verified == true", message: "the email must be verified"}
  claimMappings:
    username: {expression: "'oidc:' + claims.email"}
    groups: {expression: "claims.groups"}
    uid: {claim: sub}
    extra: [{key: example.com/tenant, valueExpression: claims.tenant}]
  userValidationRules:
  - {expression: "!user.username.startsWith('oidc:system:')", message: "no user of the system"}
  - {expression: "user.groups.all(group, !group.startsWith('system:'))", message: "no group of the system"}
`, anonymous, issued.URL, audience, caOf(issued.Server)))
	}
	config := hooks.kubeconfig(t, "/access")
	authorizes := func(t *testing.T, policy, condition string) {
		writeFile(t, authorization, fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: guard
  webhook:
    timeout: 1s
    authorizedTTL: 10s
    unauthorizedTTL: 10s
    cacheAuthorizedRequests: false
    cacheUnauthorizedRequests: false
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
    matchConditions: [{expression: "has(request.resourceAttributes)"}, {expression: "%s"}]
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`, policy, config, condition))
	}
	const guarded = "request.resourceAttributes.namespace == 'default'"
	configure := func(t *testing.T, server *envtest.APIServer) {
		authenticates(t, "kubernetes", "/livez")
		authorizes(t, "Deny", guarded)
		server.Configure().Set("authentication-config", authentication).Set("authorization-config", authorization).Disable("authorization-mode").
			Set("authentication-token-webhook-config-file", hooks.kubeconfig(t, "/tokens")).Set("authentication-token-webhook-version", "v1").
			Set("authentication-token-webhook-cache-ttl", "0s").Set("enable-bootstrap-token-auth", "true")
	}
	compare(t, configure, func(ctx context.Context, f *flagged) {
		hooks.set(0, false)
		f.reaches(ctx, "a valid token", "201", func() string { return issued.token(nil) }) // the server has the issuer's keys
		hanging := make(chan int, 1)
		go func() {
			code, _ := f.do(ctx, http.MethodGet, "/api/v1/namespaces/default/configmaps", "hang", "")
			hanging <- code
		}()
		tokens := issued.tokens(f.T)
		for _, name := range slices.Sorted(maps.Keys(tokens)) {
			f.whoAmI(ctx, name, tokens[name])
			f.review(ctx, name, tokens[name])
		}
		for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/ping", "/livez?exclude=etcd", "/livez/", "//livez", "/%6civez", "/version", "/api", "/api/v1/namespaces/default/configmaps", "/openapi/v2"} {
			code, _ := f.do(ctx, http.MethodGet, path, "", "")
			f.record("anonymous "+path, nil, code)
		}
		for _, token := range []string{"good", "bad", "broken", "junk", "good-elsewhere"} {
			f.whoAmI(ctx, token, token)
		}
		_, err := f.admin.CoreV1().Secrets("kube-system").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: "bootstrap.kubernetes.io/token",
			Data: map[string][]byte{
				"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
				"auth-extra-groups": []byte("system:bootstrappers:kubeadm"),
			},
		}, metav1.CreateOptions{})
		f.must(err)
		f.reaches(ctx, "a bootstrap token", "201", func() string { return "abcdef.0123456789abcdef" })
		f.whoAmI(ctx, "a bootstrap token", "abcdef.0123456789abcdef")
		f.whoAmI(ctx, "a wrong bootstrap token", "abcdef.0123456789abcdee")

		f.permit(ctx, "hooked")
		f.must(testbed.Poll(ctx, time.Minute, func() error { // until RBAC has the binding
			if code, text := f.do(ctx, http.MethodGet, "/api/v1/namespaces/kube-public/configmaps/other", "good", ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		}))
		f.reads(ctx, "guarded", "good", "permitted", "rejected", "both", "other", "broken", "hang")

		f.whoAmI(ctx, "revocable", "revocable")
		hooks.set(0, true)
		f.reaches(ctx, "revoked", "401", func() string { return "revocable" })

		// The issuer has a new key. Tokens of the old one are no longer accepted.
		old := issued.token(map[string]any{"jti": "old"})
		issued.rotate(f.T)
		f.whoAmI(ctx, "the new key", issued.token(map[string]any{"jti": "new"}))
		f.whoAmI(ctx, "the old key", old)

		authenticates(f.T, "others", "/livez")
		f.reaches(ctx, "another audience after a reload", "201", func() string { return issued.token(map[string]any{"aud": "others"}) })
		f.reloads(ctx, "authentication", "success")
		f.whoAmI(ctx, "the audience from before", issued.token(map[string]any{"jti": "before"}))
		authenticates(f.T, "third", "/version")
		f.reloads(ctx, "authentication", "failure")
		f.whoAmI(ctx, "an audience of a file that was not loaded", issued.token(map[string]any{"aud": "third"}))
		code, _ := f.do(ctx, http.MethodGet, "/version", "", "")
		f.record("anonymous /version after it", nil, code)

		authorizes(f.T, "NoOpinion", "request.resourceAttributes.namespace == 'kube-public'")
		f.reloads(ctx, "authorization", "success")
		f.reads(ctx, "after a reload", "good", "rejected", "broken")
		writeFile(f.T, authorization, "kind: Junk")
		f.reloads(ctx, "authorization", "failure")
		f.reads(ctx, "after a wrong file", "good", "rejected")
		select {
		case code := <-hanging:
			f.record("a webhook that hangs", nil, code)
		case <-time.After(2 * time.Minute):
			f.Error("a token whose webhook hangs has no response")
		}
		f.wants("user of valid: 201 {\"username\":\"oidc:jane@example.com\",\"uid\":\"jane\",\"groups\":[\"devs\",\"system:authenticated\"],\"extra\":{\"example.com/tenant\":[\"blue\"]}}",
			"user of expired: 401", "user of another audience: 401", "user of another issuer: 401", "user of unknown key: 401", "user of forged claims: 401",
			"user of no signature: 401", "user of signed with the public key: 401", "user of unverified email: 401", "user of system user: 401", "user of masters: 401",
			"anonymous /livez: 200", "anonymous /version: 401", "anonymous /livez/ping: 401", "anonymous /version after it: 401",
			"user of bad: 401", "user of broken: 401", "user of good-elsewhere: 401", "a webhook that hangs: 401", "user of a wrong bootstrap token: 401",
			"system:bootstrap:abcdef", "user of the old key: 401", "user of the new key: 201", "user of the audience from before: 401",
			"guarded GET /api/v1/namespaces/default/configmaps/rejected: 403", "guarded GET /api/v1/namespaces/kube-public/configmaps/rejected: 200",
			"guarded GET /api/v1/namespaces/default/configmaps/broken: 500", "guarded GET /api/v1/namespaces/default/secrets/permitted: 200")
	})
}

// TestAccessFlagsLikeKubeAPIServer compares kubeweir and kube-apiserver with --oidc-* and
// --authorization-webhook-*.
func TestAccessFlagsLikeKubeAPIServer(t *testing.T) {
	issued, hooks := newIssuer(t), newHook(t)
	ca := writeFile(t, filepath.Join(t.TempDir(), "issuer.crt"), string(caOf(issued.Server)))
	configure := func(t *testing.T, server *envtest.APIServer) {
		server.Configure().Set("oidc-issuer-url", issued.URL).Set("oidc-client-id", "kubernetes").Set("oidc-ca-file", ca).
			Set("oidc-username-prefix", "id:").Set("oidc-groups-claim", "groups").Set("oidc-groups-prefix", "id:").
			Set("oidc-required-claim", "team=storage", "tenant=blue").Set("oidc-signing-algs", "RS256", "RS512").
			Set("authorization-mode", "Node", "Webhook", "RBAC").Set("authorization-webhook-config-file", hooks.kubeconfig(t, "/access")).
			Set("authorization-webhook-version", "v1").Set("authorization-webhook-cache-authorized-ttl", "0s").Set("authorization-webhook-cache-unauthorized-ttl", "0s").
			Set("anonymous-auth", "true")
	}
	compare(t, configure, func(ctx context.Context, f *flagged) {
		hooks.set(0, false)
		f.reaches(ctx, "a valid token", "201", func() string { return issued.token(nil) })
		tokens := issued.tokens(f.T)
		for _, name := range slices.Sorted(maps.Keys(tokens)) {
			f.whoAmI(ctx, name, tokens[name])
			f.review(ctx, name, tokens[name])
		}
		jane := tokens["valid"]
		f.permit(ctx, "id:devs")
		f.must(testbed.Poll(ctx, time.Minute, func() error {
			if code, text := f.do(ctx, http.MethodGet, "/api/v1/namespaces/default/configmaps/other", jane, ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		}))
		f.reads(ctx, "working", jane, "permitted", "rejected", "both", "other")
		f.records(ctx, "list", http.MethodGet, "/api/v1/namespaces/default/secrets?limit=1", jane, "")
		f.records(ctx, "create", http.MethodPost, "/api/v1/namespaces/default/secrets", jane, `{"metadata":{"name":"x"}}`)
		f.records(ctx, "anonymous", http.MethodGet, "/api/v1/namespaces/default/secrets/other", "", "")
		code, _ := f.do(ctx, http.MethodGet, "/api/v1/namespaces/default/secrets/permitted", "", "")
		f.record("anonymous permitted", nil, code)
		hooks.set(http.StatusInternalServerError, false)
		f.reads(ctx, "broken", jane, "permitted", "other")
		hooks.set(http.StatusForbidden, false)
		f.reads(ctx, "forbidden", jane, "permitted")
		hooks.set(0, false)
		f.reads(ctx, "working again", jane, "permitted", "rejected")
		f.wants("user of valid: 201 {\"username\":\"id:jane\",\"groups\":[\"id:devs\",\"system:authenticated\"]}",
			"user of expired: 401", "user of another audience: 401", "user of another issuer: 401", "user of unknown key: 401", "user of forged claims: 401",
			"user of no signature: 401", "user of signed with the public key: 401", "user of another team: 401", "user of another algorithm: 401",
			"user of masters: 201 {\"username\":\"id:jane\",\"groups\":[\"id:system:masters\",\"system:authenticated\"]}",
			"working GET /api/v1/namespaces/default/secrets/permitted: 200", "working GET /api/v1/namespaces/default/configmaps/rejected: 403",
			"working GET /api/v1/namespaces/default/secrets/other: 403", "broken GET /api/v1/namespaces/default/secrets/permitted: 500",
			"broken GET /api/v1/namespaces/default/configmaps/permitted: 200", "anonymous: 403")
	})
}
