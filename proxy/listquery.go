package proxy

import (
	"encoding/json"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/query"
)

// Lists with a query (parameters sortBy, where, offset, fields, countBy) are served from the cache;
// see route.Facts.Next for the resources that are never cached.

const (
	// queryHeader says in a response that the query parameters were applied.
	queryHeader = "Kubeweir-Query"
	// featuresPath is where clients find out that there are such parameters. RFC 8615 reserves the
	// prefix, and no API has it.
	featuresPath = "/.well-known/kubeweir"
)

// features is the document at featuresPath.
type features struct {
	Kind  string           `json:"kind"`
	List  endpointFeatures `json:"list"`
	Watch endpointFeatures `json:"watch"`
}

// endpointFeatures are the additional parameters of lists, or of watches.
type endpointFeatures struct {
	// Header is set in responses to which the parameters were applied.
	Header     string             `json:"header"`
	Parameters []featureParameter `json:"parameters"`
}

type featureParameter struct {
	Name    string `json:"name"`
	Means   string `json:"means"`
	Example string `json:"example"`
}

// describe returns the document at featuresPath.
func describe(x *exchange) *api.Response {
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

// isFeatures reports whether a request reads the document at featuresPath.
func isFeatures(x *exchange) bool {
	return x.Request.RawPath == featuresPath && x.Request.Method == "GET" && x.Request.RawQuery == "" && !x.Subject.UpstreamDecides
}
