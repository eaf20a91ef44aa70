package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// Options say which collections are kept over restarts, and how.
type Options struct {
	// Images is where they are kept; nil keeps none.
	Images Storage
	// Cluster tells which cluster the source stands for, by something that no other
	// cluster has. What was kept of another is not used. Required.
	Cluster func(context.Context) (string, error)
	// Exclude names resources that are not kept.
	Exclude func(schema.GroupResource) bool
	// MaxAge is how long ago a state may have been saved to be used; 0 for any time.
	MaxAge time.Duration
	// ServeUnconfirmed, when it returns true, makes collections of what was kept while the
	// source does not answer, or not within a second. They are Stale since it was saved.
	// Otherwise, and when the source answers soon, there is a collection when the source's
	// watch has brought it up to date. Feeds call it; nil is never.
	ServeUnconfirmed func() bool
}

// Collection is what the saver needs of a collection.
type Collection interface {
	// Checkpoint is what is kept of the collection, nil for nothing, and while it cannot be read.
	Checkpoint() *Checkpoint
	// Context ends with the collection.
	Context() context.Context
	// Churn is Store.Churn.
	Churn() int64
	// Note is the present state, and what an image says of it. ok: it may be kept.
	Note() (m store.Moment, note Note, ok bool)
}

// Checkpointer keeps the collections of a manager: what an image holds is described here, how it
// is read in kept_load.go, how it is written in kept_save.go.
//
//	no image ---- first list ----> kept, written behind <---- confirmed ----+
//	                                      |                                 |
//	                             restart, or another process                |
//	                                      v                                 |
//	cold <-- another cluster or  --- loaded, at a version and of a time ----+
//	         definition, damaged     nobody reads it, but see ServeUnconfirmed
//	         too old, rewound
type Checkpointer struct {
	Options
	diskPatience time.Duration // see the constant of this name
	lastSave     time.Duration // see the constant of this name
	metrics      *metrics
	log          *slog.Logger
	done         chan struct{} // closed when the saver has ended
	stop         context.CancelFunc
	stuck        atomic.Int64 // loads that do not come back from the disk
	told         atomic.Bool  // see tellUnconfirmed
	source       source.Source
	asks         flight.Group[struct{}, string] // which cluster it is

	mu struct {
		sync.Mutex
		// held are the images in use: of one at a time, the next waits for the channel.
		held    map[string]chan struct{}
		cluster string // "" until it was told
		// over: the images are another keeper's, see Manager.LeaveImages.
		over bool
		// doubted: what other processes have left is not used, see distrust.
		doubted bool
		// failing are the errors of the images that are not written, by their names.
		failing map[string]string
	}
}

func New(o Options, source source.Source, log *slog.Logger) *Checkpointer {
	if o.Images == nil {
		return nil
	}
	k := &Checkpointer{
		Options: o, diskPatience: diskPatience, lastSave: lastSave,
		source: source, metrics: newMetrics(), log: log, done: make(chan struct{}),
	}
	k.mu.held = make(map[string]chan struct{})
	k.mu.failing = make(map[string]string)
	return k
}

// Start saves what has changed of collections, until finish or the end of ctx.
func (k *Checkpointer) Start(ctx context.Context, panics *contain.Panics, collections func() []Collection) {
	ctx, k.stop = context.WithCancel(ctx)
	// Close waits for it in finish, but not for ever.
	panics.Go(nil, "background", func() { k.run(ctx, collections) })
}

// header says of what an image is.
type header struct {
	Cluster    string       `json:"cluster"`
	Group      string       `json:"group,omitempty"`
	Version    string       `json:"version"`
	Resource   string       `json:"resource"`
	Encoding   api.Encoding `json:"encoding"`
	Definition string       `json:"definition"`
}

func (h *header) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: h.Group, Version: h.Version, Resource: h.Resource}
}

func headerOf(res *source.Resource, enc api.Encoding) header {
	return header{
		Group: res.Group, Version: res.Version, Resource: res.Resource, Encoding: enc,
		Definition: fmt.Sprintf("%s namespaced=%t managedFields=%t %s", res.Kind, res.Namespaced, !res.Schema.DropsManagedFields(), res.Definition),
	}
}

