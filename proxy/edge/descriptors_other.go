//go:build !unix

package edge

import "math"

func clientDescriptors() int { return math.MaxInt }
