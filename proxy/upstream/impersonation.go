package upstream

import (
	"bytes"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/status"
	"github.com/kubeweir/kubeweir/reason"
)

// refusedIdentity answers a request that was sent with the gateway's credentials in a
// client's name, and refused. A refusal of the client is passed on, as is what a client
// with the gateway's own identity asked for. One of the gateway
// (it may not impersonate, as nobody may while kube-apiserver loads its RBAC, or is not
// known) is no answer to the client, who is not told who the gateway is.
func (x *forwarding) refusedIdentity(out *api.Response, body io.Reader) *api.Response {
	buf := x.c.buffers.Get().(*[]byte)
	n, err := fill(body, *buf)
	if err == nil { // larger than any Status of kube-apiserver's: from a proxied server
		x.download(out, body, buf, n)
		return out
	}
	content := bytes.Clone((*buf)[:n])
	x.c.buffers.Put(buf)
	x.end()
	switch {
	case x.left():
		return &api.Response{Status: api.StatusClientLeft}
	case err != io.EOF: // Readers return it bare.
		x.c.logFailure(x.broke(err), x.r)
		return x.broken()
	case x.cred.OwnImpersonation && x.resp.StatusCode == 403, !aboutGateway(content):
		out.Body, out.Length = content, int64(n)
		return out
	}
	if x.c.identityErrors.allow() {
		x.c.log.Warn("the upstream refuses the gateway's identity; unless it has just been started, "+
			"that lacks the right to impersonate (`kubeweir rbac` prints what it needs), or is not good any more",
			"status", x.resp.Status, "answer", string(content))
	}
	message := "the gateway cannot ask the upstream in your name at present"
	if x.resp.StatusCode == 403 {
		message = notImpersonated
	}
	return x.refused(reason.GatewayIdentityRefused, comeBack(message))
}

// notImpersonated is for clients whom the gateway may not impersonate.
const notImpersonated = "the gateway cannot ask the upstream in your name: it lacks the right to impersonate you, unless the API server has only just started. " +
	"On Kubernetes 1.36 and later it needs the rights that `kubeweir rbac` prints; older clusters, and the group system:masters, need " +
	"rbac.impersonation=unconstrained (chart) or `kubeweir rbac --impersonation unconstrained`"

// aboutGateway reports whether a refusal is kube-apiserver's of the impersonation, or
// of the credentials. The client's own impersonation was decided before, so that no
// other can be meant. What is proxied (pods, services) refuses in words of its own.
func aboutGateway(content []byte) bool {
	said, ok := status.Parse(content)
	if !ok { // YAML, perhaps
		return bytes.Contains(content, []byte("cannot impersonate"))
	}
	return said.Reason == metav1.StatusReasonUnauthorized || bytes.Contains([]byte(said.Message), []byte("cannot impersonate"))
}
