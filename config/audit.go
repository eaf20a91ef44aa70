package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/util/webhook"
)

// Audit determines which requests are recorded, and where. The log has its own
// defaults; all others are kube-apiserver's (k8s.io/apiserver/pkg/server/options.NewAuditOptions).
type Audit struct {
	PolicyFile string        `json:"policyFile"`
	Path       string        `json:"path"`
	MaxSize    Bytes         `json:"maxSize"`
	MaxBackups int           `json:"maxBackups"`
	MaxAge     int           `json:"maxAge"` // days
	Compress   bool          `json:"compress"`
	Format     AuditFormat   `json:"format"`
	Mode       AuditMode     `json:"mode"`
	Batch      AuditBatch    `json:"batch"`
	Truncate   AuditTruncate `json:"truncate"`
	Webhook    AuditWebhook  `json:"webhook"`
}

// AuditWebhook determines how events are sent to a server.
type AuditWebhook struct {
	ConfigFile     string        `json:"configFile"`
	InitialBackoff time.Duration `json:"initialBackoff"`
	Mode           AuditMode     `json:"mode"`
	Batch          AuditBatch    `json:"batch"`
	Truncate       AuditTruncate `json:"truncate"`
}

// AuditBatch configures queues of events.
type AuditBatch struct {
	BufferSize     int           `json:"bufferSize"`
	MaxSize        int           `json:"maxSize"`
	MaxWait        time.Duration `json:"maxWait"`
	ThrottleEnable bool          `json:"throttleEnable"`
	ThrottleQPS    float64       `json:"throttleQPS"`
	ThrottleBurst  int           `json:"throttleBurst"`
}

// AuditTruncate bounds the size of events.
type AuditTruncate struct {
	Enabled      bool  `json:"enabled"`
	MaxBatchSize Bytes `json:"maxBatchSize"`
	MaxEventSize Bytes `json:"maxEventSize"`
}

// AuditFormat is the format of the lines of the audit log.
type AuditFormat string

func (AuditFormat) choices() []string { return []string{"json", "legacy"} }

// AuditMode is what requests wait for; see package proxy/audit.
type AuditMode string

func (AuditMode) choices() []string { return []string{"queue", "batch", "blocking", "blocking-strict"} }

