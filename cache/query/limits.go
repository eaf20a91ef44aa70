package query

import (
	"fmt"
)

// What a query may have at most. It bounds what each object of a list costs.
const (
	maxSort       = 8
	maxConditions = 32
	maxOperands   = 256 // of all conditions
	maxFields     = 64
	maxCounts     = 8
	maxText       = 8 << 10 // of a parameter
)

var errOperands = fmt.Errorf("its conditions have more than %d values: ask for fewer at a time", maxOperands)
