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
	// Metric counts it, where not the one of its section does.
	Metric string
	// Do is what the operator can do about it.
	Do string
}