func defaultAudit() Audit {
	truncate := AuditTruncate{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	return Audit{
		MaxSize: 100 << 20, MaxBackups: 10, Format: "json", Mode: "queue",
		Batch: AuditBatch{BufferSize: 10000, MaxSize: 1, ThrottleQPS: 10, ThrottleBurst: 15}, Truncate: truncate,
		Webhook: AuditWebhook{
			InitialBackoff: 10 * time.Second, Mode: "batch", Truncate: truncate,
			Batch: AuditBatch{BufferSize: 10000, MaxSize: 400, MaxWait: 30 * time.Second, ThrottleEnable: true, ThrottleQPS: 10, ThrottleBurst: 15},
		},
	}
}

func auditSettings(a *Audit) []section {
	w := &a.Webhook
	return []section{{"Audit", slices.Concat([]setting{
		{"audit.policyFile", "audit-policy-file", &a.PolicyFile, nil,
			"`file` with a Policy of audit.k8s.io, as for kube-apiserver: which requests are recorded, at which level; see docs/audit.md; default: all requests but health checks, at level Metadata, without the stage RequestReceived",
			"levels Request and RequestResponse keep bodies of up to 3 MiB in memory until the request is recorded, 64 MiB of them at most and a quarter of that for one user, and can cost as much CPU time as the request"},
		{"audit.path", "audit-log-path", &a.Path, nil,
			"`file` for audit events, - for standard output",
			"each event costs CPU time and a line of JSON, usually below 1 KB at level Metadata"},
		{"audit.maxSize", "audit-log-max-size", &a.MaxSize, atLeast[Bytes](0),
			"`size` at which the audit log is rotated, rounded up to MiB; 0: never",
			"together with audit.maxBackups it limits the disk usage"},
		{"audit.maxBackups", "audit-log-max-backups", &a.MaxBackups, between(0, 10_000),
			"`number` of rotated audit logs to retain, at least one",
			"disk usage is this number times audit.maxSize"},
		{"audit.maxAge", "audit-log-max-age", &a.MaxAge, between(0, 100_000),
			"`days` for which rotated audit logs are retained; 0: any time", ""},
		{"audit.compress", "audit-log-compress", &a.Compress, nil,
			"compress rotated audit logs with gzip",
			"CPU time at each rotation"},
		{"audit.format", "audit-log-format", &a.Format, nil,
			"`format` of the audit log: json, or legacy for a line of text without objects and annotations", ""},
	}, deliverySettings("audit", "audit-log", &a.Mode, &a.Batch, &a.Truncate))}, {"Audit webhook", slices.Concat([]setting{
		{"audit.webhook.configFile", "audit-webhook-config-file", &w.ConfigFile, nil,
			"kubeconfig `file` with the server that receives audit events, and the credentials for it", ""},
		{"audit.webhook.initialBackoff", "audit-webhook-initial-backoff", &w.InitialBackoff, atLeast(time.Millisecond),
			"`time` before the first of four retries; each further one waits half as long again", ""},
	}, deliverySettings("audit.webhook", "audit-webhook", &w.Mode, &w.Batch, &w.Truncate))}}
}

// deliverySettings are the settings that both backends have.
func deliverySettings(path, flag string, mode *AuditMode, b *AuditBatch, t *AuditTruncate) []setting {
	return []setting{
		{path + ".mode", flag + "-mode", mode, nil,
			"how requests and events depend on each other (`choice`): queue: only requests other than reads wait, for room in the queue, and events of reads that do not fit are dropped; batch: no request waits, and all events that do not fit are dropped; blocking: each request waits until its events are delivered; blocking-strict: and is rejected if the first one is not", ""},
		{path + ".batch.bufferSize", flag + "-batch-buffer-size", &b.BufferSize, between(1, 10_000_000),
			"maximum `number` of queued events, with the modes queue and batch",
			"an event takes about 2 KB of memory, and the size of its objects; all queued events 64 MiB at most, and with the mode queue those of reads half of that"},
		{path + ".batch.maxSize", flag + "-batch-max-size", &b.MaxSize, between(1, 1_000_000),
			"maximum `number` of events in a batch", ""},
		{path + ".batch.maxWait", flag + "-batch-max-wait", &b.MaxWait, atLeast(time.Duration(0)),
			"`time` after which a batch is delivered that is not full", ""},
		{path + ".batch.throttleEnable", flag + "-batch-throttle-enable", &b.ThrottleEnable, nil,
			"limit the rate of batches", ""},
		{path + ".batch.throttleQPS", flag + "-batch-throttle-qps", &b.ThrottleQPS, nil,
			"maximum average `number` of batches per second", ""},
		{path + ".batch.throttleBurst", flag + "-batch-throttle-burst", &b.ThrottleBurst, between(1, 1_000_000),
			"maximum `number` of batches at once, after a time with fewer", ""},
		{path + ".truncate.enabled", flag + "-truncate-enabled", &t.Enabled, nil,
			"remove request and response objects from events that are too large, and drop events that still are", ""},
		{path + ".truncate.maxEventSize", flag + "-truncate-max-event-size", &t.MaxEventSize, atLeast[Bytes](1),
			"maximum `size` of an event that is truncated", ""},
		{path + ".truncate.maxBatchSize", flag + "-truncate-max-batch-size", &t.MaxBatchSize, atLeast[Bytes](100 << 10),
			"maximum `size` of a batch with truncated events; larger ones are split", ""},
	}
}

// Policy returns what the policy file says, or nil without one. It accepts what kube-apiserver accepts.
// The error names the file.
func (a *Audit) Policy() (*auditapi.Policy, error) {
	if a.PolicyFile == "" {
		return nil, nil
	}
	content, err := readLimited(a.PolicyFile)
	if err != nil {
		return nil, err
	}
	return parseAuditPolicy(a.PolicyFile, content)
}

func parseAuditPolicy(name string, content []byte) (*auditapi.Policy, error) {
	read, err := policy.LoadPolicyFromBytes(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid Policy of audit.k8s.io/v1: %w", shownPath(name), oneLine(err))
	}
	return read, nil
}

var errNoWebhook = errors.New("it names no server")

func checkAudit(o *origins, a *Audit) {
	checkDelivery(o, "audit", &a.Batch, &a.Truncate)
	checkDelivery(o, "audit.webhook", &a.Webhook.Batch, &a.Webhook.Truncate)
	if a.PolicyFile != "" && a.Path == "" && a.Webhook.ConfigFile == "" {
		o.report("audit.policyFile", "has no effect without %s or %s; set one of them", o.name("audit.path"), o.name("audit.webhook.configFile"))
	}
	if o.elsewhere {
		return
	}
	if content := readPEM(o, a.PolicyFile); content != nil {
		if _, err := parseAuditPolicy(a.PolicyFile, content); err != nil {
			o.report("audit.policyFile", "cannot be used: %w", err)
		}
	}
	if content := readPEM(o, a.Webhook.ConfigFile); content != nil {
		c, err := webhook.LoadKubeconfig(a.Webhook.ConfigFile, nil)
		if err == nil && c.Host == "" {
			err = errNoWebhook
		}
		if err != nil {
			o.report("audit.webhook.configFile", "cannot be used: %s is not a valid kubeconfig: %w", shownPath(a.Webhook.ConfigFile), oneLine(err))
		}
	}
	checkAuditPath(o, a.Path)
}

func checkDelivery(o *origins, path string, b *AuditBatch, t *AuditTruncate) {
	if b.ThrottleQPS <= 0 {
		o.report(path+".batch.throttleQPS", "must be more than 0, not %v", b.ThrottleQPS)
	}
	if t.MaxBatchSize < t.MaxEventSize {
		o.report(path+".truncate.maxBatchSize", "must be at least %s, which is %s, not %s", o.name(path+".truncate.maxEventSize"), t.MaxEventSize, t.MaxBatchSize)
	}
}

// checkAuditPath checks that the audit log can be written.
func checkAuditPath(o *origins, path string) {
	if path == "" || path == "-" {
		return
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		o.report("audit.path", "must be a file, and %s is a directory", path)
		return
	}
	dir := cmp.Or(filepath.Dir(path), ".")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		o.report("audit.path", "is in a directory that does not exist; make %s first", shownPath(dir))
	}
}
