package registry

import (
	"context"
	"strconv"
	"testing"

	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// TestStorage runs apiserver's own tests of storage.Interface, as its storage/etcd3
// does. Of those that are exported, these are not among them:
//
//   - RunTestCompactRevision: only apiserver's watch cache, which does not exist here,
//     asks for the compacted revision; CompactRevision says that none was observed.
//   - RunTestWatchWithUnsafeDelete: belongs to the feature gate
//     AllowUnsafeMalformedObjectDeletion, which is alpha and off.
func TestStorage(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
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
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newTestStore(t)) })
	}
	for name, run := range map[string]func(context.Context, *testing.T, *testStore){
		"Create": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestCreate(ctx, t, s, s.stored)
		},
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, s.increaseRevision, s)
		},
		"List": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestList(ctx, t, s, s.compact, false, nil)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestConsistentList(ctx, t, s, s.increaseRevision, false, true, false)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestListContinuation(ctx, t, s, s.reads)
		},
		"ListPaginationRareObject": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestListPaginationRareObject(ctx, t, s, s.reads)
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, s.reads)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
		},
		"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestListResourceVersionMatch(ctx, t, s)
		},
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestGuaranteedUpdate(ctx, t, s, s.stored)
		},
		"GuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, s)
		},
		"TransformationFailure": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestTransformationFailure(ctx, t, s)
		},
		"Stats": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, false)
		},
		"StatsWithSizes": func(ctx context.Context, t *testing.T, s *testStore) {
			if err := s.EnableResourceSizeEstimation(func(context.Context) ([]string, error) { return nil, nil }); err != nil {
				t.Fatal(err)
			}
			storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, true)
		},
		"WatchFromZero": func(ctx context.Context, t *testing.T, s *testStore) {
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
		"WatchError": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestWatchError(ctx, t, s)
		},
		"WatchErrorIsBlockingFurtherEvents": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, s)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, s *testStore) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
		},
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newTestStore(t)) })
	}
	t.Run("ProgressNotify", func(t *testing.T) {
		s := newTestStore(t, func(o *StoreOptions) { o.BookmarkPeriod = 1e7 })
		storagetesting.RunOptionalTestProgressNotify(t.Context(), t, s, s.increaseRevision)
	})
}
