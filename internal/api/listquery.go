package api

// Query holds the list parameters that only kubeweir has, as sent. Other servers ignore them, so a
// request with them is served from the cache or rejected: a forwarded one would come back as if it
// had none. Package cache/query parses them.
type Query struct {
	values [numQueryParameters]string
	given  [numQueryParameters]bool
	// LimitZero is set if the parameter limit was sent as 0, which other servers take for no limit.
	LimitZero bool
}

// QueryParameter is a parameter of a Query.
type QueryParameter uint8

// The parameters of a Query.
const (
	QuerySortBy QueryParameter = iota
	QueryOffset
	QueryWhere
	QueryFields
	QueryCountBy
	numQueryParameters
)

// String returns the parameter's name.
func (p QueryParameter) String() string {
	return [...]string{"sortBy", "offset", "where", "fields", "countBy"}[p]
}

func queryParameterNamed(name string) (p QueryParameter, ok bool) {
	for p := range numQueryParameters {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

// Get returns the value of a parameter and whether it was sent.
func (q *Query) Get(p QueryParameter) (value string, given bool) { return q.values[p], q.given[p] }

// set stores the first value of a parameter. It returns false for further ones.
func (q *Query) set(p QueryParameter, value string) bool {
	if q.given[p] {
		return false
	}
	q.values[p], q.given[p] = value, true
	return true
}
