package config

import "time"

// KubeAPIServer has settings of kube-apiserver that a Standalone does not have: those of a program that
// is started with kube-apiserver's flags. The zero value of a field selects the default.
type KubeAPIServer struct {
	// RuntimeConfig are values of --runtime-config, such as api/beta=true. Default: the stable APIs.
	RuntimeConfig []string
	// AnonymousIsSet rejects a file of --authentication-config that configures anonymous requests.
	AnonymousIsSet bool
	// AcceptedIssuers are issuers of service account tokens that are accepted besides the one that signs.
	AcceptedIssuers []string
	// MaxTokenExpiration limits the lifetime of service account tokens. Default: no limit.
	MaxTokenExpiration time.Duration
	// NoExtendedTokens issues tokens to pods with the requested lifetime of an hour, and not of a year.
	NoExtendedTokens bool
	// JWKSURI is the URL of the keys in the discovery document of the issuer. Default: that of this server.
	JWKSURI string
	// PublishClientCAFile has aggregated API servers accept the client certificates of the client CA file
	// only. Default: also those of the generated CA.
	PublishClientCAFile bool
	// NoEndpoints leaves the endpoints of the Service kubernetes to others.
	NoEndpoints bool
	// HistoryAge is how long earlier versions can be read; below 0, they are not compacted. Default: 5
	// minutes.
	HistoryAge time.Duration
	// RequestHeader describes front proxies. Its lists of headers have no defaults. Default: no proxies.
	RequestHeader RequestHeader
	// ProxyClientCertFile and ProxyClientKeyFile authenticate the server to aggregated API servers.
	// Default: a generated certificate. With one of them or RequestHeader, aggregated API servers learn
	// RequestHeader, and otherwise how to verify the generated certificate.
	ProxyClientCertFile, ProxyClientKeyFile string
	// KubeletClientCertFile and KubeletClientKeyFile authenticate the server to kubelets. Default: a
	// generated certificate.
	KubeletClientCertFile, KubeletClientKeyFile string
	// KubeletCAFile verifies the certificates of kubelets. Default: they are not verified.
	KubeletCAFile string
	// KubeletAddressTypes are the types of node addresses by preference. Default: kube-apiserver's.
	KubeletAddressTypes []string
}
