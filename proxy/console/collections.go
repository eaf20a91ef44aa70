package console

import (
	"strconv"
	"time"

	"github.com/kubeweir/kubeweir/cache"
)

func (b *builder) collections(m *moment) any {
	document := &Collections{At: m.now, Collections: []Collection{}}
	for _, v := range m.views {
		document.HistoryBytesLimit = max(document.HistoryBytesLimit, v.metrics.sum("kubeweir_cache_history_bytes_limit"))
		for i := range v.collections {
			row := v.collection(&v.collections[i])
			if !m.live {
				row.Series = v.history.collection(collectionID(&v.collections[i]))
			}
			document.Collections = append(document.Collections, row)
		}
	}
	return document
}

func (v *view) collection(c *cache.CollectionStatus) Collection {
	row := Collection{
		CollectionName: v.collectionName(c),

		State: c.State.Phase.String(), Since: c.State.Since, Objects: c.Objects, Bytes: c.Bytes,
		LastContact: optional(c.State.LastContact), Checked: optional(c.Checked),
		ResourceVersion: strconv.FormatUint(c.RV, 10), Age: lagOf(c, v.at),
		Watchers: c.Watches.Watchers, Lagging: c.Watches.Lagging,
		EventsIn: v.count("events/" + collectionID(c)),
		History:  History{Events: c.Watches.Events, Bytes: c.Watches.Bytes, Seconds: time.Duration(c.Watches.OldestAge).Seconds()},
		Indexes:  c.Indexes, Snapshots: c.Snapshots, SnapshotBytes: c.SnapshotBytes, QueryColumns: c.Columns, QueryBytes: c.ColumnBytes,
	}
	if c.State.Err != nil {
		row.Error = c.State.Err.Error()
	}
	return row
}
