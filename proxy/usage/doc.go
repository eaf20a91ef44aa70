// Package usage knows who costs what: by user, user agent and resource, over the last minute and the last hour. It
// knows no transport; package proxy tells it of every request, and of what open watches have sent.
//
// What is kept is bounded however many there are who ask. A Misra-Gries summary (Frequent Items) holds those who cost
// most: each count is of a part of what there was, never of more, and what is missing is at most the part of the whole
// that the size of the summary says. Such summaries can be merged, which makes windows of panes: one of ten seconds
// is written to, the last six make the minute; thirty of them become one of five minutes, and the last twelve of
// those make the hour.
//
//	Add ──▶ the open pane ──Tick, 10 s──▶ panes of 10 s (6) ──▶ Minute
//	                          └──▶ merged, 5 min──▶ panes of 5 min (12) ──▶ Hour
package usage
