// Package embedded provides a storage.Engine in a folder of the same process. It consists of
// Pebble, one revision counter, and the keys, but not the values, in memory.
//
// # Layout
//
// Pebble's keys, by first byte; numbers are big-endian, so that their order is that
// of the bytes:
//
//	m f                              → format of the store
//	m c                              → compacted: the oldest revision that can be read
//	r revision                       → a change: type, revision of the version before, key, value
//	k key 00 01 ^revision            → empty, or one byte if the change deleted the key
//	g revision                       → garbage of the change: the version before, and itself if it is a deletion
//	e end revision                   → key that expires at end (ms of Unix time)
//	t revision                       → when the revision was the current one
//
// r is the log: watches scan it, and values are read from it by the revisions of their keys.
// k has the keys of every revision, newest version first. In
// memory there are the index (each existing key and its revision) and the keys with a time
// to live. The newest changes are in Pebble's memtables, where watches of now find them.
//
// The file REVISION has the newest revision of a second ago: a store with less has lost changes
// and is not opened (see highWater). RESERVE and RESERVE-START occupy 32 MiB each, and are
// otherwise empty.
//
// # Invariants
//
//  1. One write to Pebble, synced, holds a whole group of changes, each in all spaces.
//     So after a crash a change is there or not, and of two the earlier is there if
//     the later is.
//  2. Revisions are consecutive from 2 on: every one in [compacted, current] is in the log,
//     none above. Below, the log keeps the newest revision of each key, and those that a
//     change in that range replaced.
//  3. Index and current revision change together, after the sync and before
//     any caller of the group returns. Reads look at Pebble only for revisions that
//     they found visible, so they never find changes that are not synced yet.
//  4. compacted is on disk before anything below it is removed. Reads that may miss removed
//     entries check compacted afterwards, and fail with ErrCompacted rather than return an
//     incomplete result.
//  5. compacted itself can be read and watched, as in etcd: a change is removed only
//     when the one that replaced it is below compacted.
//
// # Commits
//
// Put adds a change to a queue. The commit loop takes all waiting changes (at most 512, or
// 1 MiB), checks each precondition against the index and the changes before it in the
// group, writes one batch, syncs, publishes, and wakes the callers. Changes that arrive during
// the sync form the next group. A caller that gives up withdraws its change if the loop does
// not have it yet.
//
// When the disk is full, the engine releases a reserve for the write that found out
// (reserve.go). From then on it rejects creations, but not deletions. When the reserve is
// used up, too, the write waits in the file system that Pebble uses (see guard): changes are
// rejected, and reads go on. The write goes on when there is room; its changes are
// storage.ErrUncertain. A compaction does not wait, because it would occupy the space that the
// others wait for: it fails and is retried. When the disk fails, the store stops as if the
// process had been killed.
//
// # Bounds
//
//	value, key                1.5 MiB, 16 KiB
//	queue                     16,384 changes, 64 MiB
//	watch batch               256 events, 1 MiB of values
//	index                     about 36 bytes and its own for each key
//	memtables, block cache    3 of 8 MiB under load, 8 MiB
//	history                   HistoryAge and a twentieth, then compacted
//
// # Rejected
//
//   - Values beside their keys (k key ^revision → value), for faster scans: an object
//     would be rewritten by compactions as long as others of its type change, the
//     index could not be loaded without passing all values by, and a watch from the
//     past would need a search for each event. Large scans happen once, when the cache
//     in front is filled.
//   - The key space in memory alone, as etcd has it: opening would read all values.
//   - A log without values beside a space of values: one more key for each change,
//     only so that compaction need not read values. The space g does that, and costs
//     nothing for a creation.
//   - Two groups at a time (checking the next while one is synced): preconditions would be
//     checked against changes that may fail. With 32 clients the groups are large enough.
//   - Commits by the callers instead of a loop: a caller would be
//     stuck in the write when the disk is, whatever its deadline.
//   - A channel per watcher, filled by the commit loop: a buffer for each, and a policy for
//     slow readers. A cursor costs nothing while nothing happens.
//   - Closing and opening Pebble again after a failed write: it leaves locks held and
//     panics in goroutines of its own.
package embedded
