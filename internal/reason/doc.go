// Package reason enumerates why reads are forwarded, watches end and requests are refused. Each reason is the value
// of a metric's label and a row of docs/reasons.md, which is made of these tables.
package reason

// Entry says of one reason what people need to know: a row of docs/reasons.md.
type Entry struct {
	// Label is the reason's name: lower case, words joined by dashes.
	Label string
	// When it is given.
	When string
	// Client is what the client sees.
	Client string
	// Code is the status of a refusal.
	Code int
	// Metric counts it too, beside the one of its section.
	Metric string
	// Do is what the operator can do about it.
	Do string
}

// all returns the values of an enumeration from first on up to end.
func all[T ~uint8](first, end T) []T {
	values := make([]T, 0, end-first)
	for v := first; v < end; v++ {
		values = append(values, v)
	}
	return values
}
