package console

import (
	"net/http"
	"strings"

	"github.com/kubeweir/kubeweir/proxy/explain"
)

// serveExplain describes how a request would be served.
func (c *Console) serveExplain(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	var q struct {
		Cluster string
		explain.Question
	}
	if err := decode(body, &q); err != nil {
		return err
	}
	var selected *Cluster
	for _, cluster := range c.Clusters() {
		if prefix := "/clusters/" + cluster.Name; cluster.Name != "" && (q.Target == prefix || strings.HasPrefix(q.Target, prefix+"/")) {
			return badRequest("leave %s out of the path and select the cluster %s instead", prefix, cluster.Name)
		}
		if selected == nil && q.Cluster == "" || cluster.Name == q.Cluster {
			selected = cluster
		}
	}
	if selected == nil {
		return errNoCluster
	}
	e, err := selected.Handler.Explain(r.Context(), q.Question)
	if err != nil {
		return badRequest("%s", err)
	}
	return respond(w, e)
}
