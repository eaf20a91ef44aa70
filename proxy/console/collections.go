package console

import (
	"strconv"
	"time"

	"github.com/kubeweir/kubeweir/cache"
)

func (c *Console) collections(a *ask) (any, error) {
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	document := &Collections{At: a.now, Collections: []Collection{}}
	for _, v := range views {
		document.HistoryBytesLimit = max(document.HistoryBytesLimit, v.figures.sum("kubeweir_cache_history_bytes_limit"))
		for i := range v.collections {
			row := v.collection(&v.collections[i])
			if !a.live {
				row.Series = v.past.collection(idOf(&v.collections[i]))
			}
			document.Collections = append(document.Collections, row)
		}
	}
	return document, nil
}

func (v *view) collection(c *cache.CollectionStatus) Collection {
	id := idOf(c)
	row := Collection{
		CollectionName: v.nameOf(c),

		State: c.State.Phase.String(), Since: c.State.Since, Objects: c.Objects, Bytes: c.Bytes,
		ResourceVersion: strconv.FormatUint(c.RV, 10), Age: ageOf(c, v.at),
		Watchers: c.Watches.Watchers, Lagging: c.Watches.Lagging,
		EventsIn: v.past.figure(v.at, "events/"+id, float64(c.Watches.Appended)),
		History:  History{Events: c.Watches.Events, Bytes: c.Watches.Bytes, Seconds: time.Duration(c.Watches.OldestAge).Seconds()},
		Indexes:  c.Indexes, Snapshots: c.Snapshots, SnapshotBytes: c.SnapshotBytes, QueryColumns: c.Columns, QueryBytes: c.ColumnBytes,
	}
	row.LastContact, row.Checked = present(c.State.LastContact), present(c.Checked)
	if c.State.Err != nil {
		row.Error = c.State.Err.Error()
	}
	return row
}

// nameOf names a collection of the cluster.
func (v *view) nameOf(c *cache.CollectionStatus) CollectionName {
	r := &c.Resource
	return CollectionName{v.rowID(idOf(c)), v.Name, r.Group, r.Version, r.Resource, c.Encoding.String()}
}

// present is a time, nil for none.
func present(t time.Time) *time.Time {
	if t.IsZero() || t.Unix() <= 0 {
		return nil
	}
	return &t
}
