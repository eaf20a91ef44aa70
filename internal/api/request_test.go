package api

import "testing"

func TestPlainPath(t *testing.T) {
	for _, test := range []struct {
		path, raw string
		want      bool
	}{
		{"/", "/", true},
		{"/api", "/api", true},
		{"/apis/", "/apis/", true},
		{"/api/v1/namespaces/a/pods/b/log", "/api/v1/namespaces/a/pods/b/log", true},
		{"/api/v1/namespaces/a/services/https:b:1", "/api/v1/namespaces/a/services/https%3Ab%3A1", true},
		{"/api/v1/pods//", "/api/v1/pods//", false},
		{"/api/v1//pods", "/api/v1//pods", false},
		{"/api/v1/../v1/pods", "/api/v1/../v1/pods", false},
		{"/api/v1/pods/a/exec", "/api/v1/pods/a%2Fexec", false},
		{"/api/v1/pods/a%2Fexec", "/api/v1/pods/a%252Fexec", false},
		{"/api/v1/pods/a;x/exec", "/api/v1/pods/a;x/exec", false},
		{"", "", true},
	} {
		r := Request{Path: test.path, RawPath: test.raw}
		if r.PlainPath() != test.want {
			t.Errorf("%q, %q: %v", test.path, test.raw, !test.want)
		}
	}
}