// Note says of an image what was true when it was saved.
type Note struct {
	// ResourceVersion is the version of the objects. Up to Whole nothing is missing: the
	// watch goes on there.
	ResourceVersion uint64 `json:"resourceVersion"`
	Whole           uint64 `json:"whole"`
	// At is when the objects were known to be the newest.
	At time.Time `json:"at"`
	// Objects and Bytes are how much there is of them; Changed is how much was written of
	// changes since the image was begun.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Changed int64 `json:"changed"`
	// Server is the program that they came from; the others describe its lists.
	Server     string   `json:"server,omitempty"`
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Warnings   []string `json:"warnings,omitempty"`
}

// imageName names the image of a collection, "" if it is not kept.
func (k *Checkpointer) imageName(res *source.Resource, enc api.Encoding) string {
	if k == nil || res.Aggregated || k.Exclude != nil && k.Exclude(res.GroupResource()) {
		return ""
	}
	return imageName(res, enc)
}

func imageName(res *source.Resource, enc api.Encoding) string {
	name := res.GroupVersionResource.Resource + "." + res.Version
	if res.Group != "" {
		name += "." + res.Group
	}
	name += "." + enc.String()
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return ""
	}
	return name
}

// diskPatience is how long the end of a collection, and the next one, wait for a disk that
// does not answer. Definitions of resources change behind it.
const diskPatience = 2 * time.Second

// errDisk: who uses the image has not come back from the disk.
var errDisk = errors.New("the disk does not answer")

// errLeft: the images are another keeper's.
var errLeft = errors.New("what is kept is another's now")

