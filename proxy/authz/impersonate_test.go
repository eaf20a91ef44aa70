package authz

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

var janeInfo = infoOf(jane)

func TestImpersonate(t *testing.T) {
	const authentication = "authentication.k8s.io"
	type permission = [5]string // group, resource, subresource, namespace, name
	as := func(pairs ...string) (h api.Header) {
		for i := 0; i < len(pairs); i += 2 {
			h.Add("Impersonate-"+pairs[i], pairs[i+1])
		}
		return h
	}
	tests := []struct {
		name      string
		header    api.Header
		user      *user.DefaultInfo // nil: a bad request
		requested []permission
	}{
		{"nobody", nil, &janeInfo, nil},
		{"empty user", as("User", ""), &janeInfo, nil},
		{"another header of the family", as("Nothing", "x"), &janeInfo, nil},
		{"user", as("User", "alice"), &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}},
			[]permission{{"", "users", "", "", "alice"}}},
		{"groups", as("User", "alice", "Group", "a", "group", "b"),
			&user.DefaultInfo{Name: "alice", Groups: []string{"a", "b", "system:authenticated"}},
			[]permission{{"", "users", "", "", "alice"}, {"", "groups", "", "", "a"}, {"", "groups", "", "", "b"}}},
		{"unauthenticated group", as("User", "alice", "Group", "system:unauthenticated"),
			&user.DefaultInfo{Name: "alice", Groups: []string{"system:unauthenticated"}},
			[]permission{{"", "users", "", "", "alice"}, {"", "groups", "", "", "system:unauthenticated"}}},
		{"anonymous", as("User", "system:anonymous"),
			&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
			[]permission{{"", "users", "", "", "system:anonymous"}}},
		{"service account", as("User", "system:serviceaccount:ns:sa"),
			&user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}},
			[]permission{{"", "serviceaccounts", "", "ns", "sa"}}},
		{"service account with groups", as("User", "system:serviceaccount:ns:sa", "Group", "g"),
			&user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"g", "system:authenticated"}},
			[]permission{{"", "serviceaccounts", "", "ns", "sa"}, {"", "groups", "", "", "g"}}},
		{"not a service account", as("User", "system:serviceaccount:ns"),
			&user.DefaultInfo{Name: "system:serviceaccount:ns", Groups: []string{"system:authenticated"}},
			[]permission{{"", "users", "", "", "system:serviceaccount:ns"}}},
		{"all", as("User", "alice", "Uid", "1", "Extra-Example.org%2fA", "x", "Extra-example.org%2fa", "y"),
			&user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"example.org/a": {"x", "y"}}},
			[]permission{{"", "users", "", "", "alice"}, {authentication, "uids", "", "", "1"},
				{authentication, "userextras", "example.org/a", "", "x"}, {authentication, "userextras", "example.org/a", "", "y"}}},
		{"group without user", as("Group", "a"), nil, nil},
		{"uid without user", as("Uid", "a"), nil, nil},
		{"extra without user", as("Extra-A", "a"), nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			access := &reviewtest.Access{Allow: reviewtest.Everything}
			a := New(Options{AccessReviewer: access})
			r := &api.Request{Header: append(slices.Clone(test.header), api.HeaderField{Name: "Accept", Value: "a"})}
			s, err := a.Impersonate(t.Context(), &authn.Identity{User: jane, Source: authn.ClientCertificate}, r)
			if test.user == nil {
				if err == nil || authn.StatusError(err).ErrStatus.Code != 400 || !strings.Contains(err.Error(), "without impersonating a user name") {
					t.Fatalf("err = %v, want 400", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(infoOf(s.User), *test.user) {
				t.Errorf("user = %+v, want %+v", infoOf(s.User), *test.user)
			}
			if s.Impersonated != (test.requested != nil) || s.UpstreamDecides {
				t.Errorf("impersonated = %v, upstream decides = %v", s.Impersonated, s.UpstreamDecides)
			}
			var requested []permission
			for _, spec := range access.Specs() {
				ra := spec.ResourceAttributes
				if spec.User != "jane" || ra.Verb != "impersonate" || ra.Version != "v1" {
					t.Errorf("asked %+v %+v", spec, ra)
				}
				requested = append(requested, permission{ra.Group, ra.Resource, ra.Subresource, ra.Namespace, ra.Name})
			}
			if !slices.Equal(requested, test.requested) {
				t.Errorf("asked %v, want %v", requested, test.requested)
			}
			for _, f := range r.Header {
				if f.Name != "Accept" && f.Name != "Impersonate-Nothing" {
					t.Errorf("%s left in the header", f.Name)
				}
			}
		})
	}
}

