package etcd

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// checkVersions refuses an etcd whose answers to progress requests may overtake
// events (etcd-io/etcd#15220) or get lost (#17507). kube-apiserver's limits are the same
// (storage/feature/feature_support_checker.go). Members that do not answer are not looked at.
func (e *Engine) checkVersions(ctx context.Context, endpoints []string) error {
	for _, endpoint := range endpoints {
		st, err := e.client.Status(ctx, endpoint)
		if err != nil {
			e.log.Warn("the version of an etcd member is unknown", "endpoint", endpoint, "error", err)
			continue
		}
		v, err := version.ParseSemantic(st.Version)
		if err != nil {
			return fmt.Errorf("etcd %s: version %q: %w", endpoint, st.Version, err)
		}
		if !progressIsSound(v) {
			return fmt.Errorf("etcd %s: version %s does not report the progress of watches reliably; 3.4.31, 3.5.13 or a later one of these, or 3.6 is needed", endpoint, v)
		}
	}
	return nil
}

func progressIsSound(v *version.Version) bool {
	switch {
	case v.Major() != 3:
		return v.Major() > 3
	case v.Minor() == 4:
		return v.Patch() >= 31
	case v.Minor() == 5:
		return v.Patch() >= 13
	}
	return v.Minor() > 5
}