// acquire waits until nobody else uses an image, but not for long; release lets the next one.
func (k *Checkpointer) acquire(ctx context.Context, name string) error {
	patience := time.NewTimer(k.diskPatience)
	defer patience.Stop()
	for {
		held, over := k.take(name)
		switch {
		case over:
			return errLeft
		case held == nil:
			return nil
		}
		select {
		case <-held:
		case <-patience.C:
			return errDisk
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take is acquire for who does not wait: held is nil when the image is had, unless over.
func (k *Checkpointer) take(name string) (held chan struct{}, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held, over = k.mu.held[name], k.mu.over
	if held == nil && !over {
		k.mu.held[name] = make(chan struct{})
	}
	return held, over
}

// ServesUnconfirmed is KeepOptions.ServeUnconfirmed.
func (i *Checkpoint) ServesUnconfirmed() bool {
	return i.keeper.ServeUnconfirmed != nil && i.keeper.ServeUnconfirmed()
}

// isStuck reports whether the disk does not answer somebody who reads.
func (k *Checkpointer) isStuck() bool { return k.stuck.Load() > 0 }

func (k *Checkpointer) release(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.mu.held[name])
	delete(k.mu.held, name)
}

// TellUnconfirmed logs, once, that what was kept is served as it is.
func (i *Checkpoint) TellUnconfirmed() {
	if k := i.keeper; !k.told.Swap(true) {
		k.log.Warn("until the upstream answers, what was kept of it is served unconfirmed, as old as it is, to whom offline rules allow that")
	}
}

// ErrUnknownCluster: the source will not say which cluster it is.
var ErrUnknownCluster = errors.New("the upstream does not tell which cluster it is")

// cluster is which cluster the source stands for. The error is errUnknownCluster, wrapped,
// when asking again will not help.
func (k *Checkpointer) cluster(ctx context.Context) (string, error) {
	cluster, _, err := k.asks.Do(ctx, struct{}{}, k.askCluster)
	return cluster, err
}

// askCluster asks, once for all who want to know at the same time, unless it was told.
func (k *Checkpointer) askCluster(ctx context.Context) (string, error) {
	k.mu.Lock()
	cluster := k.mu.cluster
	k.mu.Unlock()
	if cluster != "" {
		return cluster, nil
	}
	ctx, cancel := source.WithTimeout(ctx, k.source, source.SmallCallTimeout)
	defer cancel()
	cluster, err := k.Cluster(ctx)
	switch {
	case source.IsRejected(err) || apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w: %w", ErrUnknownCluster, err)
	case err != nil:
		return "", fmt.Errorf("asking which cluster it is: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.cluster = cluster
	return cluster, nil
}

// CheckCluster asks whether the cluster is that of what was loaded. The error wraps ErrRewound if it is
// not, and errUnknownCluster if asking again will not help.
func (i *Checkpoint) CheckCluster(ctx context.Context, l *Loaded) error {
	cluster, err := i.keeper.cluster(ctx)
	switch {
	case err != nil:
		return err
	case cluster != l.header.Cluster:
		return fmt.Errorf("%w: it is another cluster, %s instead of %s", store.ErrRewound, cluster, l.header.Cluster)
	}
	return nil
}

// ForgetCluster says that the source may stand for another cluster now.
func (i *Checkpoint) ForgetCluster() { i.keeper.forgetCluster() }

// SetConfirmed counts what was loaded as confirmed by the source.
func (i *Checkpoint) SetConfirmed() { i.keeper.metrics.loads.WithLabelValues("confirmed").Inc() }

// Drop removes what was loaded, which the source does not confirm.
func (i *Checkpoint) Drop(reason error) {
	result := "unreadable"
	if errors.Is(reason, store.ErrRewound) {
		result = "rewound"
	}
	i.keeper.dropped(result, i.name, reason)
	i.remove()
}

// forgetCluster: the source may stand for another one now.
func (k *Checkpointer) forgetCluster() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.cluster = ""
}

// Distrust says that what was kept is of another past than the source, and reports whether
// that is new. Whatever is still to be loaded is dropped.
func (k *Checkpointer) Distrust() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := !k.mu.doubted
	k.mu.doubted = true
	return fresh
}

func (k *Checkpointer) doubts() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.doubted
}

// Checkpoint is the image of one entry. Its feed reads it; the keeper's saver writes it
// until the entry ends.
type Checkpoint struct {
	keeper *Checkpointer
	name   string
	header header
	log    *slog.Logger

	mu struct {
		sync.Mutex
		held bool // the image is this entry's
		over bool
		// abandoned: who loads it is not waited for any more.
		abandoned bool
		// awaited: another had the image for too long, the saver takes it when it is free.
		awaited bool
		writer  Writer
		holds   store.Moment // what is in the image; without view when it has to be written anew
		note    Note
		saved   time.Time
		// Of what failed: when it is tried again, how long that is, and whether there was no
		// room for it.
		retry time.Time
		wait  time.Duration
		full  bool
	}
}

// Checkpoint makes the image of a collection to come, nil if it is not kept.
func (k *Checkpointer) Checkpoint(res *source.Resource, enc api.Encoding, log *slog.Logger) *Checkpoint {
	name := k.imageName(res, enc)
	if name == "" {
		return nil
	}
	return &Checkpoint{keeper: k, name: name, header: headerOf(res, enc), log: log}
}

// remove removes what is on disk. It is whole no more, or was of something else.
func (i *Checkpoint) remove() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.mu.over { // else it is another's
		i.removeLocked()
	}
}

// Leave ends the use of the image. What is on disk stays.
func (i *Checkpoint) Leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.over = true
	if i.mu.held {
		i.closeLocked()
		i.leaveLocked()
	}
}

func (i *Checkpoint) leaveLocked() {
	i.mu.held, i.mu.holds = false, store.Moment{}
	i.keeper.forgive(i.name)
	i.keeper.release(i.name)
}

func (i *Checkpoint) removeLocked() {
	i.closeLocked()
	i.mu.holds = store.Moment{}
	if err := i.keeper.Images.Remove(i.name); err != nil {
		i.keeper.failed(i.name, err)
	}
}

// closeLocked ends writing; what was committed stays.
func (i *Checkpoint) closeLocked() {
	if i.mu.writer != nil {
		if err := i.mu.writer.Close(); err != nil {
			i.log.Debug("closing an image", "error", err)
		}
		i.mu.writer = nil
	}
}

