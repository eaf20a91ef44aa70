package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/object"
)

// SetHeld records that v, which was made of l, is what the checkpoint contains.
func (i *Checkpoint) SetHeld(v *store.Snapshot, l *Loaded) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.note = l.Note
	if i.mu.writer = l.append; l.append != nil {
		i.mu.holds = v
	}
}

// loadTimeout is how long one read of the disk may take.
const loadTimeout = 5 * time.Second

// Load reads the checkpoint. It returns nil if there is no usable one, or if the disk does not
// respond; a goroutine then waits for the disk. decode decodes an object and keeps its bytes;
// several goroutines of panics call it.
func (i *Checkpoint) Load(ctx context.Context, panics *contain.Panics, decode func([]byte) (*object.Object, error)) *Loaded {
	k := i.owner
	switch err := k.acquire(ctx, i.name, time.After(k.diskTimeout)); {
	case errors.Is(err, errDiskTimeout):
		k.dropped("unreadable", i.name, err)
		// The previous user takes too long. The saver writes the checkpoint from scratch once it is
		// free, because its content is outdated then.
		panics.Go(nil, "feed", func() {
			if k.acquire(ctx, i.name, nil) == nil {
				i.settle(nil)
			}
		})
		return nil
	case err != nil:
		return nil
	case k.stuck.Load() > 0: // the disk does not respond to another reader
		i.settle(nil) // it is written when the disk responds
		k.dropped("unreadable", i.name, errDiskTimeout)
		return nil
	}
	var l *Loaded
	done := make(chan struct{})
	timer := time.NewTimer(loadTimeout)
	defer timer.Stop()
	panics.Go(nil, "feed", func() {
		defer close(done)
		defer func() { l = i.settle(l) }()
		l = i.loadAcquired(ctx, panics, func() { timer.Reset(loadTimeout) }, decode)
	})
	hangs := false
	select {
	case <-done:
		return l
	case <-ctx.Done():
	case <-timer.C:
		hangs = true
	}
	if !i.abandon() { // it was just loaded
		<-done
		return l
	}
	if hangs {
		k.dropped("unreadable", i.name, errDiskTimeout)
		k.stuck.Add(1)
		panics.Go(nil, "feed", func() {
			<-done
			k.stuck.Add(-1)
		})
	}
	return nil
}

// abandon gives up a load. It returns false if the load has ended.
func (i *Checkpoint) abandon() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.held {
		return false
	}
	i.mu.abandoned = true
	return true
}

// settle ends a load. It returns l unless the load was abandoned. From now on the saver writes the
// checkpoint, unless its use has ended.
func (i *Checkpoint) settle(l *Loaded) *Loaded {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l != nil && l.append != nil && (i.mu.abandoned || i.mu.over) {
		_ = l.append.Close() // nothing was written
		l.append = nil
	}
	if i.mu.held = !i.mu.over; i.mu.over {
		i.owner.release(i.name)
	}
	if i.mu.abandoned {
		return nil
	}
	return l
}

// loadAcquired loads an acquired checkpoint. A panic counts as damage.
func (i *Checkpoint) loadAcquired(ctx context.Context, panics *contain.Panics, progress func(), decode func([]byte) (*object.Object, error)) *Loaded {
	k := i.owner
	var l *Loaded
	err := panics.Func("feed", func() (err error) {
		l, err = i.read(ctx, panics, progress, decode)
		return err
	})()
	var unfit *unfitError
	result := "damaged"
	switch {
	case err == nil:
		return l
	case ctx.Err() != nil: // nobody waits for it
		return nil
	case errors.Is(err, fs.ErrNotExist):
		k.loads.WithLabelValues("absent").Inc()
		return nil
	case errors.As(err, &unfit):
		result = unfit.result
	}
	k.dropped(result, i.name, err)
	i.remove()
	return nil
}

// unfitError explains why an undamaged checkpoint is not used.
type unfitError struct{ result, reason string }

func (e *unfitError) Error() string { return e.reason }

// checkHeader returns an error if the checkpoint is not of this collection.
func (i *Checkpoint) checkHeader(h *header) error {
	want := i.header
	want.Cluster = h.Cluster // read from the source later
	if *h != want {
		return &unfitError{"redefined", fmt.Sprintf("the resource was %s and is %s", h.Definition, want.Definition)}
	}
	return nil
}

