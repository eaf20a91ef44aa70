package faults

import (
	"context"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// history is what happened to the ConfigMaps of a namespace between two revisions, as etcd says, which nobody can have
// missed or reordered.
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
