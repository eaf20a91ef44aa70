// Package embedded is a storage.Engine in a folder of the same process: Pebble, one
// revision counter, and in memory the keys, but not the values.
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
//	g revision                       → what the change made superfluous: the version before, and itself if it is a deletion
//	e end revision                   → key whose time to live ends at end (ms of Unix time)
//	t revision                       → when the revision was the current one
//
// r is the log: a watch from the past scans it, and a value is read from it by the
// revision of its key. k is what was there at any revision, newest version first. In
// memory there are the index (each existing key and its revision) and the keys with a time
// to live. The newest changes are in Pebble's memtables, where watches of now find them.
//
// Beside Pebble's files is REVISION, the newest revision of a moment ago: a store with
// less than that has lost something, and is not opened (see highWater). RESERVE and
// RESERVE-START hold 32 MiB of room each, and nothing else.
//
// # Invariants
//
//  1. One write to Pebble, synced, holds a whole group of changes, each in all spaces.
//     So after a crash a change is there or not, and of two the earlier is there if
//     the later is.
//  2. Revisions follow on one another from 2 on: every one in [compacted, current] is in
//     the log, none above. Below, those are left that are some key's newest, and those
//     that a change in that range replaced.
//  3. Index and current revision change together, after the sync and before
//     any caller of the group is told. Reads look at Pebble only for revisions that
//     they found visible; what is written but not yet synced is not found.
//  4. compacted is on disk before anything below it is removed. Whoever reads what
//     may have been removed looks at compacted afterwards, and fails with ErrCompacted
//     rather than leave something out.
//  5. compacted itself can be read and watched, as in etcd: a change is removed only
//     when the one that replaced it is below compacted.
//
// # A change's way
//
// Put adds to a queue. The commit loop takes all that waits (at most 512 changes or
// 1 MiB), checks each precondition against the index and the changes before it in the
// group, writes one batch, syncs, publishes, and answers. What arrives during the sync
// is the next group. A caller that leaves takes its change out of the queue if the
// loop does not have it yet.
//
// When the disk is full a reserve of room is given up for the write that found out
// (reserve.go): creations are refused from then on, deletions are not. When that is full,
// too, the write waits inside the file system that Pebble is given (see guard): changes
// are refused, reads go on, and so does the write when there is room; those in it are
// storage.ErrUncertain. A compaction does not wait, as it would hold what the others wait
// for: it fails, and is tried again. When the disk fails the store stops as if the process
// had been killed.
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
//   - Two groups at a time (checking the next while one is synced): preconditions would
//     be checked against what may never be. With 32 clients the groups are large enough.
//   - The caller that finds nobody committing commits, and no loop is needed: it would be
//     stuck in the write when the disk is, whatever its deadline.
//   - A watcher's channel, filled by the commit loop: a buffer for each, and a slow reader
//     to be dealt with. A cursor costs nothing while nothing happens.
//   - Closing and opening Pebble again after a failed write: it leaves locks held and
//     panics in goroutines of its own.
package embedded
