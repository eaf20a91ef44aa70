package config

import "time"

// KubeAPIServer has settings of kube-apiserver that a Standalone does not have: those of a program that
// is started with kube-apiserver's flags. The zero value of a field selects the default.
type KubeAPIServer struct {
	// AcceptedIssuers are issuers of service account tokens that are accepted besides the one that signs.
	AcceptedIssuers []string
	// MaxTokenExpiration limits the lifetime of service account tokens. Default: no limit.
	MaxTokenExpiration time.Duration
	// NoExtendedTokens issues tokens to pods with the requested lifetime of an hour, and not of a year.
	NoExtendedTokens bool
	// JWKSURI is the URL of the keys in the discovery document of the issuer. Default: that of this server.
	JWKSURI string
}
