package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// maxFaults is the number of faults that a Report lists.
const maxFaults = 1000

// A Fault is damage to a store.
type Fault struct {
	// File is the name of the file, "" if the fault is not in a single file.
	File string
	// Offset is where the damaged part of the file begins, -1 if unknown.
	Offset int64
	// Key is the key that is affected, with its revision, or a description of the keys; "" if unknown.
	Key string
	// The damage, in words.
	What string
}

func (f Fault) String() string {
	var parts []string
	if f.File != "" {
		parts = append(parts, f.File)
	}
	if f.Offset >= 0 {
		parts = append(parts, fmt.Sprintf("offset %d", f.Offset))
	}
	if f.Key != "" {
		parts = append(parts, f.Key)
	}
	return strings.Join(append(parts, f.What), ": ")
}

// A Report is the result of Check.
type Report struct {
	// Files and Bytes were read.
	Files int
	Bytes int64
	// Keys exist at Revision, the newest one; Changes are in the log. They are 0 if the store cannot be
	// opened.
	Keys, Changes int
	Revision      uint64
	// Faults are at most maxFaults; More were found.
	Faults []Fault
	More   int
}

func (r *Report) add(f Fault) {
	if slices.Contains(r.Faults, f) {
		return
	}
	if len(r.Faults) == maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, f)
}

// Check reads everything in the folder of a store that is not in use: the checksum of each block of each
// file, and all invariants of the layout. It changes nothing. An error says why the store could not be
// checked. Check does not find damage that looks like a process that was killed in a write: of the log, the
// changes of less than a second before a crash. A store that was closed has no such changes.
func Check(ctx context.Context, dir string) (*Report, error) {
	if _, err := vfs.Default.Stat(filepath.Join(dir, highWaterFile)); err != nil {
		return nil, openError(dir, err)
	}
	c := &check{ctx: ctx, dir: dir, guard: newGuard(vfs.Default, dir, discardLog), report: &Report{}, tables: map[string]int64{}}
	lock, err := c.guard.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return nil, openError(dir, err)
	}
	err = c.files()
	// Pebble takes the lock itself.
	if err := errors.Join(err, lock.Close(), ctx.Err()); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		if errors.Is(err, errInUse) || ctx.Err() != nil {
			return nil, openError(dir, err)
		}
		c.report.add(Fault{Offset: -1, What: "the store cannot be opened: " + firstLine{err}.Error()})
		return c.report, nil
	}
	err = errors.Join(c.contents(), c.engine.db.Close())
	c.dropVague()
	return c.report, err
}

// check is a Check under way.
type check struct {
	ctx    context.Context
	dir    string
	guard  *guard
	report *Report
	engine *Engine
	noted  uint64 // revision in REVISION

	// corruption is what Pebble reported last about a damaged file.
	corruption *pebble.DataCorruptionInfo
	tables     map[string]int64 // damaged tables, with the offset of the first damage
	damage     []badRange       // parts of the tables that cannot be read

	versions map[string][]version // of each key, newest first
	log      map[uint64]logChange
	revision uint64 // newest in the log
}

// A logChange is a change in the log: key, revision of the version that it replaced, whether it is a
// deletion.
type logChange struct {
	key      string
	previous uint64
	gone     bool
}

// A version is one in the key space.
type version struct {
	revision uint64
	gone     bool
}

// open opens Pebble without writing.
func (c *check) open() (err error) {
	opts := pebbleOptions(c.guard)
	opts.ReadOnly = true
	opts.EventListener.DataCorruption = func(info pebble.DataCorruptionInfo) { c.corruption = &info }
	opts.EventListener.EnsureDefaults(opts.Logger)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errCorrupt, r)
		}
	}()
	c.engine = newEngine(Options{Dir: c.dir, FS: vfs.Default, Logger: discardLog})
	c.engine.db, err = pebble.Open(c.dir, opts)
	return err
}

