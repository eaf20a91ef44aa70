package server

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer authorizes requests: members of system:masters may do everything, all others what RBAC
// allows.
func (s *Server) Authorizer() authorizer.Authorizer { return s.access.Authorizer }

// AuthenticateToken authenticates a bearer token, as the Handler does for the Authorization header
// of a request.
func (s *Server) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	req := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(ctx)
	return s.access.Authenticator.AuthenticateRequest(req)
}
