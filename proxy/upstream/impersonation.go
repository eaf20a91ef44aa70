package upstream

import (
	"bytes"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

// A request that was sent with the gateway's credentials on behalf of a client may be rejected. A
// rejection of the client is passed on. So is a rejection of an impersonation that a client with
// the gateway's own identity requested. A rejection of the gateway (it may not impersonate, as
// happens while kube-apiserver loads its RBAC, or its credentials are invalid) is not passed on,
// because clients must not learn who the gateway is.

// mayBeAboutGateway reports whether the response may reject the gateway.
func (x *forwarding) mayBeAboutGateway() bool {
	code := x.resp.StatusCode
	return x.purpose == forIdentity && (code == 401 || code == 403) && x.r.Method != http.MethodHead
}

// isAboutGateway reports whether content is kube-apiserver's rejection of the impersonation, or of
// the credentials. The client's own impersonation was decided before, so it cannot be meant. What
// is proxied (pods, services) rejects in words of its own.
func (x *forwarding) isAboutGateway(content []byte) bool {
	if x.cred.OwnImpersonation && x.resp.StatusCode == 403 {
		return false
	}
	parsed, ok := status.Parse(content)
	if !ok { // YAML, perhaps
		return bytes.Contains(content, []byte("cannot impersonate"))
	}
	return parsed.Reason == metav1.StatusReasonUnauthorized || strings.Contains(parsed.Message, "cannot impersonate")
}

// gatewayRejected responds when the upstream rejects the gateway.
func (x *forwarding) gatewayRejected(content []byte) *api.Response {
	const what = "the upstream refuses the gateway's identity; unless it has just been started, " +
		"that lacks the right to impersonate (`kubeweir rbac` prints what it needs), or is not good any more"
	x.c.logs.identity.Do(func() { x.c.log.Warn(what, "status", x.resp.Status, "error", string(content)) })
	message := "the gateway cannot forward the request as its user at present"
	if x.resp.StatusCode == 403 {
		message = notImpersonated
	}
	return x.reject(reason.GatewayIdentityRejected, retryLater(message))
}

// notImpersonated is for clients whom the gateway may not impersonate.
const notImpersonated = "the gateway cannot forward the request as its user: it lacks the right to impersonate you, unless the API server has only just started. " +
	"On Kubernetes 1.36 and later it needs the rights that `kubeweir rbac` prints; older clusters, and the group system:masters, need " +
	"rbac.impersonation=unconstrained (chart) or `kubeweir rbac --impersonation unconstrained`"
