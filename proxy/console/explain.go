package console

import (
	"net/http"
	"strings"

	"github.com/kubeweir/kubeweir/proxy"
)

// serveExplain says what would become of a request.
func (c *Console) serveExplain(w http.ResponseWriter, r *http.Request) {
	var q Question
	if !readBody(w, r, &q) {
		return
	}
	var of *Cluster
	for _, cluster := range c.Clusters() {
		if prefix := "/clusters/" + cluster.Name; cluster.Name != "" && (q.Path == prefix || strings.HasPrefix(q.Path, prefix+"/")) {
			c.failWith(w, badParameter{"leave " + prefix + " out of the path, and choose the cluster: a request is explained as its cluster's own"})
			return
		}
		if of == nil && q.Cluster == "" || cluster.Name == q.Cluster {
			of = cluster
		}
	}
	if of == nil {
		c.failWith(w, errNoCluster)
		return
	}
	e, err := of.Handler.Explain(r.Context(), proxy.Question{
		Method: q.Method, Target: q.Path, User: q.User, Groups: q.Groups, UserAgent: q.UserAgent, Accept: q.Accept,
	})
	if err != nil {
		c.failWith(w, badParameter{err.Error()})
		return
	}
	answer(w, http.StatusOK, explanation(e))
}

func explanation(e *proxy.Explanation) *Explanation {
	out := &Explanation{
		Request: ExplainedRequest{
			Verb: e.Info.Verb, IsResource: e.Info.IsResourceRequest, Group: e.Info.APIGroup, Version: e.Info.APIVersion, Resource: e.Info.Resource,
			Subresource: e.Info.Subresource, Namespace: e.Info.Namespace, Name: e.Info.Name,
		},
		Route: e.Route, Reason: e.Why, Text: e.Text,
		Permission: ExplainedPermission{e.PermissionKnown, e.Allowed, e.PermissionText},
		Settings:   []ExplainedSetting{}, Cost: ExplainedCost{e.Cost, e.UpstreamRequests}, Steps: []ExplainedStep{},
	}
	for _, s := range e.Settings {
		out.Settings = append(out.Settings, ExplainedSetting(s))
	}
	if e.Visible != nil {
		out.Visible = (*ExplainedVisible)(e.Visible)
	}
	if c := e.Collection; c != nil {
		out.Collection = &ExplainedCollection{State: c.State.Phase.String(), Objects: c.Objects, Bytes: c.Bytes}
	}
	for _, s := range e.Steps {
		out.Steps = append(out.Steps, ExplainedStep{s.Step, s.Text})
	}
	return out
}
