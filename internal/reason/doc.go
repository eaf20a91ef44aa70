// Package reason enumerates why reads are forwarded, watches end and requests are rejected. Each
// reason is the value of a metric's label and a row of docs/reasons.md, which is generated from
// these tables.
package reason

// Entry documents one reason: a row of docs/reasons.md.
type Entry struct {
	// Label is the reason's name: lower-case words joined by dashes.
	Label string
	// When states when the reason applies.
	When string
	// Client is what the client sees.
	Client string
	// Code is the status of a rejection.
	Code int
	// Metric also counts it, besides the metric of its section.
	Metric string
	// Do is what the operator can do about it.
	Do string
}

// all returns the values of an enumeration from first up to, but not including, end.
func all[T ~uint8](first, end T) []T {
	values := make([]T, 0, end-first)
	for v := first; v < end; v++ {
		values = append(values, v)
	}
	return values
}
