// Package registrytest runs apiserver's own tests of storage.Interface against
// registry.Store on any engine.
package registrytest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// Run runs apiserver's tests as its storage/etcd3 does. open makes a separate engine without keys
// for each test and closes it when the test ends. Run omits these exported tests:
//
//   - RunTestCompactRevision: only apiserver's watch cache, which does not exist here,
//     asks for the compacted revision; CompactRevision says that none was observed.
//   - RunTestWatchWithUnsafeDelete: belongs to the feature gate
//     AllowUnsafeMalformedObjectDeletion, which is alpha and off.
func Run(t *testing.T, open func(t *testing.T) engine.Engine) {
	for name, run := range plain() {
		t.Run(name, func(t *testing.T) {
			if !alone[name] {
				t.Parallel() // some wait for seconds
			}
			run(t.Context(), t, newStore(t, open(t), 0))
		})
	}
	for name, run := range withStore() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t.Context(), t, newStore(t, open(t), 0))
		})
	}
	t.Run("ProgressNotify", func(t *testing.T) {
		t.Parallel()
		s := newStore(t, open(t), 10*time.Millisecond)
		storagetesting.RunOptionalTestProgressNotify(t.Context(), t, s, s.increaseRevision)
	})
}

// alone are the tests beside which no other may run: they set a feature gate of the
// process, or (Get) read an object that is there for a second.
var alone = map[string]bool{
	"Get": true, "WatchSemantics": true, "WatchSemanticInitialEventsExtended": true, "WatchListMatchSingle": true,
}

// plain are the tests that need nothing but a storage.Interface.
func plain() map[string]func(context.Context, *testing.T, storage.Interface) {
	return map[string]func(context.Context, *testing.T, storage.Interface){
		"CreateWithTTL":                          storagetesting.RunTestCreateWithTTL,
		"CreateWithKeyExist":                     storagetesting.RunTestCreateWithKeyExist,
		"Get":                                    storagetesting.RunTestGet,
		"UnconditionalDelete":                    storagetesting.RunTestUnconditionalDelete,
		"ConditionalDelete":                      storagetesting.RunTestConditionalDelete,
		"DeleteWithSuggestion":                   storagetesting.RunTestDeleteWithSuggestion,
		"DeleteWithSuggestionAndConflict":        storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"DeleteWithConflict":                     storagetesting.RunTestDeleteWithConflict,
		"DeleteWithSuggestionOfDeletedObject":    storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"ValidateDeletionWithSuggestion":         storagetesting.RunTestValidateDeletionWithSuggestion,
		"ValidateDeletionWithOnlySuggestion":     storagetesting.RunTestValidateDeletionWithOnlySuggestionValid,
		"PreconditionalDeleteWithSuggestion":     storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"PreconditionalDeleteWithOnlySuggestion": storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"GetListRecursivePrefix":                 storagetesting.RunTestGetListRecursivePrefix,
		"GuaranteedUpdateWithTTL":                storagetesting.RunTestGuaranteedUpdateWithTTL,
		"GuaranteedUpdateWithConflict":           storagetesting.RunTestGuaranteedUpdateWithConflict,
		"GuaranteedUpdateWithSuggestionConflict": storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
		"ListPaging":                             storagetesting.RunTestListPaging,
		"NamespaceScopedList":                    storagetesting.RunTestNamespaceScopedList,
		"KeySchema":                              storagetesting.RunTestKeySchema,

		"Watch":                               storagetesting.RunTestWatch,
		"DeleteTriggerWatch":                  storagetesting.RunTestDeleteTriggerWatch,
		"WatchFromNonZero":                    storagetesting.RunTestWatchFromNonZero,
		"DelayedWatchDelivery":                storagetesting.RunTestDelayedWatchDelivery,
		"WatchContextCancel":                  storagetesting.RunTestWatchContextCancel,
		"WatcherTimeout":                      storagetesting.RunTestWatcherTimeout,
		"WatchDeleteEventObjectHaveLatestRV":  storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitializationSignal":           storagetesting.RunTestWatchInitializationSignal,
		"ClusterScopedWatch":                  storagetesting.RunTestClusterScopedWatch,
		"NamespaceScopedWatch":                storagetesting.RunTestNamespaceScopedWatch,
		"WatchBookmarksWithCorrectRV":         storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion,
		"SendInitialEventsBackwardCompatible": storagetesting.RunSendInitialEventsBackwardCompatibility,
		"WatchSemantics":                      storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended":  storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":                storagetesting.RunWatchListMatchSingle,
	}
}

// withStore returns the tests that inspect the engine behind the storage.
func withStore() map[string]func(context.Context, *testing.T, *store) {
	return map[string]func(context.Context, *testing.T, *store){
		"Create": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestCreate(ctx, t, s, s.stored)
		},
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, s.increaseRevision, s)
		},
		"List": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestList(ctx, t, s, s.compact, false, nil)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestConsistentList(ctx, t, s, s.increaseRevision, false, true, false)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListContinuation(ctx, t, s, s.reads)
		},
		"ListPaginationRareObject": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListPaginationRareObject(ctx, t, s, s.reads)
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, s.reads)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
		},
		"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListResourceVersionMatch(ctx, t, s)
		},
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGuaranteedUpdate(ctx, t, s, s.stored)
		},
		"GuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, s)
		},
		"TransformationFailure": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestTransformationFailure(ctx, t, s)
		},
		"Stats": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, false)
		},
		"StatsWithSizes": func(ctx context.Context, t *testing.T, s *store) {
			if err := s.EnableResourceSizeEstimation(s.keys); err != nil {
				t.Fatal(err)
			}
			defer s.Interface.(interface{ Close() }).Close()
			storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, true)
		},
		"WatchFromZero": func(ctx context.Context, t *testing.T, s *store) {
			// The test counts on etcd's inability to tell what the key of the oldest event
			// left held before. An engine that can has to forget the event as well.
			storagetesting.RunTestWatchFromZero(ctx, t, s, func(ctx context.Context, t *testing.T, resourceVersion string) {
				revision, err := strconv.Atoi(resourceVersion)
				if err != nil {
					t.Fatal(err)
				}
				s.compact(ctx, t, strconv.Itoa(revision+1))
			})
		},
		"WatchError": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestWatchError(ctx, t, s)
		},
		"WatchErrorIsBlockingFurtherEvents": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, s)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
		},
	}
}