// contents checks the invariants of the package comment.
func (c *check) contents() error {
	c.versions, c.log = map[string][]version{}, map[uint64]logChange{}
	if err := c.locate(); err != nil {
		return err
	}
	c.checkMeta()
	for _, step := range []func() error{c.readLog, c.readVersions, c.checkVersions, c.checkLog, c.checkGarbage, c.checkExpiry, c.checkMarks} {
		if err := errors.Join(step(), c.ctx.Err()); err != nil {
			return err
		}
	}
	r := c.report
	r.Revision, r.Changes = c.revision, len(c.log)
	for _, versions := range c.versions {
		if !versions[0].gone {
			r.Keys++
		}
	}
	if c.noted > c.revision {
		r.add(Fault{File: highWaterFile, Offset: -1, What: (&lostError{has: c.revision, had: c.noted, path: highWaterFile}).Error()})
	}
	return nil
}

func (c *check) checkMeta() {
	v, err := c.engine.value(metaFormat)
	has := uint64(0)
	if err == nil {
		n := 0
		if has, n = binary.Uvarint(v); n <= 0 {
			err = corrupt("the format", v)
		}
	}
	switch {
	case err != nil:
		c.fault("the format of the store", err)
	case has > format:
		c.fault("the format of the store", &formatError{has: has})
	}
	if err := c.engine.loadMeta(); err != nil && has > 0 && has <= format {
		c.fault("the oldest revision", err)
	}
}

// place matches the offset of a block in Pebble's errors.
var place = regexp.MustCompile(`block (\d+)/\d+`)

// fault adds a fault of a key. It takes file and offset from what Pebble reported about err.
func (c *check) fault(key string, err error) {
	f := Fault{Offset: -1, Key: key, What: firstLine{err}.Error()}
	if info := c.corruption; info != nil && pebble.IsCorruptionError(err) {
		f.File = filepath.Base(info.Path)
		if at := place.FindStringSubmatch(fmt.Sprint(info.Details, err)); at != nil {
			f.Offset, _ = strconv.ParseInt(at[1], 10, 64)
		}
		f.What = "it cannot be read"
	}
	c.report.add(f)
}

// dropVague removes faults of a part of a file for which there is another one that names a key.
// It sorts the others.
func (c *check) dropVague() {
	type part struct {
		file   string
		offset int64
	}
	named := map[part]bool{}
	for _, f := range c.report.Faults {
		if f.Key != "" && f.Offset >= 0 {
			named[part{f.File, f.Offset}] = true
		}
	}
	c.report.Faults = slices.DeleteFunc(c.report.Faults, func(f Fault) bool { return f.Key == "" && named[part{f.File, f.Offset}] })
	slices.SortFunc(c.report.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Key, b.Key))
	})
}

// A badRange is a range of Pebble's keys that cannot be read: from (inclusive) to to (exclusive).
type badRange struct {
	from, to []byte
	file     string
	offset   int64
}

// damagedBetween reports whether keys of Pebble's in a range cannot be read.
func (c *check) damagedBetween(from, to []byte) bool {
	return slices.ContainsFunc(c.damage, func(d badRange) bool {
		return bytes.Compare(d.from, to) < 0 && bytes.Compare(from, d.to) < 0
	})
}

// damageAt returns the damage that a key of Pebble's is in, nil if it is in none.
func (c *check) damageAt(key []byte) *badRange {
	for i := range c.damage {
		if d := &c.damage[i]; bytes.Compare(d.from, key) <= 0 && bytes.Compare(key, d.to) < 0 {
			return d
		}
	}
	return nil
}

// unreadable adds the fault of an object whose entry at a key of Pebble's cannot be read. It returns false
// if the key is in no damaged part.
func (c *check) unreadable(object string, key []byte) bool {
	d := c.damageAt(key)
	if d != nil {
		c.report.add(Fault{File: d.file, Offset: d.offset, Key: object, What: "it cannot be read"})
	}
	return d != nil
}

