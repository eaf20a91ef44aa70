package authn

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
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
	reviewer := &reviewtest.Tokens{}
	reviewer.Set(janeToken, authenticationv1.UserInfo{Username: "jane", UID: "7", Groups: []string{"devs"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}})
	a, err := New(Options{
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
	reviewer := &reviewtest.Tokens{}
	reviewer.Set(janeToken, authenticationv1.UserInfo{Username: "jane"})
	a, err := New(Options{TokenReviewer: reviewer, ClientCAFile: ca.file(), Anonymous: true})
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
	a, err := New(Options{})
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
	a, err := New(Options{SidecarHosts: []string{"node.local"}})
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
