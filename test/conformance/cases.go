package conformance

import (
	"context"
	"slices"
)

// Reads returns all cases that write nothing.
func (o *Oracle) Reads(ctx context.Context) ([]Case, error) {
	resources, err := o.Resources(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		getCases(o.Env), listCases(o.Env), chunkCases(o.Env), selectorCases(o.Env), negotiationCases(o.Env),
		everyResourceCases(resources), errorCases(o.Env), discoveryCases(o.Env), watchCases(o.Env), authCases(o.Env),
	), nil
}
