package audit

import (
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	netutils "k8s.io/utils/net"

	"github.com/kubeweir/kubeweir/api"
)

// Source says where the answer to an audited request came from.
type Source string

// The sources.
const (
	Cached      Source = "cached"
	Collapsed   Source = "collapsed"
	Revalidated Source = "revalidated"
	// Forwarded is the upstream's own answer. Whether it allowed the request, and why,
	// only the upstream knows; its audit log has an event of the same ID.
	Forwarded Source = "forwarded"
)

// The annotations of an event. The first two are kube-apiserver's.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
	sourceAnnotation   = "kubeweir/source"
	clusterAnnotation  = "kubeweir/cluster"
	actionAnnotation   = "kubeweir/action"
)

// Event is what there is to say of a request at one stage.
type Event struct {
	// Stage is auditv1.StageResponseStarted, for watches and upgraded connections, or
	// auditv1.StageResponseComplete.
	Stage auditv1.Stage
	// Cluster is the name of the upstream where there are several, else "".
	Cluster string
	// Keep tells that the event must not be dropped: it is of a request that may have
	// changed something.
	Keep bool
	// ID is the request's Audit-Id.
	ID string
	// Request and Info are the request, read before Record returns and not kept.
	Request *api.Request
	Info    *api.RequestInfo
	// Received is when the request came.
	Received time.Time
	// User is who sent the request, nil if that could not be found out, and
	// ImpersonatedUser whom it acts as, nil without impersonation. Both are kept and must not change any more.
	User, ImpersonatedUser user.Info
	// Code is the HTTP status of the response. Status is the Status that a
	// failure was answered with, nil otherwise or when unknown; it is kept.
	Code   int
	Status *metav1.Status
	// Allowed and Reason are the authorizer's decision, of a request that was not
	// forwarded.
	Allowed bool
	Reason  string
	// Source is where the answer came from, "" for an answer of the gateway's own
	// making (a refusal).
	Source Source
	// Action is what an operator did at the console, "" for requests of the API.
	Action string
}

// record is an Event as it waits for the writer: values and strings only, and
// nothing of the request's header but what is written.
type record struct {
	stage              auditv1.Stage
	cluster            string
	id                 string
	path, query        string
	verb               string
	user, impersonated user.Info
	sourceIPs          []string
	userAgent          string
	resource           bool
	ref                auditv1.ObjectReference
	code               int
	status             *metav1.Status
	received, at       time.Time
	allowed            bool
	reason             string
	source             Source
	action             string
	size               int64 // of what only this event holds, in bytes, about
}

func newRecord(e *Event) record {
	r := record{
		stage: e.Stage, cluster: e.Cluster, id: e.ID, verb: e.Info.Verb,
		path: e.Request.RawPath, query: e.Request.RawQuery,
		user: e.User, impersonated: e.ImpersonatedUser,
		sourceIPs: sourceIPs(e.Request),
		userAgent: truncatedUserAgent(e.Request.Header.Get("User-Agent")),
		code:      e.Code, status: e.Status,
		received: e.Received, at: time.Now(),
		allowed: e.Allowed, reason: e.Reason, source: e.Source, action: e.Action,
	}
	if r.path == "" {
		r.path = e.Request.Path
	}
	if e.Info.IsResourceRequest {
		r.resource = true
		r.ref = auditv1.ObjectReference{
			Resource: e.Info.Resource, Subresource: e.Info.Subresource,
			Namespace: e.Info.Namespace, Name: e.Info.Name,
			APIGroup: e.Info.APIGroup, APIVersion: e.Info.APIVersion,
		}
	}
	r.size = int64(fixedSize + len(r.id) + len(r.path) + len(r.query) + len(r.userAgent) + len(r.reason) + len(r.action) + 16*len(r.sourceIPs))
	return r
}

// fixedSize is about the size of a record without its strings.
const fixedSize = 512

// kube-apiserver cuts user agents too (k8s.io/apiserver/pkg/audit/request.go).
const (
	maxUserAgent       = 1024
	userAgentTruncated = "...TRUNCATED"
)

func truncatedUserAgent(ua string) string {
	if len(ua) <= maxUserAgent {
		return ua
	}
	return ua[:maxUserAgent] + userAgentTruncated
}

// maxSourceIPs bounds the addresses of one event; a header can hold thousands.
const maxSourceIPs = 64

// sourceIPs lists the addresses of X-Forwarded-For, of X-Real-Ip unless it is
// among them, and of the peer unless it is the last (SourceIPs in
// k8s.io/apimachinery/pkg/util/net). All but the last are the client's claim.
func sourceIPs(r *api.Request) []string {
	var ips []net.IP
	add := func(s string, unless func(net.IP) bool) {
		if ip := netutils.ParseIPSloppy(s); ip != nil && !unless(ip) {
			ips = append(ips, ip)
		}
	}
	for part := range strings.SplitSeq(r.Header.Get("X-Forwarded-For"), ",") {
		if len(ips) == maxSourceIPs {
			break
		}
		add(strings.TrimSpace(part), func(net.IP) bool { return false })
	}
	add(r.Header.Get("X-Real-Ip"), func(ip net.IP) bool {
		for _, known := range ips {
			if known.Equal(ip) {
				return true
			}
		}
		return false
	})
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	add(host, func(ip net.IP) bool { return len(ips) > 0 && ips[len(ips)-1].Equal(ip) })

	list := make([]string, len(ips))
	for i, ip := range ips {
		list[i] = ip.String()
	}
	return list
}
