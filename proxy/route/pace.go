package route

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// coalesceParameter is the query parameter of a watch with the time that its events may wait for
// others of the same object.
const coalesceParameter = "coalesce"

// ParsePace sets Pace, the delivery rate of a watch: the rate that a rule sets, or a slower one that
// the client requests. PaceErr is a 400 that names the parameter.
func (f *Facts) ParsePace() {
	f.Pace = watch.Pace{Coalesce: f.Settings.Coalesce, BytesPerSecond: f.Settings.WatchBytesPerSecond}
	if f.Pace.Coalesce < 0 {
		f.Pace = watch.Pace{}
	}
	if f.Info.Coalesce != nil {
		var requested time.Duration
		requested, f.PaceErr = parseCoalesce(*f.Info.Coalesce)
		f.Pace.Coalesce = max(f.Pace.Coalesce, requested)
	}
}

func parseCoalesce(text string) (time.Duration, error) {
	requested, err := time.ParseDuration(text)
	switch {
	case text == "":
		return 0, badCoalesce("empty value: set a value or omit the parameter")
	case err != nil:
		return 0, badCoalesce(fmt.Sprintf("it must be a duration such as 500ms or 2s, not %q", text[:min(len(text), 64)]))
	case requested < defaults.MinCoalesce || requested > defaults.MaxCoalesce:
		return 0, badCoalesce(fmt.Sprintf("it must be from %v to %v, not %v", defaults.MinCoalesce, defaults.MaxCoalesce, requested))
	}
	return requested, nil
}

func badCoalesce(why string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("parameter %s: %s", coalesceParameter, why))
}
