package console

import (
	"math"
	"time"
)

// revisionOf is how many changes the store of a standalone has seen.
func revisionOf(f figures) float64 { return f.sum("kubeweir_store_revision") }

func (c *Console) store(a *ask) (any, error) {
	views, err := c.look(a.now, "")
	if err != nil {
		return nil, err
	}
	f, p := c.process(a.now, views), c.pastOf("")
	const prefix = "kubeweir_store_"
	s := &Store{
		At: a.now, Engine: "embedded", Available: f.sum(prefix+"available") > 0,
		DiskBytes: f.sum(prefix + "disk_bytes"), Keys: f.sum(prefix + "keys"), Revision: revisionOf(f),
		Compacted: f.sum(prefix + "compacted_revision"), Compactions: f.sum(prefix + "compactions_total"),
		Commit: Commits{Seconds: f.mean(prefix + "commit_seconds"), Changes: f.mean(prefix + "commit_changes")},
		Queued: f.sum(prefix + "queued_changes"), IndexBytes: f.sum(prefix + "index_bytes"), RingBytes: f.sum(prefix + "ring_bytes"),
		Watchers: f.sum(prefix + "watchers"), Expired: f.sum(prefix + "expired_total"), Types: []StoreType{},
		Series: StoreSeries{Step: int(sampleStep / time.Second), WriteRate: p.samples.points(func(before, now *sample) *float64 {
			return grown(before.writes, now.writes, now.at.Sub(before.at))
		})},
	}
	if free := f.sum(prefix + "disk_free_bytes"); !math.IsInf(free, 0) {
		s.DiskFree = &free
	}
	if f["kubeweir_etcd_available"] != nil {
		s.Engine, s.Available = "etcd", f.sum("kubeweir_etcd_available") > 0
		s.Compacted = f.sum("kubeweir_etcd_compacted_revision")
		s.TypesNote = "The objects are in etcd, whose own metrics tell its size and rate."
	}
	s.Writes = p.figure(a.now, "writes", s.Revision)
	if c.Types != nil {
		s.Types, s.TypesNote = c.types(a.now)
	}
	return s, nil
}

// typesFresh is for how long the counts of types are good: all keys are counted for them.
const typesFresh = 10 * time.Second

func (c *Console) types(now time.Time) ([]StoreType, string) {
	if now.Sub(c.ofTypes.at) >= typesFresh {
		c.ofTypes.at = now
		c.ofTypes.list, c.ofTypes.note = c.Types()
	}
	if c.ofTypes.list == nil {
		return []StoreType{}, c.ofTypes.note
	}
	return c.ofTypes.list, c.ofTypes.note
}
