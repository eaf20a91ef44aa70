package faults

import (
	"context"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// history returns the changes of a namespace's ConfigMaps between two revisions. It reads them from
// etcd, whose history is complete and in order.
func history(ctx context.Context, kube *realkube.Cluster, namespace string, from, to uint64) (watchtest.Truth, error) {
	const configMaps = "/registry/configmaps/"
	truth := watchtest.Truth{From: from}
	changes, err := kube.History(ctx, configMaps+namespace+"/", from, to)
	for _, c := range changes {
		e := watchtest.WireEvent{Type: api.Modified, Key: strings.TrimPrefix(c.Key, configMaps), RV: c.Revision}
		switch {
		case c.Created:
			e.Type = api.Added
		case c.Deleted:
			e.Type = api.Deleted
		}
		truth.Events = append(truth.Events, e)
	}
	return truth, err
}
