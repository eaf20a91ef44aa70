package review

import (
	"fmt"
	"time"
)

// With an offline time configured, a request must not wait for an unavailable upstream if an older
// result can be used.
const (
	// StaleWait is how long a review may take if an older result can be used.
	StaleWait = 2 * time.Second
	// StaleFor is how long the older result of a review that failed is then used without a review.
	StaleFor = 5 * time.Second
)

var errSlow = fmt.Errorf("%w in time", ErrUnavailable)

// Outcome is the result of reviewing again what an open watch depends on. It is a metric label.
type Outcome string

// The outcomes.
const (
	Good    Outcome = "good"
	Offline Outcome = "offline" // good by a decision made before the outage
	Lost    Outcome = "lost"
	Unknown Outcome = "unknown"
)
