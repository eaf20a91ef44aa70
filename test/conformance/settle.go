package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// settleTime is how long a target may take to catch up with the writes before the cases start.
const settleTime = 20 * time.Second

// anyList is a read of a resource from the cache.
func anyList(r Resource, mediaType string) Case {
	return fresh("", r.Path+"?resourceVersion=0").accept(mediaType)
}

// forms returns the representations that a caching target watches separately.
func forms(r Resource) []string {
	if r.Custom {
		return []string{typeJSON}
	}
	return []string{typeJSON, typeProto}
}

// Warm reads every resource until the target serves it from its cache. It returns an error if the
// target still forwards a resource after settleTime: everything that can be listed and watched is
// cached.
func Warm(ctx context.Context, env *Env, target *Target, resources []Resource) error {
	for _, r := range resources {
		for _, form := range forms(r) {
			if err := warmOne(ctx, env, target, anyList(r, form)); err != nil {
				return fmt.Errorf("%s: %s in %s is not cached: %w", target.Name, r.Path, form, err)
			}
		}
	}
	return nil
}

func warmOne(ctx context.Context, env *Env, target *Target, c Case) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		a, err := target.Send(ctx, c.Request, env.Users[admin])
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d: %.300s", a.Status, a.Body)
		}
		return target.HasPriority || !forwarded(a), err
	})
}

// forwarded reports whether a response of a gateway comes from kube-apiserver, which adds headers of
// priority and fairness.
func forwarded(r Response) bool { return r.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" }

// Settle waits until the target's cache shows the same as the oracle. It returns the resources that
// still differ after settleTime; the cases then report how.
func Settle(ctx context.Context, env *Env, oracle, target *Target, resources []Resource) (unsettled []string, err error) {
	wait, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, r := range resources {
		for _, form := range forms(r) {
			c := anyList(r, form)
			err := poll(wait, func() (bool, error) {
				requested, err := requestEach(ctx, c, env.Users[admin], oracle, target)
				if err != nil {
					return false, err
				}
				want, got := requested[0].pages[0].Body, requested[1].pages[0].Body
				return bytes.Equal(masked(c, want), masked(c, got)), nil
			})
			if err != nil && wait.Err() == nil {
				return nil, err
			}
			if err != nil {
				unsettled = append(unsettled, r.Path+" in "+form)
			}
		}
	}
	return unsettled, ctx.Err()
}

// poll calls ready until it returns true or an error, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
