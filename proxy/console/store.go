package console

import (
	"time"
)

// typesPeriod is the minimum time between two counts of the types: each reads all keys.
const typesPeriod = 10 * time.Second

func (b *builder) store(m *moment) any {
	process, h := b.processMetrics(m), b.history("")
	sum := func(metric string) float64 { return process.sum("kubeweir_store_" + metric) }
	s := &Store{
		At: m.now, Engine: "embedded", Available: sum("available") > 0,
		DiskBytes: sum("disk_bytes"), DiskFree: finite(sum("disk_free_bytes")), Keys: sum("keys"), Revision: process.sum(storeRevision),
		Compacted: sum("compacted_revision"), Compactions: sum("compactions_total"),
		Commit: Commits{Seconds: process.mean("kubeweir_store_commit_seconds"), Changes: process.mean("kubeweir_store_commit_changes")},
		Queued: sum("queued_changes"), IndexBytes: sum("index_bytes"),
		Watchers: sum("watchers"), Expired: sum("expired_total"),
		Series: StoreSeries{Step: int(samplePeriod / time.Second), WriteRate: rates(h.samples, "writes")},
	}
	if process["kubeweir_etcd_available"] != nil {
		s.Engine, s.Available = "etcd", process.sum("kubeweir_etcd_available") > 0
		s.Compacted = process.sum("kubeweir_etcd_compacted_revision")
	}
	s.Writes = Figure{Total: s.Revision, Rate: h.rate(m.now, "writes", s.Revision)}
	if b.Types != nil && m.now.Sub(b.types.at) >= typesPeriod {
		b.types.at, b.types.list = m.now, b.Types()
	}
	s.Types = append([]StoreType{}, b.types.list...)
	return s
}
