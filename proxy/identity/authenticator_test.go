package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

const janeToken = "jane-secret-token"

func webSocketHeader(protocols string) api.Header {
	return api.Header{{Name: "Upgrade", Value: "websocket"}, {Name: "Connection", Value: "keep-alive, Upgrade"},
		{Name: "Sec-Websocket-Protocol", Value: protocols}}
}

func inProtocol(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

func TestAuthenticate(t *testing.T) {
	clientCA, proxyCA, otherCA := newTestCA(t, "clients"), newTestCA(t, "proxies"), newTestCA(t, "others")
	reviewer := &fakeTokens{}
	reviewer.set(janeToken, authenticationv1.UserInfo{Username: "jane", UID: "7", Groups: []string{"devs"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}})
	a, err := NewAuthenticator(AuthenticatorOptions{
		TokenReviewer: reviewer, ClientCAFile: clientCA.file(), Anonymous: true,
		RequestHeader: RequestHeaderOptions{CAFile: proxyCA.file(), AllowedNames: []string{"front-proxy"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	bob := clientCA.client(pkix.Name{CommonName: "bob", Organization: []string{"ops", "devs"},
		ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.X509UID(), Value: "42"}}})
	proxy, impostor := proxyCA.client(pkix.Name{CommonName: "front-proxy"}), proxyCA.client(pkix.Name{CommonName: "impostor"})
	stranger := otherCA.client(pkix.Name{CommonName: "bob"})
	nameless := clientCA.client(pkix.Name{Organization: []string{"ops"}})

	bearer := func(token string) api.Header { return api.Header{{Name: "Authorization", Value: "Bearer " + token}} }
	remote := api.Header{{Name: "X-Remote-User", Value: "carol"}, {Name: "X-Remote-Group", Value: "a"},
		{Name: "X-Remote-Group", Value: ""}, {Name: "x-remote-group", Value: "b"}, {Name: "X-Remote-Uid", Value: "9"},
		{Name: "X-Remote-Extra-Example.org%2fScope", Value: "x"}, {Name: "X-Remote-Extra-example.org%2FscopE", Value: "y"},
		{Name: "X-Remote-Extra-Bad%zz", Value: "z"}}
	jane := &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"a", "b"}}}
	anonymous := &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	carol := &user.DefaultInfo{Name: "carol", UID: "9", Groups: []string{"a", "b", "system:authenticated"},
		Extra: map[string][]string{"example.org/scope": {"x", "y"}, "bad%zz": {"z"}}}

	tests := []struct {
		name   string
		header api.Header
		certs  []*x509.Certificate
		source Source
		user   *user.DefaultInfo // nil: 401
	}{
		{"nothing", nil, nil, Anonymous, anonymous},
		{"token", bearer(janeToken), nil, BearerToken, jane},
		{"token, scheme in lower case", api.Header{{Name: "authorization", Value: " bearer " + janeToken}}, nil, BearerToken, jane},
		{"bad token", bearer("nope"), nil, 0, nil},
		{"empty token", api.Header{{Name: "Authorization", Value: "Bearer "}}, nil, Anonymous, anonymous},
		{"another scheme", api.Header{{Name: "Authorization", Value: "Basic abc"}}, nil, Anonymous, anonymous},
		{"certificate", nil, bob, ClientCertificate, nil},
		{"certificate before token", bearer(janeToken), bob, ClientCertificate, nil},
		{"certificate and bad token", bearer("nope"), bob, ClientCertificate, nil},
		{"certificate without a name", nil, nameless, 0, nil},
		{"strange certificate", nil, stranger, 0, nil},
		{"strange certificate and token", bearer(janeToken), stranger, BearerToken, jane},
		{"front proxy", remote, proxy, FrontProxy, carol},
		{"front proxy without headers", nil, proxy, 0, nil},
		{"front proxy's headers without a certificate", remote, nil, Anonymous, anonymous},
		{"front proxy's headers with a token", append(bearer(janeToken), remote...), nil, BearerToken, jane},
		{"front proxy's headers with a client certificate", remote, bob, ClientCertificate, nil},
		{"front proxy of another name", remote, impostor, 0, nil},
		{"front proxy for anonymous", api.Header{{Name: "X-Remote-User", Value: "system:anonymous"}}, proxy, FrontProxy,
			&user.DefaultInfo{Name: "system:anonymous"}},
		{"WebSocket token", webSocketHeader("v4.channel.k8s.io, " + inProtocol(janeToken)), nil, BearerToken, jane},
		{"WebSocket token alone", webSocketHeader(inProtocol(janeToken)), nil, 0, nil},
		{"two WebSocket tokens", webSocketHeader(inProtocol(janeToken) + ",a," + inProtocol(janeToken)), nil, 0, nil},
		{"malformed WebSocket token", webSocketHeader("a,base64url.bearer.authorization.k8s.io.%%"), nil, 0, nil},
		{"WebSocket token without an upgrade", api.Header{{Name: "Sec-WebSocket-Protocol", Value: "a," + inProtocol(janeToken)}}, nil, Anonymous, anonymous},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &api.Request{Header: append(api.Header{{Name: "Accept", Value: "a"}}, test.header...), Upgrade: test.header.Get("Upgrade"), PeerCertificates: test.certs}
			id, err := a.Authenticate(t.Context(), r)
			if test.source == 0 {
				if !errors.Is(err, ErrUnauthenticated) || StatusError(err).ErrStatus.Code != 401 {
					t.Fatalf("err = %v, want 401", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if id.Source != test.source {
				t.Errorf("source = %v, want %v", id.Source, test.source)
			}
			if test.source == BearerToken && string(id.Token) != janeToken || test.source != BearerToken && id.Token != "" {
				t.Errorf("token = %q", string(id.Token))
			}
			want := test.user
			if test.source == ClientCertificate {
				want = &user.DefaultInfo{Name: "bob", UID: "42", Groups: []string{"ops", "devs", "system:authenticated"},
					Extra: id.User.GetExtra()}
				if ids := id.User.GetExtra()[user.CredentialIDKey]; len(ids) != 1 || !strings.HasPrefix(ids[0], "X509SHA256=") {
					t.Errorf("credential id = %q", ids)
				}
			}
			if !reflect.DeepEqual(id.User.info, *want) {
				t.Errorf("user = %+v, want %+v", id.User.info, *want)
			}
			for _, f := range r.Header {
				protocols := strings.EqualFold(f.Name, webSocketProtocols) && (f.Value == "a" || f.Value == "v4.channel.k8s.io")
				if f.Name != "Accept" && f.Name != "Upgrade" && f.Name != "Connection" && !protocols {
					t.Errorf("header %q: %q left", f.Name, f.Value)
				}
			}
		})
	}
}

// TestSubprotocolsLeft: a token by which nobody was authenticated stays a subprotocol, which the handshake is judged by as
// kube-apiserver judges it.
func TestSubprotocolsLeft(t *testing.T) {
	ca := newTestCA(t, "clients")
	reviewer := &fakeTokens{}
	reviewer.set(janeToken, authenticationv1.UserInfo{Username: "jane"})
	a, err := NewAuthenticator(AuthenticatorOptions{TokenReviewer: reviewer, ClientCAFile: ca.file(), Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	bob := ca.client(pkix.Name{CommonName: "bob"})
	jane, bad := inProtocol(janeToken), inProtocol("nope")
	for _, test := range []struct {
		protocols     []string // lines
		authorization string
		certs         []*x509.Certificate
		want          string // all lines
	}{
		{[]string{jane + ", a"}, "", nil, "a"},
		{[]string{"a", jane}, "", nil, "a"},
		{[]string{"a, " + jane, "b"}, "", nil, "a,b"},
		{[]string{jane + ","}, "", nil, ""},
		{[]string{jane + ", a"}, "Bearer nope", nil, "a"},
		{[]string{jane + ", a"}, "Bearer " + janeToken, nil, jane + ", a"},
		{[]string{bad + ", a", "b"}, "Bearer " + janeToken, nil, bad + ", a|b"},
		{[]string{jane}, "Bearer " + janeToken, nil, jane},
		{[]string{jane + ", a"}, "", bob, jane + ", a"},
		{[]string{bad + ", a"}, "", nil, "a"}, // refused
		{[]string{"a, b"}, "", nil, "a, b"},
	} {
		r := &api.Request{Upgrade: "websocket", PeerCertificates: test.certs, Header: api.Header{{Name: "Authorization", Value: test.authorization}}}
		for _, line := range test.protocols {
			r.Header.Add("Sec-Websocket-Protocol", line)
		}
		_, err := a.Authenticate(t.Context(), r)
		if got := strings.Join(r.Header.Values(webSocketProtocols), "|"); got != test.want {
			t.Errorf("%q with %q: %q is left, want %q (%v)", test.protocols, test.authorization, got, test.want, err)
		}
	}
	for _, r := range []*api.Request{{}, {Upgrade: "websocket", Listener: api.ListenerSidecar}} {
		r.Header = api.Header{{Name: "Authorization", Value: "Bearer " + janeToken}, {Name: "Sec-Websocket-Protocol", Value: "a, " + jane}}
		if _, err := a.Authenticate(t.Context(), r); err != nil || r.Header.Get(webSocketProtocols) != "a" {
			t.Errorf("%q, listener %v: %q is left, %v", r.Upgrade, r.Listener, r.Header.Get(webSocketProtocols), err)
		}
	}
}

func TestAnonymousOff(t *testing.T) {
	a, err := NewAuthenticator(AuthenticatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []api.Header{nil, {{Name: "Authorization", Value: "Bearer x"}}} {
		if _, err := a.Authenticate(t.Context(), &api.Request{Header: h}); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%v: err = %v, want ErrUnauthenticated", h, err)
		}
	}
}

func TestSidecar(t *testing.T) {
	a, err := NewAuthenticator(AuthenticatorOptions{SidecarHosts: []string{"node.local"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		addr, host, origin string
		ok                 bool
		site               string
	}{
		{"127.0.0.1:5", "127.0.0.1:8001", "http://127.0.0.1:8001", true, "a WebSocket"},
		{"127.0.0.1:5", "LocalHost", "http://localhost:80", true, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "", true, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "http://127.0.0.1:3000", false, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "http://localhost:8001", false, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "https://127.0.0.1:8001", true, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "https://127.0.0.1:3000", false, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8001", "http://127.0.0.1", false, "a WebSocket"},
		{"127.0.0.1:5", "127.0.0.1:8080", "", true, ""},
		{"127.0.0.1:5", "localhost", "", true, ""},
		{"[::1]:5", "[::1]:8080", "", true, ""},
		{"[::1]:5", "[::1]", "", true, ""},
		{"127.0.0.1:5", "Node.local:8080", "", true, ""},
		{"127.0.0.1:5", "evil.example:8080", "", false, ""},
		{"127.0.0.1:5", "10.0.0.1", "", false, ""},
		{"127.0.0.1:5", "", "", false, ""},
		{"127.0.0.1:5", "localhost", "http://localhost:3000", true, ""},
		{"127.0.0.1:5", "localhost", "https://evil.example", false, ""},
		{"127.0.0.1:5", "localhost", "null", false, ""},
		{"127.0.0.1:5", "localhost", "", false, "cross-site"},
		{"127.0.0.1:5", "localhost", "", false, "same-site"},
		{"127.0.0.1:5", "localhost", "http://localhost:3000", false, "same-site"},
		{"127.0.0.1:5", "localhost", "http://localhost", true, "same-origin"},
		{"127.0.0.1:5", "localhost", "", true, "none"},
		{"@", "anything", "https://evil.example", true, ""},
	}
	for _, test := range tests {
		r := &api.Request{Listener: api.ListenerSidecar, RemoteAddr: test.addr, Host: test.host, Header: api.Header{
			{Name: "Authorization", Value: "Bearer x"}, {Name: "X-Remote-User", Value: "root"}, {Name: "Impersonate-User", Value: "root"},
			{Name: "Impersonate-Extra-A", Value: "b"}, {Name: "Accept", Value: "a"}}}
		if test.origin != "" {
			r.Header.Add("Origin", test.origin)
		}
		switch test.site {
		case "":
		case "a WebSocket": // of a browser that says no more
			r.Header.Add("Upgrade", "websocket")
		default:
			r.Header.Add("Sec-Fetch-Site", test.site)
		}
		id, err := a.Authenticate(t.Context(), r)
		if !test.ok {
			if err == nil || StatusError(err).ErrStatus.Code != 403 {
				t.Errorf("%+v: err = %v, want 403", test, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		if id.Source != Gateway {
			t.Errorf("%+v: source = %v", test, id.Source)
		}
		r.Header.Del("Origin")
		r.Header.Del("Sec-Fetch-Site")
		r.Header.Del("Upgrade")
		// Whom it asks to be, instead of the gateway, is not to be forgotten.
		if want := (api.Header{{Name: "Impersonate-User", Value: "root"}, {Name: "Impersonate-Extra-A", Value: "b"}, {Name: "Accept", Value: "a"}}); !slices.Equal(r.Header, want) {
			t.Errorf("%+v: left in the header: %v", test, r.Header)
		}
	}
}

// TestGatewayToken: it is nobody's else, is not sent to the cluster, and other tokens are reviewed as ever.
func TestGatewayToken(t *testing.T) {
	a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{GatewayToken: "own-token"})
	for token, want := range map[string]Source{"own-token": Gateway, janeToken: BearerToken} {
		id, err := byToken(t.Context(), a, token)
		if err != nil || id.Source != want || want == Gateway && id.Token != "" {
			t.Errorf("%s: %+v, %v, want %v", token, id, err, want)
		}
	}
	for _, token := range []string{"own-toke", "own-token2"} {
		if id, err := byToken(t.Context(), a, token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", token, id, err)
		}
	}
	if n := reviewer.count(); n != 3 {
		t.Errorf("%d reviews, want 3", n)
	}
	r := &api.Request{Header: webSocketHeader("a," + inProtocol("own-token"))}
	r.Upgrade = r.Header.Get("Upgrade")
	if id, err := a.Authenticate(t.Context(), r); err != nil || id.Source != Gateway {
		t.Errorf("WebSocket: %+v, %v", id, err)
	}
	if none, _ := newTokenAuthenticator(t, AuthenticatorOptions{}); none.isGatewayToken("") {
		t.Error("without a token of its own, none is one")
	}
}

// TestGatewayTokenOfAnother: it is refused without asking the cluster, which has no use for it, whether this gateway has a
// token of its own or not. A token that only begins so is somebody's.
func TestGatewayTokenOfAnother(t *testing.T) {
	own, another := NewGatewayToken(sha256.Sum256([]byte("own"))), NewGatewayToken(sha256.Sum256([]byte("another")))
	const named = "kubeweir-token-of-alice"
	for _, opts := range []AuthenticatorOptions{{GatewayToken: own}, {}} {
		a, reviewer := newTokenAuthenticator(t, opts)
		reviewer.set(named, authenticationv1.UserInfo{Username: "alice"})
		if id, err := byToken(t.Context(), a, string(another)); !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "another gateway") {
			t.Errorf("%+v, %v", id, err)
		}
		if n := reviewer.count(); n != 0 {
			t.Errorf("%d reviews, want none", n)
		}
		if id, err := byToken(t.Context(), a, named); err != nil || id.Source != BearerToken {
			t.Errorf("%+v, %v", id, err)
		}
	}
}

// newTokenAuthenticator knows janeToken.
func newTokenAuthenticator(t testing.TB, opts AuthenticatorOptions) (*Authenticator, *fakeTokens) {
	t.Helper()
	reviewer := &fakeTokens{}
	reviewer.set(janeToken, authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs"}})
	opts.TokenReviewer = reviewer
	a, err := NewAuthenticator(opts)
	if err != nil {
		t.Fatal(err)
	}
	return a, reviewer
}

func byToken(ctx context.Context, a *Authenticator, token string) (*Identity, error) {
	return a.Authenticate(ctx, &api.Request{Header: api.Header{{Name: "Authorization", Value: "Bearer " + token}}})
}

func TestTokenCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{})
		expect := func(token string, reviews int, valid bool) {
			t.Helper()
			if _, err := byToken(t.Context(), a, token); (err == nil) != valid {
				t.Errorf("err = %v, want valid = %v", err, valid)
			}
			if n := reviewer.count(); n != reviews {
				t.Errorf("%d reviews so far, want %d", n, reviews)
			}
		}
		expect(janeToken, 1, true)
		expect("bad", 2, false)
		expect(janeToken, 2, true)
		expect("bad", 2, false)
		time.Sleep(2 * time.Second)
		expect("bad", 3, false)
		expect(janeToken, 3, true)
		time.Sleep(8 * time.Second)
		reviewer.drop(janeToken)
		expect(janeToken, 4, false)
	})
}

func TestTokenReviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{})
		reviewer.wait = make(chan struct{})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // the first of them has its review under way
		gone, leave := context.WithCancel(t.Context())
		wg.Go(func() { // a client that leaves does not take the others with it
			if _, err := byToken(gone, a, janeToken); !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v, want canceled", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		close(reviewer.wait)
		wg.Wait()
		if n := reviewer.count(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
	})
}

func TestTokensWithoutUpstream(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		offline time.Duration
		code    int32 // of the answer while the upstream cannot be asked; 0: let in
	}{
		{"down", errDown, 0, 503},
		{"overloaded", apierrors.NewTooManyRequests("slow down", 1), 0, 503},
		{"starting", apierrors.NewServiceUnavailable("not yet"), 0, 503},
		{"not allowed to review", apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", errors.New("no")), time.Hour, 503},
		{"down, offline time", errDown, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: test.offline})
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Fatal(err)
				}
				reviewer.fail(test.err)
				time.Sleep(30 * time.Minute)
				_, err := byToken(t.Context(), a, janeToken)
				if test.code == 0 {
					if err != nil {
						t.Fatalf("a known token: %v", err)
					}
				} else if err == nil || StatusError(err).ErrStatus.Code != test.code {
					t.Errorf("err = %v, want %d", err, test.code)
				}
				if _, err := byToken(t.Context(), a, "unknown"); err == nil {
					t.Error("an unknown token was let in")
				}
				time.Sleep(time.Hour)
				if _, err := byToken(t.Context(), a, janeToken); err == nil {
					t.Error("let in after the offline time")
				}
				reviewer.fail(nil)
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Errorf("upstream back: %v", err)
				}
			})
		})
	}
}

