package config

// ReviewsClients reports whether clients are expected who have identities of their
// own, about whom the cluster is asked. On the plaintext listener, and with the token of
// ServiceAccountDir, everybody is the gateway.
func (g *Gateway) ReviewsClients() bool {
	return g.Listen != "" && (g.ServiceAccountDir == "" || g.Impersonates())
}

// Impersonates reports whether there may be clients without a token that could be passed
// on: known by a certificate, or by an authenticating proxy.
func (g *Gateway) Impersonates() bool {
	return g.Listen != "" && (g.Authentication.ClientCAFile != "" || g.Authentication.RequestHeader.CAFile != "")
}
