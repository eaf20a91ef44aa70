package api

// Query are the parameters of a list that only kubeweir has, as they came. Other servers
// ignore them, so that a request with them is answered here or refused: what is forwarded
// would come back as if it had none. Package cache/query parses them.
type Query struct {
	values [numQueryParameters]string
	given  [numQueryParameters]bool
	// LimitZero is set when the parameter limit came as 0, which elsewhere means none.
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

// String is the parameter's name.
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

// Get returns the value of a parameter, and whether it came.
func (q *Query) Get(p QueryParameter) (value string, given bool) { return q.values[p], q.given[p] }

// set takes the first value of a parameter; it reports false at others.
func (q *Query) set(p QueryParameter, value string) bool {
	if q.given[p] {
		return false
	}
	q.values[p], q.given[p] = value, true
	return true
}
