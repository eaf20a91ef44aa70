package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/reason"
)

// Lists that are sorted, narrowed or counted (parameters sortBy, where, offset, fields,
// countBy) are read from the cache. No other server knows the parameters: it would pass over
// them and answer with, or delete, the whole collection. So nothing that has them is
// forwarded, but for resources that are never cached: those of other servers (APIServices),
// which may have parameters of these names, and those without a watch. That answer says that
// it is none of ours.

const (
	// queryHeader says in an answer that the parameters were applied.
	queryHeader = "Kubeweir-Query"
	// featuresPath is where a client finds out that there are such parameters. It is a path
	// that RFC 8615 keeps for this, and that no API has.
	featuresPath = "/.well-known/kubeweir"
)

// setQuery parses the query of a list. The error is the 400 that names the parameter.
func (q *readQuery) setQuery(info *api.RequestInfo) (err error) {
	if info.Query != nil {
		q.query, err = query.Parse(info.Query)
	}
	return err
}

// answerQuery answers a request with a query, or says why there is no answer.
func (g *Gateway) answerQuery(ctx context.Context, x *exchange) *api.Response {
	if x.info.Verb != "list" {
		g.refused.Count(reason.QueryUnanswered)
		return x.fail(wrongVerb(x.info.Verb))
	}
	gvr := schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
	if _, why := g.Resources.find(gvr); why == reason.Aggregated || why == reason.Unwatchable {
		resp := g.forwardRead(ctx, x, why)
		resp.Header.Add("Warning", `299 kubeweir "sortBy, where, offset, fields and countBy were left to the API server of this resource"`)
		return resp
	}
	out := g.read(ctx, x)
	if out.answer != nil {
		if out.answer.Status < 400 {
			out.answer.Header.Add(queryHeader, "applied")
		}
		return out.answer
	}
	if x.info.Exact && !x.subject.UpstreamDecides && !x.decision.Allowed {
		if refusal := g.permit(ctx, x); refusal != nil {
			return refusal
		}
	}
	g.refused.Count(reason.QueryUnanswered)
	return x.fail(queryRefusal(x.info, out))
}

// wrongVerb is the 400 for what is no list.
func wrongVerb(verb string) error {
	if verb == "watch" {
		return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are parameters of lists: a watch cannot have them. List again when a watch without them tells of a change")
	}
	return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are parameters of lists: objects are not deleted by them, and a server that does not know them would delete all")
}

// queryRefusal is what is said instead of an answer that there is nobody to give.
func queryRefusal(info *api.RequestInfo, out outcome) error {
	var ahead *store.TooLargeError
	switch {
	case errors.As(out.err, &ahead):
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	case out.why == reason.VersionGone:
		return api.NewExpiredList()
	}
	const only = "sortBy, where, offset, fields and countBy are answered from the cache only"
	switch out.why {
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead:
		return comeBack(fmt.Sprintf("%s, which cannot be read now (%s)", only, out.why))
	case reason.Unproven:
		return comeBack(only + ", which cannot be shown to hold the most recent state now (unproven): ask with resourceVersion=0 for the state that it holds")
	case reason.Inexact:
		return apierrors.NewBadRequest(only + ", and this request can be read in more than one way (inexact): give each parameter once, escaped, in ASCII, and none that lists do not have")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s, and this list is not (%s): leave these parameters out", only, out.why))
}

// features is the document at featuresPath.
type features struct {
	Kind  string           `json:"kind"`
	List  endpointFeatures `json:"list"`
	Watch endpointFeatures `json:"watch"`
}

// endpointFeatures are those of lists, or of watches.
type endpointFeatures struct {
	// Header is that of answers to which the parameters were applied.
	Header     string             `json:"header"`
	Parameters []featureParameter `json:"parameters"`
}

type featureParameter struct {
	Name    string `json:"name"`
	Means   string `json:"means"`
	Example string `json:"example"`
}

// describe answers at featuresPath whoever may get that path.
func (g *Gateway) describe(ctx context.Context, x *exchange) *api.Response {
	if refusal := g.permit(ctx, x); refusal != nil {
		return refusal
	}
	d := features{Kind: "KubeweirFeatures", List: endpointFeatures{Header: queryHeader}, Watch: endpointFeatures{Header: coalesceHeader}}
	for _, p := range api.QueryParameters() {
		means, example := query.Describe(p)
		d.List.Parameters = append(d.List.Parameters, featureParameter{p.String(), means, example})
	}
	d.Watch.Parameters = []featureParameter{{coalesceParameter, "for how long events wait after others, from 10ms to 30s: of the modifications of an object that come meanwhile the last is sent, additions and deletions all", "500ms"}}
	body, err := json.Marshal(d)
	if err != nil {
		return x.fail(err)
	}
	header := api.Header{{Name: "Cache-Control", Value: api.CacheControl}, {Name: "Content-Type", Value: "application/json"}}
	return &api.Response{Status: 200, Header: header, Body: append(body, '\n'), Length: int64(len(body) + 1)}
}

// isFeatures reports whether a request is for the document at featuresPath.
func isFeatures(x *exchange) bool {
	return x.request.RawPath == featuresPath && x.request.Method == "GET" && x.request.RawQuery == "" && !x.subject.UpstreamDecides
}
