package server

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// TestTokensWithSpaces checks that no part of a token is authenticated, nor an anonymous request in its place.
func TestTokensWithSpaces(t *testing.T) {
	s := buildWith(t, Options{})
	for _, token := range []string{"", " ", " x", "x y", "\tx", "x\n", "\u00a0x"} {
		if response, ok, err := s.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%q: %+v, %v", token, response.User, err)
		}
	}
	if response, ok, err := s.AuthenticateToken(t.Context(), "unknown"); ok {
		t.Errorf("%+v, %v, want no %s", response.User, err, user.Anonymous)
	}
}
