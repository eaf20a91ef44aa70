package review

// Outcome is what came of reviewing again what an open watch depends on. It is a metric's label.
type Outcome string

// The outcomes.
const (
	Good    Outcome = "good"
	Offline Outcome = "offline" // good by what the upstream said last
	Lost    Outcome = "lost"
	Unknown Outcome = "unknown"
)