// checkNote returns an error if the content must not be used.
func (i *Checkpoint) checkNote(note *Note) error {
	age := time.Since(note.At)
	switch {
	case i.owner.MaxAge > 0 && age > i.owner.MaxAge:
		return &unfitError{"old", fmt.Sprintf("it is %s old", age.Round(time.Second))}
	case age < -time.Hour:
		return &unfitError{"old", "it is of the future"}
	case i.owner.otherHistory.Load():
		return &unfitError{"rewound", "another collection was of another past than the upstream"}
	}
	return nil
}

// piece is a block of objects, decoded by one of several goroutines.
type piece struct {
	block   Block
	objects []*object.Object // those that are deleted have only a key
	err     error
}

func (i *Checkpoint) read(ctx context.Context, panics *contain.Panics, progress func(), decode func([]byte) (*object.Object, error)) (*Loaded, error) {
	r, err := i.owner.Storage.Open(i.name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	l := &Loaded{}
	if err := json.Unmarshal(r.Header(), &l.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := i.checkHeader(&l.header); err != nil { // first: another definition decodes objects differently
		return nil, err
	}
	pieces, note := readPieces(ctx, r, panics, progress, decode)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if note == nil {
		return nil, errors.New("it was never complete")
	}
	if err := json.Unmarshal(note, &l.Note); err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	if err := i.checkNote(&l.Note); err != nil {
		return nil, err
	}
	if l.List, err = assemble(pieces, &l.Note); err != nil {
		return nil, err
	}
	l.append, err = r.Append()
	return l, err
}

// readPieces reads up to the last commit, whose note it returns, or the end of ctx. It calls
// progress after each block.
func readPieces(ctx context.Context, r Reader, panics *contain.Panics, progress func(), decode func([]byte) (*object.Object, error)) (_ []*piece, note []byte) {
	var workers sync.WaitGroup
	defer workers.Wait()
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var pieces []*piece
	committed := 0
	for ctx.Err() == nil {
		b, err := r.Next()
		if err != nil {
			break
		}
		progress()
		if c := b.Commit(); c != nil {
			note, committed = c, len(pieces)
			continue
		}
		p := &piece{block: b}
		pieces = append(pieces, p)
		slots <- struct{}{}
		panics.Go(&workers, "feed", func() {
			defer func() { <-slots }()
			p.err = panics.Func("feed", func() error { return p.decode(decode) })()
		})
	}
	return pieces[:committed], note
}

func (p *piece) decode(decode func([]byte) (*object.Object, error)) error {
	block := p.block
	p.block = nil
	return block.Each(func(raw []byte) error {
		o, err := decode(bytes.Clone(raw))
		if err == nil {
			p.objects = append(p.objects, o)
		}
		return err
	}, func(key string) error {
		p.objects = append(p.objects, &object.Object{Key: key})
		return nil
	})
}

// assemble makes the state of the pieces and checks it against the note.
func assemble(pieces []*piece, note *Note) (*store.List, error) {
	tree, size := store.NewTree(), int64(0)
	for _, p := range pieces {
		if p.err != nil {
			return nil, p.err
		}
		for _, o := range p.objects {
			var was *object.Object
			switch {
			case o.Raw == nil:
				was, _ = tree.Delete(o)
			case o.RV > note.ResourceVersion:
				return nil, fmt.Errorf("object of version %d in a checkpoint of version %d", o.RV, note.ResourceVersion)
			default:
				was, _ = tree.Load(o)
				size += int64(len(o.Raw))
			}
			if was != nil {
				size -= int64(len(was.Raw))
			}
		}
	}
	switch {
	case tree.Len() != note.Objects || size != note.Bytes:
		return nil, fmt.Errorf("%d objects with %d bytes, want %d with %d", tree.Len(), size, note.Objects, note.Bytes)
	case note.ResourceVersion == 0 || note.CompleteRV == 0 || note.CompleteRV > note.ResourceVersion:
		return nil, fmt.Errorf("%w: %d, %d", source.ErrNoVersion, note.ResourceVersion, note.CompleteRV)
	}
	return &store.List{Tree: tree, RV: note.ResourceVersion, CompleteRV: note.CompleteRV}, nil
}
