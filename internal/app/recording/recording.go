// Package recording turns the settings of the audit log into the options of package audit.
package recording

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy/audit"
)

// Open opens the audit log, which may be switched off. The error names the setting.
func Open(c *config.Audit, log *slog.Logger, registerer prometheus.Registerer) (*audit.Log, error) {
	policy, err := c.Policy()
	if err != nil {
		return nil, fmt.Errorf("--audit-policy-file: %w", err)
	}
	w := &c.Webhook
	opened, err := audit.Open(audit.Options{
		Policy: policy, Logger: log, Registerer: registerer,
		File: audit.File{
			Path: c.Path, MaxSize: int64(c.MaxSize), MaxBackups: c.MaxBackups, MaxAge: c.MaxAge, Compress: c.Compress,
			Format: string(c.Format), Delivery: delivery(c.Mode, &c.Batch, &c.Truncate),
		},
		Webhook: audit.Webhook{
			ConfigFile: w.ConfigFile, InitialBackoff: w.InitialBackoff, Delivery: webhookDelivery(w),
		},
	})
	var failed *audit.BackendError
	switch {
	case errors.As(err, &failed) && failed.Backend == "webhook":
		return nil, fmt.Errorf("--audit-webhook-config-file: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return opened, nil
}

func webhookDelivery(w *config.AuditWebhook) audit.Delivery {
	d := delivery(w.Mode, &w.Batch, &w.Truncate)
	d.Batch.AsyncDelegate = true // a batch that is sent again and again does not delay the next
	return d
}

func delivery(mode config.AuditMode, b *config.AuditBatch, t *config.AuditTruncate) audit.Delivery {
	d := audit.Delivery{Mode: string(mode), Batch: buffered.BatchConfig{
		BufferSize: b.BufferSize, MaxBatchSize: b.MaxSize, MaxBatchWait: max(b.MaxWait, time.Millisecond),
		ThrottleEnable: b.ThrottleEnable, ThrottleQPS: float32(b.ThrottleQPS), ThrottleBurst: b.ThrottleBurst,
	}}
	if t.Enabled {
		d.Truncate = &truncate.Config{MaxBatchSize: int64(t.MaxBatchSize), MaxEventSize: int64(t.MaxEventSize)}
	}
	return d
}