// gatewayUser is the gateway's own identity.
func gatewayUser(t *testing.T) *authn.User {
	t.Helper()
	auth, err := authn.New(authn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id, err := auth.Authenticate(t.Context(), &api.Request{Listener: api.ListenerSidecar, RemoteAddr: "@"})
	if err != nil {
		t.Fatal(err)
	}
	return id.User
}

// TestImpersonationDenied: what the rules of old do not allow is the upstream's
// to decide, if it can be asked with the client's own token.
func TestImpersonationDenied(t *testing.T) {
	notAdmins := func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Name != "admins" }
	header := api.Header{{Name: "Impersonate-User", Value: "alice"}, {Name: "Impersonate-Group", Value: "admins"}}
	for _, test := range []struct {
		name   string
		id     *authn.Identity
		header api.Header
		allow  func(*authorizationv1.SubjectAccessReviewSpec) bool
		denial string // "" when the upstream decides
	}{
		{"certificate", &authn.Identity{User: jane, Source: authn.ClientCertificate}, header, notAdmins,
			`pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "web"`},
		{"front proxy", &authn.Identity{User: jane, Source: authn.FrontProxy}, header, reviewtest.Nothing,
			`pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "web"`},
		{"service account", &authn.Identity{User: jane, Source: authn.FrontProxy}, api.Header{{Name: "Impersonate-User", Value: "system:serviceaccount:a:b"}}, reviewtest.Nothing,
			`pods is forbidden: User "jane" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" in the namespace "web"`},
		{"nobody", &authn.Identity{User: authn.NewUser(&user.DefaultInfo{Name: "system:anonymous"}), Source: authn.Anonymous}, header, reviewtest.Nothing, ""},
		{"token", &authn.Identity{User: jane, Source: authn.BearerToken, Token: "t"}, header, notAdmins, ""},
		{"gateway", &authn.Identity{User: gatewayUser(t), Source: authn.Gateway}, header, reviewtest.Everything, ""},
		{"token, node", &authn.Identity{User: jane, Source: authn.BearerToken, Token: "t"}, api.Header{{Name: "Impersonate-User", Value: "system:node:n"}}, reviewtest.Everything, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := New(Options{AccessReviewer: &reviewtest.Access{Allow: test.allow}})
			r := &api.Request{Method: "GET", Path: "/api/v1/namespaces/web/pods", Header: slices.Clone(test.header)}
			s, err := a.Impersonate(t.Context(), test.id, r)
			if test.denial != "" {
				if err == nil || err.Error() != test.denial || authn.StatusError(err).ErrStatus.Code != 403 {
					t.Errorf("err = %v\nwant  %v", err, test.denial)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !s.UpstreamDecides || s.Impersonated {
				t.Errorf("upstream decides = %v, impersonated = %v", s.UpstreamDecides, s.Impersonated)
			}
			if d, err := a.Authorize(t.Context(), s.User, listPods); err == nil || d.Allowed {
				t.Errorf("a read was decided: %+v, %v", d, err)
			}
			if err := s.SetUpstreamHeader(&r.Header); err != nil {
				t.Fatal(err)
			}
			var want api.Header
			if test.id.Token != "" {
				want.Add("Authorization", "Bearer t")
			}
			want = append(want, test.header...)
			if !slices.Equal(r.Header, want) {
				t.Errorf("forwarded with %v, want %v", r.Header, want)
			}
		})
	}
}

func TestImpersonationUnavailable(t *testing.T) {
	a := New(Options{AccessReviewer: &reviewtest.Access{Err: reviewtest.ErrDown}})
	r := &api.Request{Header: api.Header{{Name: "Impersonate-User", Value: "alice"}}}
	if _, err := a.Impersonate(t.Context(), &authn.Identity{User: jane, Source: authn.ClientCertificate}, r); err == nil || authn.StatusError(err).ErrStatus.Code != 503 {
		t.Errorf("err = %v, want 503", err)
	}
}

// upstreamImpersonation runs kube-apiserver's own filters: constrained tells
// which of the two, the one since 1.36 or the one before. It returns the user
// that they make of a request, or the status code.
func upstreamImpersonation(constrained bool, h http.Header, allow func(authorizer.Attributes) bool) (got user.Info, code int) {
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = request.UserFrom(r.Context()) })
	az := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if allow(a) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	handler := impersonation.WithImpersonation(next, az, codecs)
	if constrained {
		handler = impersonation.WithConstrainedImpersonation(next, az, codecs)
	}
	ctx := request.WithUser(context.Background(), user.Info(&janeInfo))
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods"})
	r := httptest.NewRequest("GET", "/api/v1/pods", nil).WithContext(ctx)
	r.Header = h
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return got, w.Code
}

