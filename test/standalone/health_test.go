package standalone

import (
	"context"
	"regexp"
	"strings"
	"testing"
)

// TestHealthChecksLikeKubeAPIServer compares the checks of the health paths, and their order.
func TestHealthChecksLikeKubeAPIServer(t *testing.T) {
	compareScenarios(t, nil, healthScenario)
}

// onlyOne matches the checks that only one of the programs has: docs/standalone.md names them.
var onlyOne = regexp.MustCompile(`^\[\+\](cache|loopback-serving-certificate|poststarthook/(peer-endpoint-reconciler-controller|start-kube-apiserver-identity-lease-.*)) ok\n$`)

// healthScenario records the checks that both programs have.
func healthScenario(ctx context.Context, f *limited) {
	for _, path := range []string{"/readyz", "/livez", "/healthz"} {
		r := f.send(ctx, "admin", "GET", path+"?verbose", "")
		f.record(path, nil, r.status)
		for line := range strings.Lines(r.body) {
			if !onlyOne.MatchString(line) {
				f.record(path, nil, strings.TrimSpace(line))
			}
		}
	}
	f.wants("/readyz: [+]shutdown ok", "/readyz: [+]poststarthook/priority-and-fairness-config-consumer ok", "/livez: [+]etcd ok")
}
