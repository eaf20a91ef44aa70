package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	recordio "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var discardLog = slog.New(slog.DiscardHandler)

// files checks the checksums in all files.
func (c *check) files() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		name := entry.Name()
		var read func(name string, f *os.File, size int64) error
		switch {
		case strings.HasSuffix(name, ".sst"):
			read = c.table
		case strings.HasSuffix(name, ".log"):
			read = c.writeAheadLog
		case strings.HasPrefix(name, "MANIFEST-"):
			read = c.manifest
		case name == highWaterFile:
			read = c.highWater
		default:
			continue // has no data
		}
		if err := c.file(name, read); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) file(name string, read func(name string, f *os.File, size int64) error) error {
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.report.Files++
	c.report.Bytes += info.Size()
	return read(name, f, info.Size())
}

// damaged adds a fault in a file.
func (c *check) damaged(name string, offset int64, key, format string, args ...any) {
	c.report.add(Fault{File: name, Offset: offset, Key: key, What: fmt.Sprintf(format, args...)})
}

// openTable opens a table. The caller closes the reader, or file if there is an error.
func (c *check) openTable(f *os.File) (*sstable.Reader, error) {
	file, err := vfs.Default.Open(f.Name())
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	options := pebbleOptions(c.guard)
	options.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, options.MakeReaderOptions())
	if err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}

// table checks all blocks of a table.
func (c *check) table(name string, f *os.File, size int64) error {
	r, err := c.openTable(f)
	if err != nil {
		c.brokenTable(name, size, err)
		return nil
	}
	defer func() { _ = r.Close() }()
	layout, err := r.Layout()
	if err != nil {
		c.brokenTable(name, size, err)
		return nil
	}
	handles := append([]block.Handle{}, layout.Index...)
	handles = append(handles, layout.ValueBlock...)
	handles = append(handles, layout.TopIndex, layout.RangeDel, layout.RangeKey, layout.ValueIndex, layout.Properties, layout.MetaIndex, layout.BlobReferenceIndex)
	for _, h := range layout.Data {
		handles = append(handles, h.Handle)
	}
	for _, h := range layout.Filter {
		handles = append(handles, h.Handle)
	}
	var buf []byte
	for _, h := range handles {
		if h.Length == 0 {
			continue
		}
		if end := h.Offset + h.Length + block.TrailerLen; end > uint64(size) || end < h.Offset {
			c.damagedTable(name, int64(min(h.Offset, uint64(size))), "a block ends behind the file")
			continue
		}
		n := int(h.Length + block.TrailerLen)
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if _, err := f.ReadAt(buf[:n], int64(h.Offset)); err != nil {
			return err
		}
		if err := block.ValidateChecksum(r.BlockReader().ChecksumType(), buf[:n], h); err != nil {
			c.damagedTable(name, int64(h.Offset), "the checksum of a block is wrong")
		}
	}
	return nil
}

func (c *check) damagedTable(name string, offset int64, what string) {
	c.damaged(name, offset, "", "%s", what)
	if first, ok := c.tables[name]; !ok || offset < first {
		c.tables[name] = offset
	}
}

// brokenTable adds the fault of a table whose parts cannot be found.
func (c *check) brokenTable(name string, size int64, err error) {
	offset := max(size-1, 0) // the end of the file says where the other parts are
	if at := place.FindStringSubmatch(fmt.Sprint(err)); at != nil {
		offset, _ = strconv.ParseInt(at[1], 10, 64)
	}
	c.damagedTable(name, offset, firstLine{err}.Error())
}

// narrow reads a damaged table from both ends, up to the damage. It sets from to nil if all keys can be
// read.
func (c *check) narrow(d *badRange, f *os.File) error {
	r, err := c.openTable(f)
	if err != nil {
		return nil // all of it is damaged
	}
	defer func() { _ = r.Close() }()
	iter, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil
	}
	for kv := iter.First(); kv != nil; kv = iter.Next() {
		d.from = after(kv.K.UserKey)
	}
	whole := iter.Error() == nil && iter.Close() == nil
	if whole {
		d.from = nil
		return nil
	}
	if iter, err = r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles); err != nil {
		return nil
	}
	for kv := iter.Last(); kv != nil; kv = iter.Prev() {
		d.to = bytes.Clone(kv.K.UserKey)
	}
	_ = iter.Close() // its error is the damage
	return c.ctx.Err()
}

// manifest checks the list of tables.
func (c *check) manifest(name string, f *os.File, _ int64) error {
	c.records(name, f, 0, func([]byte) string { return "all keys" })
	return nil
}

// writeAheadLog checks the changes that are in no table yet.
func (c *check) writeAheadLog(name string, f *os.File, _ int64) error {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 32)
	if err != nil {
		return nil // not Pebble's
	}
	after := "all changes"
	c.records(name, f, n, func(batch []byte) string {
		r := batchrepr.Read(batch)
		for {
			_, key, _, ok, err := r.Next()
			if err != nil || !ok {
				return after
			}
			if len(key) > 0 && key[0] == spaceLog {
				if rev, err := number(key); err == nil {
					after = fmt.Sprintf("changes after revision %d", rev)
				}
			}
		}
	})
	return nil
}

// records reads all records of a file. affected returns which keys are affected by damage after a record.
func (c *check) records(name string, f *os.File, number uint64, affected func([]byte) string) {
	r := recordsOf(recordio.NewReader, f, number)
	after := affected(nil)
	var buf bytes.Buffer
	for {
		offset := r.Offset()
		in, err := r.Next()
		if err == nil {
			buf.Reset()
			_, err = io.Copy(&buf, in)
		}
		switch {
		case err == nil:
			after = affected(buf.Bytes())
			continue
		case errors.Is(err, io.EOF):
		case number != 0 && errors.Is(err, recordio.ErrUnexpectedEOF), number != 0 && errors.Is(err, io.ErrUnexpectedEOF):
			// A log ends like this if its process was killed.
		default:
			c.damaged(name, offset, after, "a record is damaged: %s", firstLine{err})
		}
		return
	}
}

// recordsOf returns open(f, number). N is a type of Pebble's that cannot be named here.
func recordsOf[N ~uint64](open func(io.Reader, N) *recordio.Reader, f io.Reader, number uint64) *recordio.Reader {
	return open(f, N(number))
}

// highWater checks both copies of the newest revision.
func (c *check) highWater(name string, f *os.File, _ int64) error {
	for slot := range int64(2) {
		b := make([]byte, slotSize)
		n, err := f.ReadAt(b, slot*slotSpace)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		rev := parseSlot(b[:n])
		if rev == 0 && len(bytes.Trim(b, "\x00")) > 0 {
			c.damaged(name, slot*slotSpace, "", "the checksum of a revision is wrong")
		}
		c.noted = max(c.noted, rev)
	}
	return nil
}
