package console

import (
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

func (b *builder) upstreams(m *moment) any {
	document := &Upstreams{At: m.now, Clusters: []UpstreamCluster{}}
	for _, v := range m.views {
		if v.Upstream != nil {
			document.Clusters = append(document.Clusters, v.upstream())
		}
	}
	return document
}

func (v *view) upstream() UpstreamCluster {
	u := UpstreamCluster{
		Name: v.Name, Server: v.Upstream.Server, Reachability: *v.reachability(), Kubernetes: v.Upstream.Version(),
		Watches: len(v.collections), Connections: int(v.metrics.sum("kubeweir_upstream_feed_connections")),
		Servers: v.servers(), Requests: v.upstreamRequests(), MissingRights: []Right{},
	}
	u.Checks, u.Ready = v.checks()
	v.metrics.each("kubeweir_upstream_missing_rights", func(label func(string) string, series *dto.Metric) {
		if value(series) > 0 {
			u.MissingRights = append(u.MissingRights, Right{label("verb"), label("group"), label("resource")})
		}
	})
	return u
}

// servers lists the API servers of a cluster with --upstream-servers.
func (v *view) servers() []APIServer {
	list := []APIServer{}
	up := v.metrics.by("kubeweir_upstream_server_up", "server")
	for _, server := range slices.Sorted(maps.Keys(up)) {
		sum := func(metric string) float64 {
			return v.metrics.sum("kubeweir_upstream_server_"+metric, "server", server)
		}
		list = append(list, APIServer{
			Server: server, Up: up[server] > 0, Preferred: sum("preferred") > 0, Outstanding: sum("outstanding_requests"),
			Requests: sum("requests_total"), Retries: sum("retries_total"), Ejections: sum("ejections_total"),
		})
	}
	return list
}

// upstreamRequests lists the requests to the upstream by purpose.
func (v *view) upstreamRequests() []UpstreamPurpose {
	list := []UpstreamPurpose{}
	const metric = "kubeweir_upstream_requests_total"
	counts, bytes := v.metrics.by(metric, "purpose"), v.metrics.by("kubeweir_upstream_response_bytes_total", "purpose")
	errors := make(map[string]float64)
	v.metrics.each(metric, func(label func(string) string, series *dto.Metric) {
		if code := label("code"); code == "0" || code >= "500" {
			errors[label("purpose")] += value(series)
		}
	})
	for _, purpose := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, UpstreamPurpose{
			Purpose: purpose, Figure: v.count("upstream/" + purpose), Errors: errors[purpose], Bytes: bytes[purpose],
		})
	}
	return list
}

// reachability returns nil for the origin in this process.
func (v *view) reachability() *Reachability {
	if v.Upstream == nil {
		return nil
	}
	ok, since := v.Upstream.Reachable()
	r := &Reachability{Reachable: ok, Delay: v.metrics.sum("kubeweir_upstream_delay_seconds")}
	if !ok {
		r.Since = optional(since)
	}
	if at := v.metrics.sum("kubeweir_upstream_last_contact_timestamp_seconds"); at > 0 {
		last := time.UnixMilli(int64(at * 1000))
		r.LastContact = &last
	}
	return r
}

// checks returns the readiness checks, and whether all of them succeed.
func (v *view) checks() (checks []Check, ready bool) {
	checks, ready = []Check{}, true
	for _, check := range v.Handler.Checks() {
		result := Check{Name: check.Name, Cluster: v.Name, OK: check.Err == nil}
		if check.Err != nil {
			result.Reason, ready = check.Err.Error(), false
		}
		checks = append(checks, result)
	}
	return checks, ready
}
