package query

// Limits of a query. They bound its cost per object.
const (
	maxSort       = 8
	maxConditions = 32
	maxOperands   = 256 // of all conditions
	maxFields     = 64
	maxCounts     = 8
	maxText       = 8 << 10 // of a parameter
)