// TestRevokedTokenOffline: the upstream's no ends the offline time of a token.
func TestRevokedTokenOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: time.Hour})
		_, _ = byToken(t.Context(), a, janeToken)
		time.Sleep(time.Minute)
		reviewer.drop(janeToken)
		_, _ = byToken(t.Context(), a, janeToken)
		time.Sleep(time.Minute)
		reviewer.fail(errDown)
		if _, err := byToken(t.Context(), a, janeToken); err == nil {
			t.Error("let in though the upstream refused it before it went away")
		}
	})
}

func TestTokenIsNeverShown(t *testing.T) {
	a, _ := newTokenAuthenticator(t, AuthenticatorOptions{})
	id, err := byToken(t.Context(), a, janeToken)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	for _, v := range []any{id, *id, id.Token, []any{id.Token}, map[string]any{"t": id.Token}} {
		log.Info("x", "v", v)
		text.Info("x", "v", v)
		fmt.Fprintf(&out, "%v %+v %#v %s %q\n", v, v, v, v, v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	if strings.Contains(out.String(), janeToken) {
		t.Errorf("the token is shown: %s", out.String())
	}
	for i := range a.tokens.answers.shards {
		for _, entry := range a.tokens.answers.shards[i].mu.entries {
			if strings.Contains(fmt.Sprintf("%+v %+v", entry, entry.value.user), janeToken) {
				t.Error("the token is in the cache")
			}
		}
	}
	_, err = byToken(t.Context(), a, "refused-token")
	if err == nil || strings.Contains(err.Error(), "refused-token") {
		t.Errorf("err = %v", err)
	}
}

func TestCAFileIsFollowed(t *testing.T) {
	old, young := newTestCA(t, "old"), newTestCA(t, "young")
	path := old.file()
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bob, carol := old.client(pkix.Name{CommonName: "bob"}), young.client(pkix.Name{CommonName: "carol"})
	a, err := NewAuthenticator(AuthenticatorOptions{ClientCAFile: path})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, bobOK, carolOK bool) {
		t.Helper()
		a.clientCerts.ca.next.Store(0) // caReload has passed
		for _, c := range []struct {
			certs []*x509.Certificate
			ok    bool
		}{{bob, bobOK}, {carol, carolOK}} {
			_, err := a.Authenticate(t.Context(), &api.Request{PeerCertificates: c.certs})
			if (err == nil) != c.ok {
				t.Errorf("%s: %s: err = %v, want ok = %v", when, c.certs[0].Subject.CommonName, err, c.ok)
			}
		}
	}
	expect("first", true, false)
	write(append(old.pem(), young.pem()...))
	expect("both", true, true)
	write([]byte("garbage"))
	expect("garbage keeps both", true, true)
	write(young.pem())
	expect("young", false, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("removed keeps young", false, true)
}

func TestCertificateExpires(t *testing.T) {
	ca := newTestCA(t, "ca")
	a, err := NewAuthenticator(AuthenticatorOptions{ClientCAFile: ca.file()})
	if err != nil {
		t.Fatal(err)
	}
	v := a.clientCerts
	bob := ca.client(pkix.Name{CommonName: "bob"})
	id, err := v.verify(bob, identityOfCertificate)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := v.verify(bob, identityOfCertificate); again != id {
		t.Error("verified again within the minute")
	}
	key := certKey{leaf: bob[0], pool: v.ca.current().pool}
	v.verified.put(key, verifiedCert{identity: id, expires: time.Now()}, 0, time.Hour, 0)
	if again, _ := v.verify(bob, identityOfCertificate); again == id {
		t.Error("an expired certificate was taken from memory")
	}
}

func TestBadCAFile(t *testing.T) {
	ca := newTestCA(t, "ca")
	for _, opts := range []AuthenticatorOptions{
		{ClientCAFile: "/does/not/exist"},
		{ClientCAFile: ca.file(), RequestHeader: RequestHeaderOptions{CAFile: "/does/not/exist"}},
		{ClientCAFile: os.Args[0]},
	} {
		if _, err := NewAuthenticator(opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
}

func TestClientCAs(t *testing.T) {
	a1, b1 := newTestCA(t, "a"), newTestCA(t, "b")
	for n, opts := range map[int]AuthenticatorOptions{
		0: {},
		1: {ClientCAFile: a1.file()},
		2: {ClientCAFile: a1.file(), RequestHeader: RequestHeaderOptions{CAFile: b1.file()}},
	} {
		a, err := NewAuthenticator(opts)
		if err != nil {
			t.Fatal(err)
		}
		want := x509.NewCertPool()
		if n == 0 {
			if a.ClientCAs() != nil {
				t.Error("a pool of nothing")
			}
			continue
		}
		want.AddCert(a1.cert)
		if n == 2 {
			want.AddCert(b1.cert)
		}
		if got := a.ClientCAs(); !got.Equal(want) || a.ClientCAs() != got {
			t.Errorf("%d files: wrong pool, or another each time", n)
		}
	}
}

func BenchmarkAuthenticateToken(b *testing.B) {
	a, reviewer := newTokenAuthenticator(b, AuthenticatorOptions{SuccessTTL: time.Hour})
	token := strings.Repeat("x", 1000)
	reviewer.set(token, authenticationv1.UserInfo{Username: "jane"})
	header := api.Header{{Name: "Accept", Value: "application/json"}, {Name: "User-Agent", Value: "kubectl"},
		{Name: "Accept-Encoding", Value: "gzip"}, {Name: "Authorization", Value: "Bearer " + token}}
	buf := make(api.Header, 0, len(header))
	b.ReportAllocs()
	for b.Loop() {
		r := &api.Request{Header: append(buf[:0], header...)}
		if _, err := a.Authenticate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthenticateCertificate(b *testing.B) {
	ca := newTestCA(b, "ca")
	a, err := NewAuthenticator(AuthenticatorOptions{ClientCAFile: ca.file()})
	if err != nil {
		b.Fatal(err)
	}
	r := &api.Request{PeerCertificates: ca.client(pkix.Name{CommonName: "bob"})}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFixedClientCAs: those of the options count beside those of the file.
func TestFixedClientCAs(t *testing.T) {
	fixed, filed, other := newTestCA(t, "fixed"), newTestCA(t, "filed"), newTestCA(t, "other")
	for _, file := range []string{"", filed.file()} {
		a, err := NewAuthenticator(AuthenticatorOptions{ClientCAFile: file, ClientCAs: fixed.pem()})
		if err != nil {
			t.Fatal(err)
		}
		for ca, good := range map[*testCA]bool{fixed: true, filed: file != "", other: false} {
			r := &api.Request{PeerCertificates: ca.client(pkix.Name{CommonName: "bob"})}
			if id, err := a.Authenticate(t.Context(), r); (err == nil) != good {
				t.Errorf("file %q, %s: %v, %v", file, ca.cert.Subject, id, err)
			}
		}
	}
}
