//go:build !unix

package usage

import "time"

// processTime is unknown here: estimates are not converted.
func processTime() (time.Duration, bool) { return 0, false }
