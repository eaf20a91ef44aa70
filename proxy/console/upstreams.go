package console

import (
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

func (c *Console) upstreams(a *ask) (any, error) {
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	document := &Upstreams{At: a.now, Clusters: []UpstreamCluster{}}
	for _, v := range views {
		if v.Upstream != nil {
			document.Clusters = append(document.Clusters, c.upstream(v))
		}
	}
	return document, nil
}

func (c *Console) upstream(v *view) UpstreamCluster {
	health := &Overview{}
	c.addHealth(health, v)
	u := UpstreamCluster{
		Name: v.Name, Server: v.Upstream.Server, Reachability: *v.reachability(), Kubernetes: v.Upstream.Version(),
		Ready: health.Ready, Checks: health.Checks,
		Watches: len(v.collections), Connections: int(v.figures.sum("kubeweir_upstream_feed_connections")),
		Servers: v.servers(), Requests: v.purposes(), MissingRights: []Right{},
	}
	v.figures.each("kubeweir_upstream_missing_rights", func(label func(string) string, m *dto.Metric) {
		if value(m) > 0 {
			u.MissingRights = append(u.MissingRights, Right{label("verb"), label("group"), label("resource")})
		}
	})
	return u
}

// servers are the API servers of a cluster that is given several.
func (v *view) servers() []APIServer {
	list := []APIServer{}
	up := v.figures.by("kubeweir_upstream_server_up", "server")
	of := func(metric, server string) float64 {
		return v.figures.sum("kubeweir_upstream_server_"+metric, "server", server)
	}
	for _, server := range slices.Sorted(maps.Keys(up)) {
		list = append(list, APIServer{
			Server: server, Up: up[server] > 0, Preferred: of("preferred", server) > 0,
			Outstanding: of("outstanding_requests", server), Requests: of("requests_total", server),
			Retries: of("retries_total", server), Ejections: of("ejections_total", server),
		})
	}
	return list
}

// purposes are what the upstream is asked for.
func (v *view) purposes() []UpstreamPurpose {
	list := []UpstreamPurpose{}
	const metric = "kubeweir_upstream_requests_total"
	counts, bytes := v.figures.by(metric, "purpose"), v.figures.by("kubeweir_upstream_response_bytes_total", "purpose")
	errors := make(map[string]float64)
	v.figures.each(metric, func(label func(string) string, m *dto.Metric) {
		if code := label("code"); code == "0" || code >= "500" {
			errors[label("purpose")] += value(m)
		}
	})
	for _, purpose := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, UpstreamPurpose{
			Purpose: purpose, Figure: v.past.figure(v.at, "upstream/"+purpose, counts[purpose]), Errors: errors[purpose], Bytes: bytes[purpose],
		})
	}
	return list
}
