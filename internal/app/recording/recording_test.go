package recording

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/kubeweir/kubeweir/config"
)

// TestDefaultsLikeKubeAPIServer compares the defaults with kube-apiserver's: all of the webhook, and the
// size of events and of the queue of the log.
func TestDefaultsLikeKubeAPIServer(t *testing.T) {
	c, want := &config.Default().Audit, options.NewAuditOptions()
	w := webhookDelivery(&c.Webhook)
	if o := want.WebhookOptions; w.Mode != o.BatchOptions.Mode || w.Batch != o.BatchOptions.BatchConfig || w.Truncate != nil || o.TruncateOptions.Enabled ||
		c.Webhook.InitialBackoff != o.InitialBackoff {
		t.Errorf("webhook: %+v, want %+v", w, o)
	}
	o := &want.LogOptions
	if string(c.Format) != o.Format || c.Batch.BufferSize != o.BatchOptions.BatchConfig.BufferSize || c.Batch.MaxSize != o.BatchOptions.BatchConfig.MaxBatchSize ||
		c.Batch.ThrottleEnable != o.BatchOptions.BatchConfig.ThrottleEnable || c.Compress != o.Compress || int(c.MaxSize>>20) != o.MaxSize {
		t.Errorf("log: %+v, want %+v", c, o)
	}
	for _, truncates := range []*config.AuditTruncate{&c.Truncate, &c.Webhook.Truncate} {
		truncates.Enabled = true
		if d := delivery(c.Mode, &c.Batch, truncates); *d.Truncate != o.TruncateOptions.TruncateConfig {
			t.Errorf("truncation: %+v, want %+v", d.Truncate, o.TruncateOptions.TruncateConfig)
		}
	}
}

// TestPolicyOfTheDocumentation loads the policy in docs/audit.md.
func TestPolicyOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("the page has no policy")
	}
	file := filepath.Join(t.TempDir(), "audit-policy.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll("\n"+block[1], "\n   ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	policy, err := (&config.Audit{PolicyFile: file}).Policy()
	if err != nil || len(policy.Rules) != 4 || !policy.OmitManagedFields {
		t.Errorf("%+v, %v", policy, err)
	}
}