// Close is called when the entry has ended for a reason. What is kept of a collection stays
// when the process ends, not when the collection does. A disk that does not answer is left
// to a goroutine of panics.
func (i *Checkpoint) Close(panics *contain.Panics, reason error) {
	if errors.Is(reason, store.ErrRewound) {
		i.keeper.forgetCluster()
	}
	ended := make(chan struct{})
	panics.Go(nil, "background", func() {
		defer close(ended)
		i.finish(reason)
	})
	patience := time.NewTimer(i.keeper.diskPatience)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		i.log.Warn("the disk does not answer, it is not waited for", "image", i.name)
	}
}

func (i *Checkpoint) finish(reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.over = true
	if !i.mu.held {
		return
	}
	if errors.Is(reason, store.ErrManagerClosed) {
		i.closeLocked()
	} else {
		i.removeLocked()
	}
	i.leaveLocked()
}

// failed notes that an image is not written, and says so once for all that fail so.
func (k *Checkpointer) failed(name string, err error) {
	k.metrics.saves.WithLabelValues("failed").Inc()
	k.mu.Lock()
	told := false
	for _, other := range k.mu.failing {
		told = told || other == err.Error()
	}
	k.mu.failing[name] = err.Error()
	k.mu.Unlock()
	if !told {
		k.log.Warn("collections are not kept for a restart, serving goes on", "image", name, "error", err)
	}
}

func (k *Checkpointer) succeeded(name string) {
	k.metrics.saves.WithLabelValues("saved").Inc()
	if k.forgive(name) {
		k.log.Info("collections are kept for a restart again")
	}
}

// forgive forgets that an image was not written, and reports whether it was the last.
func (k *Checkpointer) forgive(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	failing := len(k.mu.failing) > 0
	delete(k.mu.failing, name)
	return failing && len(k.mu.failing) == 0
}

// Saved is a collection of which an image was kept.
type Saved struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
}

// List lists the collections of which there are images: those that were in use when the last process
// ended. Images that are of no use are removed, as is one over which there is a panic. A disk that does
// not respond is waited for; what is read after ctx has ended changes nothing.
func (k *Checkpointer) List(ctx context.Context, panics *contain.Panics) []Saved {
	names, err := k.Images.Names()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		k.failed("", err)
		return nil
	}
	var all []Saved
	for _, name := range names {
		var h *header
		err := panics.Func("background", func() (err error) {
			h, err = k.readHeader(name)
			return err
		})()
		if ctx.Err() != nil {
			return nil // the images are perhaps another's by now
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && k.Exclude != nil && k.Exclude(h.gvr().GroupResource()) {
			err = errors.New("it is not to be kept")
		}
		if err == nil {
			all = append(all, Saved{h.gvr(), h.Encoding})
			continue
		}
		k.dropped("damaged", name, err)
		if err := k.Images.Remove(name); err != nil {
			k.failed(name, err)
		}
	}
	return all
}

// Forget removes what is kept of a collection that there will not be again. There must be none of it
// now.
func (k *Checkpointer) Forget(c Saved) {
	name := imageName(&source.Resource{GroupVersionResource: c.Resource}, c.Encoding)
	if err := k.Images.Remove(name); err != nil {
		k.failed(name, err)
	}
}

// HandOver ends the use of Images, so that another keeper may have them. Images that are in use are
// given up by keptImage.leave.
func (k *Checkpointer) HandOver() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.over = true
}

// SetPatience makes a new keeper wait at most d for each call of a disk that does not respond. It is
// for tests.
func (k *Checkpointer) SetPatience(d time.Duration) { k.diskPatience, k.lastSave = d, d }

func (k *Checkpointer) readHeader(name string) (*header, error) {
	r, err := k.Images.Open(name)
	if err != nil {
		return nil, err
	}
	var h header
	err = json.Unmarshal(r.Header(), &h)
	return &h, errors.Join(err, r.Close())
}

func (k *Checkpointer) dropped(result, name string, err error) {
	k.metrics.loads.WithLabelValues(result).Inc()
	k.log.Info("state of a collection dropped, it is listed anew", "image", name, "reason", err)
}