// locate finds the keys in the damaged parts of tables. Reads of these parts are avoided afterwards, also
// because Pebble searches for a flipped bit each time, which takes long.
func (c *check) locate() error {
	if len(c.tables) == 0 {
		return nil
	}
	levels, err := c.engine.db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for i := range level {
			info := &level[i]
			name := fmt.Sprintf("%06d.sst", uint64(info.FileNum))
			offset, damaged := c.tables[name]
			if !damaged {
				continue
			}
			d := badRange{from: info.Smallest.UserKey, to: after(info.Largest.UserKey), file: name, offset: offset}
			if err := c.file(name, func(_ string, f *os.File, _ int64) error { return c.narrow(&d, f) }); err != nil {
				return err
			}
			if d.from != nil {
				c.damage = append(c.damage, d)
			}
		}
	}
	slices.SortFunc(c.damage, func(a, b badRange) int { return bytes.Compare(a.from, b.from) })
	return nil
}

// after returns the first key after a key.
func after(key []byte) []byte { return append(slices.Clone(key), 0) }

// each calls f for all keys of a space, but those in damaged parts.
func (c *check) each(space byte, f func(key, value []byte)) error {
	from, end := []byte{space}, []byte{space + 1}
	for i := range c.damage {
		d := &c.damage[i]
		if bytes.Compare(d.to, from) <= 0 {
			continue
		}
		if bytes.Compare(d.from, end) >= 0 {
			break
		}
		if bytes.Compare(from, d.from) < 0 {
			if err := c.scan(from, d.from, f); err != nil {
				return err
			}
		}
		from = d.to
	}
	if bytes.Compare(from, end) >= 0 {
		return nil
	}
	return c.scan(from, end, f)
}

// scan calls f for the keys in a range, up to the first that cannot be read.
func (c *check) scan(from, to []byte, f func(key, value []byte)) error {
	n := 0
	err := c.engine.scan(from, to, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			if n++; n&0xfff == 0 && c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			v, err := iter.ValueAndErr()
			if err != nil {
				return err
			}
			f(iter.Key(), v)
		}
		return nil
	})
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case err != nil && pebble.IsCorruptionError(err):
		c.fault("", err)
		return nil
	case err != nil:
		return fmt.Errorf("reading %s: %w", c.dir, firstLine{err})
	}
	return nil
}

// readLog reads the log.
func (c *check) readLog() error {
	return c.each(spaceLog, func(key, value []byte) {
		rev, err := number(key)
		if err != nil {
			c.fault(fmt.Sprintf("log entry %x", key), err)
			return
		}
		ent, err := parseEntry(value)
		if err != nil {
			c.fault(fmt.Sprintf("revision %d", rev), err)
			return
		}
		c.log[rev] = logChange{key: string(ent.key), previous: ent.previous, gone: ent.kind == storage.Deleted}
		c.revision = max(c.revision, rev)
		if (ent.previous == 0) != (ent.kind == storage.Created) || ent.previous >= rev {
			c.fault(revisionOf(string(ent.key), rev), fmt.Errorf("it replaces revision %d, which is impossible", ent.previous))
		}
	})
}

func revisionOf(key string, rev uint64) string { return fmt.Sprintf("%s at revision %d", key, rev) }

// readVersions reads the key space.
func (c *check) readVersions() error {
	return c.each(spaceKeys, func(key, value []byte) {
		escaped, rev, err := splitVersionKey(key)
		if err != nil {
			c.fault(fmt.Sprintf("version %q", key), err)
			return
		}
		name := unescape(escaped)
		c.versions[name] = append(c.versions[name], version{rev, len(value) > 0})
		c.revision = max(c.revision, rev)
	})
}

