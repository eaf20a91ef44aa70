package response

// Source is where a response came from, for metrics, the audit log and explanations.
type Source string

// The sources.
const (
	FromGateway   Source = "gateway" // health, rejections
	FromCache     Source = "cached"
	FromCollapsed Source = "collapsed"
	FromUpstream  Source = "forwarded"
	// FromRevalidated is the cache, after the upstream has named the current versions.
	FromRevalidated Source = "revalidated"
)
