// Package usage accounts for what requests cost: by user, user agent and resource, over the last
// minute and the last hour. It knows no transport; package proxy reports each request and what open
// watches send. Package console shows it.
//
// Memory is bounded however many clients there are. A Misra-Gries summary (Frequent Items) holds the
// keys with the largest costs: each count covers a part of what there was, never more, and what is
// missing is at most the part of the whole that the size of the summary determines. Such summaries
// can be merged, so a window consists of panes: one of ten seconds is written to, the last six make
// the minute; thirty of them become one of five minutes, and the last twelve of those make the hour.
//
//	Add ──▶ the open pane ──Tick, 10 s──▶ panes of 10 s (6) ──▶ Minute
//	                          └──▶ merged, 5 min──▶ panes of 5 min (12) ──▶ Hour
//
// Budget limits the rate of what a user may spend. The package imports only the vocabulary.
package usage
