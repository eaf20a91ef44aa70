package table

import (
	"math"
	"strconv"
	"time"
)

// invalidDuration is the text of a time in the future, escaped for JSON.
const invalidDuration = `\u003cinvalid\u003e`

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// appendHumanDuration appends HumanDuration(d) of k8s.io/apimachinery/pkg/util/duration, escaped
// for JSON.
func appendHumanDuration(dst []byte, d time.Duration) []byte {
	// Truncation matters: times less than two seconds in the future count as now.
	switch seconds := int64(d / time.Second); {
	case seconds < -1:
		return append(dst, invalidDuration...)
	case seconds < 0:
		return append(dst, "0s"...)
	case seconds < 120:
		return appendUnit(dst, seconds, 's')
	}
	switch {
	case d < 10*time.Minute:
		return appendTwo(dst, d, time.Minute, 'm', time.Second, 's')
	case d < 3*time.Hour:
		return appendUnit(dst, int64(d/time.Minute), 'm')
	case d < 8*time.Hour:
		return appendTwo(dst, d, time.Hour, 'h', time.Minute, 'm')
	case d < 2*day:
		return appendUnit(dst, int64(d/time.Hour), 'h')
	case d < 8*day:
		return appendTwo(dst, d, day, 'd', time.Hour, 'h')
	case d < 2*year:
		return appendUnit(dst, int64(d/day), 'd')
	case d < 8*year:
		return appendTwo(dst, d, year, 'y', day, 'd')
	}
	return appendUnit(dst, int64(d/year), 'y')
}

func appendUnit(dst []byte, n int64, unit byte) []byte {
	return append(strconv.AppendInt(dst, n, 10), unit)
}

// appendTwo appends d in two units, the smaller one only if it is not zero.
func appendTwo(dst []byte, d, large time.Duration, largeUnit byte, small time.Duration, smallUnit byte) []byte {
	dst = appendUnit(dst, int64(d/large), largeUnit)
	if rest := d % large / small; rest > 0 {
		dst = appendUnit(dst, int64(rest), smallUnit)
	}
	return dst
}

// untilNextText returns how long the text of an age that is now d stays the same.
func untilNextText(d time.Duration) time.Duration {
	var step time.Duration
	switch {
	case d <= -2*time.Second:
		// "<invalid>" ends when the truncated seconds reach -1.
		if d == math.MinInt64 {
			return math.MaxInt64
		}
		return -2*time.Second + 1 - d
	case d < time.Second:
		return time.Second - d
	case d < 10*time.Minute:
		step = time.Second
	case d < 8*time.Hour:
		step = time.Minute
	case d < 8*day:
		step = time.Hour
	case d < 8*year:
		step = day
	default:
		step = year
	}
	return step - d%step
}
