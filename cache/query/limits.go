package query

import (
	"fmt"
)

// Limits of a query. They bound its cost per object.
const (
	maxSort       = 8
	maxConditions = 32
	maxOperands   = 256 // of all conditions
	maxFields     = 64
	maxCounts     = 8
	maxText       = 8 << 10 // of a parameter
)

var errOperands = fmt.Errorf("conditions have more than %d values: split the request", maxOperands)
