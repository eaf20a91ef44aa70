package console

import "time"

func (b *builder) checks(m *moment) any {
	document := &Checks{At: m.now, Running: b.checking.Load(), Collections: []CheckedCollection{}}
	for _, v := range m.views {
		document.Period = max(document.Period, v.metrics.sum("kubeweir_cache_check_period_seconds"))
		for i := range v.collections {
			s := &v.collections[i]
			row := CheckedCollection{CollectionName: v.collectionName(s), Result: "none"}
			if last := s.LastCheck; last != nil {
				row.Result, row.Checked = last.Result.String(), optional(last.At)
				row.Objects, row.Sampled, row.Differing = last.Objects, last.Sampled, last.Differing
				row.Seconds = last.Took.Round(time.Millisecond).Seconds()
				if last.Err != nil {
					row.Error = last.Err.Error()
				}
			}
			total := func(result string) float64 {
				return v.metrics.sum("kubeweir_cache_checks_total", "group", row.Group, "resource", row.Resource, "encoding", row.Encoding, "result", result)
			}
			row.Totals = CheckTotals{total("same"), total("differs"), total("unfinished")}
			document.Collections = append(document.Collections, row)
		}
	}
	return document
}
