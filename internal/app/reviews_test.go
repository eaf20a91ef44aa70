package app

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scriptedReviewer answers reviews in turn.
type scriptedReviewer struct{ responses []any }

func (s *scriptedReviewer) Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	next := s.responses[0]
	s.responses = s.responses[1:]
	if err, failed := next.(error); failed {
		return nil, err
	}
	return &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: next.(bool)}}, nil
}

func TestSyncedReviewer(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name        string
		responses   []any
		synced      []bool // what the server says when it is asked
		later       time.Duration
		allowed     bool
		unavailable bool
		err         error
	}{
		{name: "allowed", responses: []any{true}, allowed: true},
		{name: "failed", responses: []any{broken}, err: broken},
		{name: "denied", responses: []any{false, false}, synced: []bool{true}},
		{name: "denied before it knew", responses: []any{false, true}, synced: []bool{true}, allowed: true},
		{name: "denied, and it does not know yet", responses: []any{false}, synced: []bool{false}, unavailable: true},
		{name: "denied when it was known to know", responses: []any{false, false, false}, synced: []bool{true}, later: syncedFor / 2},
		{name: "denied a while after that", responses: []any{false, false, false, true}, synced: []bool{true, true}, later: syncedFor, allowed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, script, synced := time.Now(), &scriptedReviewer{c.responses}, slices.Clone(c.synced)
			r := &syncedReviewer{AccessReviewer: script, now: func() time.Time { return now }, synced: func(context.Context) bool {
				next := synced[0]
				synced = synced[1:]
				return next
			}}
			review := func() (*authorizationv1.SubjectAccessReview, error) {
				return r.Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
			}
			if c.later > 0 {
				_, _ = review()
				now = now.Add(c.later)
			}
			got, err := review()
			if c.err != nil && !errors.Is(err, c.err) || c.unavailable != apierrors.IsServiceUnavailable(err) || err == nil && got.Status.Allowed != c.allowed {
				t.Errorf("%+v, %v", got, err)
			}
			if len(script.responses) > 0 || len(synced) > 0 {
				t.Errorf("not asked for: %v, %v", script.responses, synced)
			}
		})
	}
}