// fitsHeader reports whether a value is read from a header as it was written.
func fitsHeader(value string) bool {
	return strings.TrimSpace(value) == value && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// FuzzImpersonation compares with kube-apiserver's filter, on the rules of old,
// and checks that what a client with a certificate is forwarded with makes the
// same user of it there.
func FuzzImpersonation(f *testing.F) {
	f.Add("alice", "", "a,b", "k=v", "")
	f.Add("", "1", "", "", "")
	f.Add("system:serviceaccount:ns:sa", "", "", "example.org%2fx=y,K=w,k=z", "users")
	f.Add("system:anonymous", "", ",", "%zz=1", "groups")
	f.Add("system:node:n", "2", "system:unauthenticated", "=", "userextras")
	f.Fuzz(func(t *testing.T, name, uid, groups, extra, denied string) {
		std, own := make(http.Header), api.Header{}
		add := func(key, value string) {
			if !fitsHeader(value) || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) {
				return // no transport would hand it in
			}
			std.Add(key, value)
			own.Add(http.CanonicalHeaderKey(key), value)
		}
		add("Impersonate-User", name)
		if uid != "" {
			add("Impersonate-Uid", uid)
		}
		if groups != "" {
			for g := range strings.SplitSeq(groups, ",") {
				add("Impersonate-Group", g)
			}
		}
		if extra != "" {
			keys := make(map[string]bool) // by decoded key: upstream's order of others is random
			for kv := range strings.SplitSeq(extra, ",") {
				k, v, _ := strings.Cut(kv, "=")
				decoded, err := url.PathUnescape(strings.ToLower(k))
				if err != nil {
					decoded = strings.ToLower(k)
				}
				if !keys[decoded] {
					add("Impersonate-Extra-"+k, v)
					keys[decoded] = true
				}
			}
		}
		allowed := func(resource string) bool { return denied == "" || resource != denied }
		for _, constrained := range []bool{false, true} {
			want, code := upstreamImpersonation(constrained, std.Clone(), func(a authorizer.Attributes) bool {
				return a.GetVerb() == "impersonate" && allowed(a.GetResource())
			})
			access := &reviewtest.Access{Allow: func(s *authorizationv1.SubjectAccessReviewSpec) bool { return allowed(s.ResourceAttributes.Resource) }}
			a := New(Options{AccessReviewer: access})
			s, err := a.Impersonate(t.Context(), &authn.Identity{User: jane, Source: authn.ClientCertificate}, &api.Request{Header: slices.Clone(own)})
			if err != nil {
				if got := int(authn.StatusError(err).ErrStatus.Code); got != code {
					t.Fatalf("%v: %v, upstream answers %d", own, err, code)
				}
				continue
			}
			if want == nil {
				t.Fatalf("%v: allowed, upstream answers %d", own, code)
			}
			sameUser(t, s.User, want)

			h := api.Header{}
			if err := s.SetUpstreamHeader(&h); err != nil {
				t.Fatalf("%+v: %v", infoOf(s.User), err)
			}
			forwarded := make(http.Header)
			for _, field := range h {
				forwarded.Add(field.Name, field.Value)
			}
			there, _ := upstreamImpersonation(constrained, forwarded, func(a authorizer.Attributes) bool { return a.GetVerb() == "impersonate" })
			sameUser(t, there, s.User)
		}
	})
}

func sameUser(t *testing.T, got, want user.Info) {
	t.Helper()
	if got == nil || want == nil || got.GetName() != want.GetName() || got.GetUID() != want.GetUID() ||
		!slices.Equal(got.GetGroups(), want.GetGroups()) ||
		!maps.EqualFunc(got.GetExtra(), want.GetExtra(), func(a, b []string) bool { return slices.Equal(a, b) }) {
		t.Fatalf("user %s\nwant %s", describe(got), describe(want))
	}
}

func describe(u user.Info) string {
	if u == nil {
		return "nobody"
	}
	return fmt.Sprintf("%q %q %q %q", u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
}
