package console

import (
	"net/http"
	"strings"

	"github.com/kubeweir/kubeweir/proxy"
)

// serveExplain describes how a request would be served.
func (c *Console) serveExplain(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	var q Question
	if err := decode(body, &q); err != nil {
		return err
	}
	var selected *Cluster
	for _, cluster := range c.Clusters() {
		if prefix := "/clusters/" + cluster.Name; cluster.Name != "" && (q.Path == prefix || strings.HasPrefix(q.Path, prefix+"/")) {
			return badRequest("leave %s out of the path and select the cluster %s instead", prefix, cluster.Name)
		}
		if selected == nil && q.Cluster == "" || cluster.Name == q.Cluster {
			selected = cluster
		}
	}
	if selected == nil {
		return errNoCluster
	}
	e, err := selected.Handler.Explain(r.Context(), proxy.Question{
		Method: q.Method, Target: q.Path, User: q.User, Groups: q.Groups, UserAgent: q.UserAgent, Accept: q.Accept,
	})
	if err != nil {
		return badRequest("%s", err)
	}
	return respond(w, explanation(e))
}

func explanation(e *proxy.Explanation) *Explanation {
	out := &Explanation{
		Request: ExplainedRequest{
			Verb: e.Info.Verb, IsResource: e.Info.IsResourceRequest, Group: e.Info.APIGroup, Version: e.Info.APIVersion, Resource: e.Info.Resource,
			Subresource: e.Info.Subresource, Namespace: e.Info.Namespace, Name: e.Info.Name,
		},
		Route: e.Route, Reason: e.Why, Text: e.Text,
		Permission: ExplainedPermission{e.PermissionKnown, e.Allowed, e.PermissionText}, Visible: (*ExplainedVisible)(e.Visible),
		Settings: []ExplainedSetting{}, Cost: ExplainedCost{e.Cost, e.UpstreamRequests}, Steps: []ExplainedStep{},
	}
	for _, s := range e.Settings {
		out.Settings = append(out.Settings, ExplainedSetting(s))
	}
	if c := e.Collection; c != nil {
		out.Collection = &ExplainedCollection{State: c.State.Phase.String(), Objects: c.Objects, Bytes: c.Bytes}
	}
	for _, s := range e.Steps {
		out.Steps = append(out.Steps, ExplainedStep(s))
	}
	return out
}
