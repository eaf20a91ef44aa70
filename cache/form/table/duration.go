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

type span struct {
	below        time.Duration
	large, small time.Duration // small is 0 for one unit
	units        string
}

// spans are the units in which ages below a bound are shown. The second one is left out if it is
// zero.
var spans = [...]span{
	{2 * time.Minute, time.Second, 0, "s"},
	{10 * time.Minute, time.Minute, time.Second, "ms"},
	{3 * time.Hour, time.Minute, 0, "m"},
	{8 * time.Hour, time.Hour, time.Minute, "hm"},
	{2 * day, time.Hour, 0, "h"},
	{8 * day, day, time.Hour, "dh"},
	{2 * year, day, 0, "d"},
	{8 * year, year, day, "yd"},
	{math.MaxInt64, year, 0, "y"},
}

// spanOf returns the span in which d is shown.
func spanOf(d time.Duration) *span {
	i := 0
	for d >= spans[i].below && i < len(spans)-1 {
		i++
	}
	return &spans[i]
}

// appendHumanDuration appends HumanDuration(d) of k8s.io/apimachinery/pkg/util/duration, escaped
// for JSON.
func appendHumanDuration(dst []byte, d time.Duration) []byte {
	// Truncation matters: times less than two seconds in the future count as now.
	switch seconds := d / time.Second; {
	case seconds < -1:
		return append(dst, invalidDuration...)
	case seconds < 0:
		return append(dst, "0s"...)
	}
	span := spanOf(d)
	dst = append(strconv.AppendInt(dst, int64(d/span.large), 10), span.units[0])
	if span.small > 0 {
		if rest := d % span.large / span.small; rest > 0 {
			dst = append(strconv.AppendInt(dst, int64(rest), 10), span.units[1])
		}
	}
	return dst
}

// untilNextText returns how long the text of an age that is now d stays the same.
func untilNextText(d time.Duration) time.Duration {
	switch {
	case d == math.MinInt64:
		return math.MaxInt64
	case d <= -2*time.Second:
		// "<invalid>" ends when the truncated seconds reach -1.
		return -2*time.Second + 1 - d
	case d < time.Second:
		return time.Second - d
	}
	step := spanOf(d).large
	if small := spanOf(d).small; small > 0 {
		step = small
	}
	return step - d%step
}
