package authn

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestSetUpstreamHeader(t *testing.T) {
	alice := NewUser(&user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"a", "b"},
		Extra: map[string][]string{"example.org/A%": {"x", "y"}, "k": {"v"}, "none": nil}})
	certified := api.Header{{Name: "Impersonate-User", Value: "alice"}, {Name: "Impersonate-Uid", Value: "1"},
		{Name: "Impersonate-Group", Value: "a"}, {Name: "Impersonate-Group", Value: "b"},
		{Name: "Impersonate-Extra-example.org%2F%41%25", Value: "x"}, {Name: "Impersonate-Extra-example.org%2F%41%25", Value: "y"},
		{Name: "Impersonate-Extra-k", Value: "v"}}
	for _, test := range []struct {
		id      *Identity
		want    api.Header
		gateway bool
	}{
		{&Identity{User: alice, Source: Gateway}, nil, true},
		{&Identity{User: alice, Source: BearerToken, Token: "t"}, api.Header{{Name: "Authorization", Value: "Bearer t"}}, false},
		{&Identity{User: alice, Source: ClientCertificate}, certified, true},
		{&Identity{User: alice, Source: FrontProxy}, certified, true},
		{&Identity{User: NewUser(&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}), Source: Anonymous},
			nil, false},
	} {
		s := &Subject{Identity: test.id, User: test.id.User}
		// Headers that slipped in meanwhile do not get through.
		h := api.Header{{Name: "impersonate-group", Value: "system:masters"}, {Name: "authorization", Value: "Bearer y"}}
		if err := s.SetUpstreamHeader(&h); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h, test.want) {
			t.Errorf("%v: %v\nwant %v", test.id.Source, h, test.want)
		}
		if s.GatewayCredentials() != test.gateway {
			t.Errorf("%v: GatewayCredentials = %v", test.id.Source, !test.gateway)
		}
	}
}

// TestUnfitForHeaders: names that a header would turn into other names.
func TestUnfitForHeaders(t *testing.T) {
	for _, u := range []user.DefaultInfo{
		{Name: "admin "}, {Name: " admin"}, {Name: "a\r\nImpersonate-Group: system:masters"}, {Name: "a\tb"}, {Name: "a\x00"},
		{Name: "a", Groups: []string{"system:masters "}}, {Name: "a", UID: "\n"}, {Name: "a", Extra: map[string][]string{"k": {" v"}}},
	} {
		s := &Subject{Identity: &Identity{Source: ClientCertificate}, User: NewUser(&u)}
		if err := s.SetUpstreamHeader(&api.Header{}); err == nil {
			t.Errorf("%+v was passed on", u)
		}
	}
}

// FuzzFrontProxyHeaders compares with kube-apiserver's authenticator.
func FuzzFrontProxyHeaders(f *testing.F) {
	f.Add("alice", "1", "a,,b", "k=v,K=w,example.org%2Fx=1,%=2")
	f.Fuzz(func(t *testing.T, name, uid, groups, extra string) {
		std, own := make(http.Header), api.Header{}
		add := func(key, value string) {
			std.Add(key, value)
			own.Add(http.CanonicalHeaderKey(key), value)
		}
		add("X-Remote-User", name)
		add("X-Remote-Uid", uid)
		for g := range strings.SplitSeq(groups, ",") {
			add("X-Remote-Group", g)
		}
		seen := make(map[string]bool)
		for kv := range strings.SplitSeq(extra, ",") {
			k, v, _ := strings.Cut(kv, "=")
			for decoded := range extraValues(api.Header{{Name: k}}, "") {
				if !seen[decoded] {
					add("X-Remote-Extra-"+k, v)
					seen[decoded] = true
				}
			}
		}
		upstream, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
		if err != nil {
			t.Fatal(err)
		}
		want, ok, err := upstream.AuthenticateRequest(&http.Request{Header: std})
		if err != nil {
			t.Fatal(err)
		}
		var opts RequestHeaderOptions
		opts.setDefaults()
		got := (&frontProxy{opts: opts}).user(own)
		if ok != (got != nil) {
			t.Fatalf("%v: user %v, upstream ok = %v", own, got, ok)
		}
		if ok {
			w := authenticatedUser(user.DefaultInfo{Name: want.User.GetName(), UID: want.User.GetUID(), Groups: want.User.GetGroups(), Extra: want.User.GetExtra()})
			sameUser(t, got, w)
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

// TestUsersDoNotCollide: no way to write one user's fields yields another's key.
func TestUsersDoNotCollide(t *testing.T) {
	seen := make(map[Digest]user.DefaultInfo)
	for _, u := range []user.DefaultInfo{
		{Name: "a"}, {UID: "a"}, {Groups: []string{"a"}}, {Groups: []string{"a", ""}}, {Groups: []string{"", "a"}}, {},
		{Name: "a", UID: "b"}, {Name: "ab"}, {Name: "b", UID: "a"}, {Groups: []string{"ab"}}, {Groups: []string{"a", "b"}},
		{Extra: map[string][]string{"a": {"b"}}}, {Extra: map[string][]string{"a": {"b", ""}}}, {Extra: map[string][]string{"a": nil, "b": nil}},
		{Extra: map[string][]string{"a": nil}}, {Groups: []string{"a"}, Extra: map[string][]string{"b": nil}},
	} {
		d := NewUser(&u).digest
		if other, ok := seen[d]; ok {
			t.Errorf("%+v and %+v have one digest", u, other)
		}
		seen[d] = u
	}
}