// checkVersions checks that the versions of each key are changes in the log that follow on one another.
func (c *check) checkVersions() error {
	for key, versions := range c.versions {
		for i, v := range versions {
			l, ok := c.log[v.revision]
			if !ok {
				if what := revisionOf(key, v.revision); !c.unreadable(what, logKey(v.revision)) {
					c.fault(what, errors.New("its change is missing from the log"))
				}
				continue
			}
			switch {
			case l.key != key:
				c.fault(revisionOf(key, v.revision), fmt.Errorf("the log has %s at this revision", l.key))
			case v.gone != l.gone:
				c.fault(revisionOf(key, v.revision), errors.New("it is a deletion in the log or in the key space, and not in the other"))
			case i+1 < len(versions):
				before := versions[i+1]
				if before.gone {
					before.revision = 0
				}
				if l.previous != before.revision && !c.damagedBetween(appendVersionKey(nil, key, v.revision), appendVersionKey(nil, key, versions[i+1].revision)) {
					c.fault(revisionOf(key, v.revision), fmt.Errorf("it replaces revision %d, and the version before it is %d", l.previous, before.revision))
				}
			}
		}
	}
	return nil
}

// checkLog checks that each change in the log is a version of its key, and that none is missing.
func (c *check) checkLog() error {
	for rev, l := range c.log {
		if slices.ContainsFunc(c.versions[l.key], func(v version) bool { return v.revision == rev }) {
			continue
		}
		if what := revisionOf(l.key, rev); !c.unreadable(what, appendVersionKey(nil, l.key, rev)) {
			c.fault(what, errors.New("it is in the log, and its version is missing from the key space"))
		}
	}
	c.checkGaps()
	return nil
}

// checkGaps checks that no revision is missing since the oldest that can be read. Others have reported the
// versions without a change.
func (c *check) checkGaps() {
	var revisions []uint64
	for rev := range c.log {
		revisions = append(revisions, rev)
	}
	for _, versions := range c.versions {
		for _, v := range versions {
			revisions = append(revisions, v.revision)
		}
	}
	compacted := c.engine.mu.compacted
	if compacted > 0 {
		revisions = append(revisions, compacted+1) // compacted itself must be there
	}
	slices.Sort(revisions)
	want := max(compacted, firstRevision+1)
	for _, rev := range slices.Compact(revisions) {
		if rev < want {
			continue
		}
		if rev > want {
			what := fmt.Sprintf("revisions %d to %d", want, rev-1)
			if !c.unreadable(what, logKey(want)) {
				c.report.add(Fault{Offset: -1, Key: what, What: "the changes are missing from the log"})
			}
		}
		want = rev + 1
	}
}

func (c *check) checkGarbage() error {
	garbage := map[uint64]bool{}
	err := c.each(spaceGarbage, func(key, value []byte) {
		rev, err := number(key)
		if err != nil {
			c.fault(fmt.Sprintf("garbage %x", key), err)
			return
		}
		garbage[rev] = true
		previous, deleted, name, err := parseGarbage(value)
		if err != nil {
			c.fault(fmt.Sprintf("garbage of revision %d", rev), err)
			return
		}
		if l, ok := c.log[rev]; ok && (l.key != name || l.previous != previous || deleted != l.gone) {
			c.fault(revisionOf(name, rev), errors.New("its garbage record differs from the log"))
		}
	})
	for rev, l := range c.log {
		if rev >= c.engine.mu.compacted && l.previous != 0 && !garbage[rev] && c.damageAt(garbageKey(rev)) == nil {
			c.fault(revisionOf(l.key, rev), errors.New("its garbage record is missing"))
		}
	}
	return err
}

func (c *check) checkExpiry() error {
	return c.each(spaceExpiry, func(key, value []byte) {
		_, rev, err := parseExpiryKey(key)
		if err != nil {
			c.fault(fmt.Sprintf("time to live %x", key), err)
			return
		}
		if versions := c.versions[string(value)]; len(versions) == 0 || versions[0].revision != rev || versions[0].gone {
			c.fault(revisionOf(string(value), rev), errors.New("it has a time to live, and is not the newest version of the key"))
		}
	})
}

func (c *check) checkMarks() error {
	return c.each(spaceMarks, func(key, value []byte) {
		rev, err := number(key)
		if err == nil && len(value) != 8 {
			err = corrupt("a mark", key)
		}
		if err == nil && rev > max(c.revision, firstRevision) {
			err = corrupt("a mark without its change", key)
		}
		if err != nil {
			c.fault(fmt.Sprintf("mark %x", key), err)
		}
	})
}
