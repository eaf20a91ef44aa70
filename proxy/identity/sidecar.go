package identity

import (
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
)

// The sidecar listener gives the gateway's own identity to everyone who reaches
// it. On a loopback address that includes every web page open in a browser of
// this machine: by a host name that its owner points to 127.0.0.1 (DNS
// rebinding), and by WebSockets, which browsers let a page open to any address.
// A browser tells both in headers that a page cannot change, Host and Origin.

// checkSidecar refuses a request that came over TCP by a name that is not this
// machine's own, or from a web page of elsewhere. A unix socket is out of a
// browser's reach.
func (a *Authenticator) checkSidecar(r *api.Request) error {
	if !strings.Contains(r.RemoteAddr, ":") {
		return nil
	}
	if !a.sidecarHost(r.Host) {
		return sidecarRefusal("the Host header is not an address of this machine")
	}
	if origin := r.Header.Get("Origin"); origin != "" && !a.sidecarOrigin(origin) {
		return sidecarRefusal("the request comes from a web page of elsewhere")
	}
	return nil
}

func sidecarRefusal(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	err.ErrStatus.Message = "forbidden: " + why
	return err
}

// sidecarHost reports whether a Host header names this machine's loopback
// interface, or a host that the options allow.
func (a *Authenticator) sidecarHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(a.opts.SidecarHosts, func(allowed string) bool { return strings.EqualFold(allowed, host) })
}

func (a *Authenticator) sidecarOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && a.sidecarHost(u.Host)
}
