// Package query implements the list parameters that only kubeweir has: sortBy, where, fields,
// offset and countBy.
//
// Parse reads the parameters. A ResultSet is the rows of a store.Selection: Where narrows it,
// Sorted and CountBy return what a page shows. Values are read into columns, one per path, which
// the Columns of a collection cache between requests: a column stores each distinct value once, in
// order, so that sorting is counting and a condition is evaluated once per value. A column of a
// newer snapshot is made from the column of an older one and from what has changed since. Nothing
// is computed while events are applied.
//
// The cost of a request is bounded by the limits on parameters (parameters.go, path.go, MaxGroups),
// the memory of a collection by Columns, and the time that one user can take from others by turns.
//
// Package read serves requests with it, and the Collection owns the Columns. It may import source
// and store.
package query
