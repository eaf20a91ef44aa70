package config

// ReviewsClients reports whether the gateway authenticates or authorizes any clients by reviews of
// the cluster. Clients of the plaintext listener, and those with the gateway's own token, use the
// gateway's identity.
func (g *Gateway) ReviewsClients() bool {
	return g.Listen != "" && (g.ServiceAccountDir == "" || g.Impersonates())
}

// Impersonates reports whether there may be clients without a token to forward: clients that
// authenticate by a certificate or an authenticating proxy.
func (g *Gateway) Impersonates() bool {
	return g.Listen != "" && (g.Authentication.ClientCAFile != "" || g.Authentication.RequestHeader.CAFile != "")
}
