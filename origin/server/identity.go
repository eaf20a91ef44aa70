package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer authorizes requests: members of system:masters may do everything, all others what RBAC
// allows.
func (s *Server) Authorizer() authorizer.Authorizer { return s.access.Authorizer }

// Anonymous reports whether requests without credentials are served as system:anonymous, and for which
// paths only; for all of them if there are none.
func (s *Server) Anonymous() (enabled bool, paths []string) {
	for _, c := range s.access.Anonymous.Conditions {
		paths = append(paths, c.Path)
	}
	return s.access.Anonymous.Enabled, paths
}

// AuthenticateToken authenticates a bearer token, as the Handler does for the Authorization header
// of a request.
func (s *Server) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return s.authenticateToken(ctx, s.access.Authenticator, token)
}

// AuthenticateLocalToken returns a function like AuthenticateToken that does not use the token webhook and the
// OpenID Connect issuers; nil if there is no webhook.
func (s *Server) AuthenticateLocalToken() func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if s.access.Local == nil {
		return nil
	}
	return func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return s.authenticateToken(ctx, s.access.Local, token)
	}
}

func (s *Server) authenticateToken(ctx context.Context, by authenticator.Request, token string) (*authenticator.Response, bool, error) {
	if strings.ContainsFunc(token, unicode.IsSpace) || token == "" {
		return nil, false, nil // only a part of it would be authenticated, or an anonymous request
	}
	ctx = authenticator.WithAudiences(ctx, s.access.Audiences)
	req := (&http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(ctx)
	return by.AuthenticateRequest(req)
}
