package upstream

import (
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/proxy/upstream/header"
)

// Credentials select the credentials with which a request is forwarded. The zero value is the
// safest: the client's own token, or none.
type Credentials struct {
	As As
	// KeepImpersonation passes on the Impersonate-* headers of the request, which are removed
	// otherwise. With AsClient the upstream authorizes them against the client's own token. With
	// AsGateway the caller vouches for them: they identify a client that authenticated by its
	// certificate or front proxy, and must not be the client's own.
	KeepImpersonation bool
	// OwnImpersonation is true if the client has the gateway's own identity, and sent the
	// Impersonate-* headers itself: their rejection is for the client.
	OwnImpersonation bool
	// User is the client, for an upstream in this process, which trusts the caller and authorizes
	// KeepImpersonation against User. No credential of the client is passed on then. It must be nil
	// for any other upstream, and with AsGateway.
	User user.Info
}

// As selects whose credentials a forwarded request carries.
type As uint8

const (
	// AsClient sends the client's own bearer token, or none, on a connection without the gateway's
	// credentials; or it is the client that User names.
	AsClient As = iota
	// AsGateway sends the gateway's own credentials.
	AsGateway
)

// identity returns what the header of the request keeps.
func (c *Credentials) identity() header.Identity {
	return header.Identity{Token: c.As == AsClient && c.User == nil, Impersonation: c.KeepImpersonation}
}
