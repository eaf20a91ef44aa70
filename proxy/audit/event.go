package audit

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	netutils "k8s.io/utils/net"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Source is the origin of the response to an audited request.
type Source string

// The sources.
const (
	Cached      Source = "cached"
	Collapsed   Source = "collapsed"
	Revalidated Source = "revalidated"
	// Forwarded is the upstream's own response. Only the upstream knows whether and why it allowed
	// the request; its audit log has an event of the same ID.
	Forwarded Source = "forwarded"
)

// Event describes a request at one stage.
type Event struct {
	// Stage is auditv1.StageResponseStarted, for watches and upgraded connections, or
	// auditv1.StageResponseComplete.
	Stage auditv1.Stage
	// Cluster is the name of the upstream if there are several, else "".
	Cluster string
	// Required is true if the event must not be dropped, because the request may have changed something.
	Required bool
	// ID is the request's Audit-Id.
	ID string
	// Request and Info are the request. Record does not keep them.
	Request *api.Request
	Info    *api.RequestInfo
	// Received is when the request came.
	Received time.Time
	// User is who sent the request, nil if that is unknown, and ImpersonatedUser whom it acts as, nil
	// without impersonation. Both are kept and must not change.
	User, ImpersonatedUser user.Info
	// Code is the HTTP status of the response. Status is the Status of a failure, nil otherwise or if
	// it is unknown; it is kept.
	Code   int
	Status *metav1.Status
	// Allowed and Reason are the authorizer's decision on a request that was not forwarded.
	Allowed bool
	Reason  string
	// Source is where the response came from, "" if the gateway made it itself (a rejection).
	Source Source
	// Action is what an operator did at the console, "" for requests of the API.
	Action string
}

// record is an Event that waits for the writer. It holds only those parts of the request that are
// written.
type record struct {
	Event
	path, query, verb, userAgent string
	sourceIPs                    []string
	ref                          auditv1.ObjectReference // zero without a resource
	at                           time.Time
	size                         int64 // of what only this event holds, in bytes, about
}

func newRecord(e *Event) record {
	r := record{
		Event: *e, verb: e.Info.Verb, path: e.Request.RawPath, query: e.Request.RawQuery, at: time.Now(),
		sourceIPs: sourceIPs(e.Request), userAgent: truncatedUserAgent(e.Request.Header.Get("User-Agent")),
	}
	r.Request, r.Info = nil, nil
	if r.path == "" {
		r.path = e.Request.Path
	}
	if e.Info.IsResourceRequest {
		r.ref = auditv1.ObjectReference{
			Resource: e.Info.Resource, Subresource: e.Info.Subresource,
			Namespace: e.Info.Namespace, Name: e.Info.Name,
			APIGroup: e.Info.APIGroup, APIVersion: e.Info.APIVersion,
		}
	}
	r.size = int64(fixedSize + len(r.ID) + len(r.path) + len(r.query) + len(r.userAgent) + len(r.Reason) + len(r.Action) + 16*len(r.sourceIPs))
	return r
}

// fixedSize is about the size of a record without its strings.
const fixedSize = 512

// event returns the record in Kubernetes' own type.
func (r *record) event() *auditv1.Event {
	e := &auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    auditv1.LevelMetadata, AuditID: types.UID(r.ID), Stage: r.Stage, RequestURI: r.path, Verb: r.verb,
		User: userInfo(r.User), SourceIPs: r.sourceIPs, UserAgent: r.userAgent,
		ResponseStatus:           &metav1.Status{Code: int32(r.Code)},
		RequestReceivedTimestamp: metav1.NewMicroTime(r.Received), StageTimestamp: metav1.NewMicroTime(r.at),
		Annotations: r.annotations(),
	}
	if r.query != "" {
		e.RequestURI += "?" + r.query
	}
	if r.ImpersonatedUser != nil {
		info := userInfo(r.ImpersonatedUser)
		e.ImpersonatedUser = &info
	}
	if r.ref != (auditv1.ObjectReference{}) {
		e.ObjectRef = &r.ref
	}
	if s := r.Status; s != nil {
		e.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: int32(r.Code)}
	}
	return e
}

// annotations returns the annotations of the event. The first two are kube-apiserver's.
func (r *record) annotations() map[string]string {
	decision := "forbid"
	if r.Allowed {
		decision = "allow"
	}
	all := map[string]string{"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": r.Reason}
	optional := map[string]string{"kubeweir/source": string(r.Source), "kubeweir/cluster": r.Cluster, "kubeweir/action": r.Action}
	if r.Source == Forwarded {
		clear(all)
		delete(optional, "kubeweir/action")
	}
	maps.DeleteFunc(optional, func(_, value string) bool { return value == "" })
	maps.Copy(all, optional)
	return all
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	if u == nil {
		return authenticationv1.UserInfo{}
	}
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue)
		}
		info.Extra[key] = values
	}
	return info
}

// kube-apiserver truncates user agents, too (k8s.io/apiserver/pkg/audit/request.go).
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

// maxSourceIPs limits the addresses of one event; a header can hold thousands.
const maxSourceIPs = 64

// sourceIPs returns the addresses of X-Forwarded-For, of X-Real-Ip unless it is among them, and of
// the peer unless it is the last (SourceIPs in k8s.io/apimachinery/pkg/util/net). All but the last
// are claims of the client.
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
	add(r.Header.Get("X-Real-Ip"), func(ip net.IP) bool { return slices.ContainsFunc(ips, ip.Equal) })
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
