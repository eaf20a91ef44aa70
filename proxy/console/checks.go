package console

import "time"

func (c *Console) checks(a *ask) (any, error) {
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	document := &Checks{At: a.now, Running: c.checking.Load(), Collections: []CheckedCollection{}}
	for _, v := range views {
		document.Period = max(document.Period, v.figures.sum("kubeweir_cache_check_period_seconds"))
		for i := range v.collections {
			s := &v.collections[i]
			row := CheckedCollection{CollectionName: v.nameOf(s), Result: "none"}
			if last := s.LastCheck; last != nil {
				row.Result, row.Checked = last.Result.String(), present(last.At)
				row.Objects, row.Sampled, row.Differing = last.Objects, last.Sampled, last.Differing
				row.Seconds = last.Took.Round(time.Millisecond).Seconds()
				if last.Err != nil {
					row.Error = last.Err.Error()
				}
			}
			total := func(result string) float64 {
				return v.figures.sum("kubeweir_cache_checks_total", "group", row.Group, "resource", row.Resource, "encoding", row.Encoding, "result", result)
			}
			row.Totals = CheckTotals{total("same"), total("differs"), total("unfinished")}
			document.Collections = append(document.Collections, row)
		}
	}
	return document, nil
}
