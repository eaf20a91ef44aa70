package proxy

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

const (
	// coalesceParameter is the query parameter of a watch with the time that its events may wait
	// for others of the same object.
	coalesceParameter = "coalesce"
	// coalesceHeader is the response header with the delivery interval.
	coalesceHeader = "Kubeweir-Coalesce"
)

// pace returns the delivery rate of a watch: the rate that a rule sets, or a slower one that the
// client requests. The error is a 400 that names the parameter.
func (x *exchange) pace() (watch.Pace, error) {
	p := watch.Pace{Coalesce: x.Settings.Coalesce, BytesPerSecond: x.Settings.WatchBytesPerSecond}
	if p.Coalesce < 0 {
		p = watch.Pace{}
	}
	if x.Info.Coalesce == nil {
		return p, nil
	}
	requested, err := parseCoalesce(*x.Info.Coalesce)
	p.Coalesce = max(p.Coalesce, requested)
	return p, err
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
