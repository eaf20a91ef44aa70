package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// Options configure a Checkpointer.
type Options struct {
	// Storage stores the checkpoints; nil disables them.
	Storage Storage
	// Cluster returns an identity of the cluster behind the source that no other cluster has.
	// Checkpoints of another cluster are not used. Required.
	Cluster func(context.Context) (string, error)
	// Exclude reports whether a resource has no checkpoint.
	Exclude func(schema.GroupResource) bool
	// MaxAge is how old a saved state may be to be used; 0 means any age.
	MaxAge time.Duration
	// ServeUnconfirmed, while it returns true, allows serving a loaded state as Stale, with its
	// age, while the source does not respond, or not within a second. Otherwise a loaded state is
	// served when the watch of the source has brought it up to date. Reflectors call it. Nil means
	// never.
	ServeUnconfirmed func() bool
}

// Collection is what the saver needs of a collection that can be read and has a Checkpoint.
type Collection struct {
	Checkpoint *Checkpoint
	Store      *store.Store
	// Context ends with the collection.
	Context context.Context
	// Note returns the present state of Store and what to save about it. ok is false if it must
	// not be saved.
	Note func(*store.Store) (v *store.Snapshot, note Note, ok bool)
}

// Checkpointer keeps the checkpoints of all collections of a Manager. load.go reads them, save.go
// writes them.
//
//	none -------- first list ----> kept, written behind <---- confirmed ----+
//	                                      |                                 |
//	                             restart, or another process                |
//	                                      v                                 |
//	cold <-- another cluster or  --- loaded, at a version and of a time ----+
//	         definition, damaged,    nobody reads it, but see ServeUnconfirmed
//	         too old, rewound
//
// It is safe for concurrent use.
type Checkpointer struct {
	Options
	saves, loads    *prometheus.CounterVec // by result
	seconds         prometheus.Histogram
	log             *slog.Logger
	done            chan struct{} // closed when the saver has ended
	stop            context.CancelFunc
	stuck           atomic.Int64 // loads that the disk does not return from
	logged          atomic.Bool  // see LogUnconfirmed
	diskTimeout     time.Duration
	lastSave        time.Duration
	otherHistory    atomic.Bool // checkpoints of other processes are not used, see SetOtherHistory
	source          source.Source
	clusterRequests flight.Group[struct{}, string] // which cluster it is

	mu struct {
		sync.Mutex
		// held are the checkpoints in use. Each has one user at a time; the next one waits for the
		// channel.
		held    map[string]chan struct{}
		cluster string // "" until it is known
		// over: another Checkpointer uses the checkpoints, see HandOver.
		over bool
		// failing are the errors of the checkpoints that cannot be written, by name.
		failing map[string]string
	}
}

// New returns a Checkpointer, nil if o.Storage is nil. A nil *Checkpointer has no checkpoints.
func New(o Options, source source.Source, log *slog.Logger) *Checkpointer {
	if o.Storage == nil {
		return nil
	}
	k := &Checkpointer{
		Options: o, source: source, log: log, done: make(chan struct{}), diskTimeout: diskTimeout, lastSave: lastSave,
		saves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_state_saves_total",
			Help: "Checkpoints of collections written, by result: saved, failed.",
		}, []string{"result"}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_state_loads_total",
			Help: "Checkpoints looked up at the start of a collection, by result: confirmed (used), absent, or dropped because it was damaged, old, redefined (resource definition changed), rewound (other or restored cluster), unreadable.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubeweir_state_save_seconds",
			Help:    "Time to write a checkpoint of a collection, including pauses for the write rate limit.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
	k.mu.held = make(map[string]chan struct{})
	k.mu.failing = make(map[string]string)
	return k
}

// header identifies what a checkpoint is of.
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

// Note describes a checkpoint at the time of its last commit.
type Note struct {
	// ResourceVersion is the version of the objects. Up to CompleteRV no change is missing; the
	// watch is resumed there.
	ResourceVersion uint64 `json:"resourceVersion"`
	CompleteRV      uint64 `json:"whole"`
	// At is when the objects were known to be current.
	At time.Time `json:"at"`
	// Objects and Bytes are their number and size. Changed is the size of the changes that were
	// written since the checkpoint was created.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Changed int64 `json:"changed"`
	// Server is the program that sent the objects. The others describe its lists.
	Server     string   `json:"server,omitempty"`
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Warnings   []string `json:"warnings,omitempty"`
}

// checkpointName returns the name of a collection's checkpoint, "" if it cannot have one.
func checkpointName(res *source.Resource, enc api.Encoding) string {
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

// diskTimeout is how long the end of a collection, and its successor, wait for a disk that does
// not respond. Changes of resource definitions wait behind them. Tests make it and lastSave short.
var diskTimeout = 2 * time.Second

// lastSave is how long the last saving of all collections may take.
var lastSave = 5 * time.Second

// errDiskTimeout means that the user of a checkpoint has not returned from the disk.
var errDiskTimeout = errors.New("the disk does not respond")

// errHandedOver means that another Checkpointer uses the checkpoints.
var errHandedOver = errors.New("the state directory was handed over")

// acquire waits until nobody else uses a checkpoint, at most until timeout. release lets the next
// user in.
func (k *Checkpointer) acquire(ctx context.Context, name string, timeout <-chan time.Time) error {
	for {
		k.mu.Lock()
		held, over := k.mu.held[name], k.mu.over
		if held == nil && !over {
			k.mu.held[name] = make(chan struct{})
		}
		k.mu.Unlock()
		switch {
		case over:
			return errHandedOver
		case held == nil:
			return nil
		}
		select {
		case <-held:
		case <-timeout:
			return errDiskTimeout
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ServesUnconfirmed is Options.ServeUnconfirmed.
func (i *Checkpoint) ServesUnconfirmed() bool {
	return i.owner.ServeUnconfirmed != nil && i.owner.ServeUnconfirmed()
}

func (k *Checkpointer) release(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.mu.held[name])
	delete(k.mu.held, name)
}

// LogUnconfirmed logs, once, that loaded states are served unconfirmed.
func (i *Checkpoint) LogUnconfirmed() {
	if k := i.owner; !k.logged.Swap(true) {
		k.log.Warn("upstream unreachable, serving unconfirmed checkpoints as offline rules allow")
	}
}

// ErrUnknownCluster reports that the source does not identify its cluster.
var ErrUnknownCluster = errors.New("the upstream does not identify its cluster")

// cluster returns the identity of the cluster behind the source. The error wraps ErrUnknownCluster
// if another attempt will not help.
func (k *Checkpointer) cluster(ctx context.Context) (string, error) {
	cluster, _, err := k.clusterRequests.Do(ctx, struct{}{}, k.requestCluster)
	return cluster, err
}

// requestCluster requests the identity once for all concurrent callers, unless it is known.
func (k *Checkpointer) requestCluster(ctx context.Context) (string, error) {
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
		return "", fmt.Errorf("identifying the cluster: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.cluster = cluster
	return cluster, nil
}

// CheckCluster checks whether the loaded state was saved from the present cluster. The error wraps
// ErrRewound if it is another cluster, and ErrUnknownCluster if another attempt will not help.
func (i *Checkpoint) CheckCluster(ctx context.Context, l *Loaded) error {
	cluster, err := i.owner.cluster(ctx)
	switch {
	case err != nil:
		return err
	case cluster != l.header.Cluster:
		return fmt.Errorf("%w: different cluster: %s, not %s", store.ErrRewound, cluster, l.header.Cluster)
	}
	return nil
}

// ForgetCluster records that another cluster may be behind the source now.
func (i *Checkpoint) ForgetCluster() {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	i.owner.mu.cluster = ""
}

// SetConfirmed counts the loaded state as confirmed by the source.
func (i *Checkpoint) SetConfirmed() { i.owner.loads.WithLabelValues("confirmed").Inc() }

// Drop removes a loaded state that the source does not confirm.
func (i *Checkpoint) Drop(reason error) {
	result := "unreadable"
	if errors.Is(reason, store.ErrRewound) {
		result = "rewound"
	}
	i.owner.dropped(result, i.name, reason)
	i.remove()
}

// SetOtherHistory records that checkpoints are of a past that the source does not have, so that no
// further one is loaded. It returns true the first time.
func (k *Checkpointer) SetOtherHistory() bool { return !k.otherHistory.Swap(true) }

// Checkpoint is the saved state of one collection. The reflector loads it, then the saver writes it
// until the collection ends.
type Checkpoint struct {
	owner  *Checkpointer
	name   string
	header header
	log    *slog.Logger

	mu struct {
		sync.Mutex
		held bool // by this collection
		over bool
		// abandoned: nobody waits for the load any more.
		abandoned bool
		writer    Writer
		holds     *store.Snapshot // what was saved; nil if everything has to be written again
		note      Note
		saved     time.Time
		// retry is when to try again after a failure, wait how long that is, and full whether there
		// was no space.
		retry time.Time
		wait  time.Duration
		full  bool
	}
}

// Checkpoint returns the checkpoint of a new collection, nil if it is not saved.
func (k *Checkpointer) Checkpoint(res *source.Resource, enc api.Encoding, log *slog.Logger) *Checkpoint {
	if k == nil || res.Aggregated || k.Exclude != nil && k.Exclude(res.GroupResource()) {
		return nil
	}
	name := checkpointName(res, enc)
	if name == "" {
		return nil
	}
	return &Checkpoint{owner: k, name: name, log: log, header: header{
		Group: res.Group, Version: res.Version, Resource: res.Resource, Encoding: enc,
		Definition: fmt.Sprintf("%s namespaced=%t managedFields=%t %s", res.Kind, res.Namespaced, !res.Schema.DropsManagedFields, res.Definition),
	}}
}

// remove removes what is on disk, which is incomplete or of something else.
func (i *Checkpoint) remove() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.mu.over { // else another user has it
		i.removeLocked()
	}
}

// Release ends the use of the checkpoint. The files stay on disk.
func (i *Checkpoint) Release() { i.finish(store.ErrManagerClosed) }

func (i *Checkpoint) removeLocked() {
	i.closeLocked()
	i.mu.holds = nil
	if err := i.owner.Storage.Remove(i.name); err != nil {
		i.owner.failed(i.name, err)
	}
}

// closeLocked ends writing. Committed data stays on disk.
func (i *Checkpoint) closeLocked() {
	if i.mu.writer != nil {
		if err := i.mu.writer.Close(); err != nil {
			i.log.Debug("closing checkpoint", "error", err)
		}
		i.mu.writer = nil
	}
}

// Close is called when the collection has ended for a reason. The checkpoint stays on disk if the
// process ends, but not if only the collection does. If the disk does not respond, Close leaves it
// to a goroutine of panics.
func (i *Checkpoint) Close(panics *contain.Panics, reason error) {
	if errors.Is(reason, store.ErrRewound) {
		i.ForgetCluster()
	}
	ended := make(chan struct{})
	panics.Go(nil, "background", func() {
		defer close(ended)
		i.finish(reason)
	})
	select {
	case <-ended:
	case <-time.After(i.owner.diskTimeout):
		i.log.Warn("disk does not respond, not waiting", "image", i.name)
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
	i.mu.held, i.mu.holds = false, nil
	i.owner.clearFailure(i.name)
	i.owner.release(i.name)
}

// failed records that a checkpoint cannot be written, and logs an error once for all checkpoints
// that have it.
func (k *Checkpointer) failed(name string, err error) {
	k.saves.WithLabelValues("failed").Inc()
	k.mu.Lock()
	logged := slices.Contains(slices.Collect(maps.Values(k.mu.failing)), err.Error())
	k.mu.failing[name] = err.Error()
	k.mu.Unlock()
	if !logged {
		k.log.Warn("checkpoint failed", "image", name, "error", err)
	}
}

// clearFailure forgets a failure and reports whether it was the last one.
func (k *Checkpointer) clearFailure(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	failing := len(k.mu.failing) > 0
	delete(k.mu.failing, name)
	return failing && len(k.mu.failing) == 0
}

// Saved identifies a collection that has a checkpoint.
type Saved struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
}

// List lists the collections with checkpoints: those that were in use when the last process ended.
// It removes unusable checkpoints, and any that causes a panic. It waits for a disk that does not
// respond; after the end of ctx it changes nothing.
func (k *Checkpointer) List(ctx context.Context, panics *contain.Panics) []Saved {
	names, err := k.Storage.Names()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		k.failed("", err)
		return nil
	}
	var all []Saved
	for _, name := range names {
		var h header
		err := panics.Func("background", func() error {
			r, err := k.Storage.Open(name)
			if err != nil {
				return err
			}
			return errors.Join(json.Unmarshal(r.Header(), &h), r.Close())
		})()
		if ctx.Err() != nil {
			return nil // another user may have them by now
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && k.Exclude != nil && k.Exclude(h.gvr().GroupResource()) {
			err = errors.New("it is not persisted")
		}
		if err == nil {
			all = append(all, Saved{h.gvr(), h.Encoding})
			continue
		}
		k.dropped("damaged", name, err)
		if err := k.Storage.Remove(name); err != nil {
			k.failed(name, err)
		}
	}
	return all
}

// Forget removes the checkpoint of a collection that will not come back and does not exist now.
func (k *Checkpointer) Forget(c Saved) {
	name := checkpointName(&source.Resource{GroupVersionResource: c.Resource}, c.Encoding)
	if err := k.Storage.Remove(name); err != nil {
		k.failed(name, err)
	}
}

// HandOver ends the use of Storage, so that another Checkpointer may use it. Checkpoint.Release
// ends the use of each checkpoint.
func (k *Checkpointer) HandOver() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.over = true
}

func (k *Checkpointer) dropped(result, name string, err error) {
	k.loads.WithLabelValues(result).Inc()
	k.log.Info("checkpoint dropped, relisting", "image", name, "reason", err)
}

func (k *Checkpointer) Register(r prometheus.Registerer) error {
	return errors.Join(r.Register(k.saves), r.Register(k.loads), r.Register(k.seconds))
}

// Loaded is a loaded checkpoint.
type Loaded struct {
	List   *store.List
	header header
	Note   Note
	append Writer // nil if the checkpoint has to be written from scratch
}

// Storage keeps checkpoints: the objects of a collection at one version. A checkpoint has a name of
// letters, digits, dots and dashes. The methods are safe for concurrent use, except that a
// checkpoint has at most one Writer or Reader at a time.
type Storage interface {
	// Names lists the checkpoints.
	Names() ([]string, error)
	// Open returns a reader of a checkpoint. The error wraps fs.ErrNotExist if there is none; any
	// other error means that it is unusable.
	Open(name string) (Reader, error)
	// Create begins a checkpoint. Its first commit replaces an older one of that name.
	Create(ctx context.Context, name string, header []byte) (Writer, error)
	// Remove removes a checkpoint if it exists.
	Remove(name string) error
	// Hurry lifts the limit on the write rate.
	Hurry()
}

// Reader reads one checkpoint. It belongs to one goroutine.
type Reader interface {
	// Header returns what the checkpoint was created with.
	Header() []byte
	// Next returns the next block, and io.EOF at the end. After another error nothing more can be
	// read, but everything up to the last commit is valid.
	Next() (Block, error)
	// Append returns a writer that continues the checkpoint, nil if its end is not a commit. It may
	// be called after Next has returned io.EOF.
	Append() (Writer, error)
	Close() error
}

// Block is a part of a checkpoint. It is valid if a commit follows.
type Block interface {
	// Commit returns the note of a commit, nil for a block of objects.
	Commit() []byte
	// Each calls set and deleted for the objects in the block, in order. The bytes of an object are
	// valid during the call.
	Each(set func(object []byte) error, deleted func(key string) error) error
}

// Writer writes one checkpoint. It belongs to one goroutine. After an error it can only be closed.
type Writer interface {
	// Set adds an object, or replaces the one with its key. Delete removes the object with a key.
	Set(ctx context.Context, object []byte) error
	Delete(ctx context.Context, key string) error
	// Commit makes everything before it part of the checkpoint, and returns when it is on disk.
	Commit(ctx context.Context, note []byte) error
	Close() error
}

// ErrFull means that the checkpoints have reached their maximum size.
var ErrFull = errors.New("state directory is full, the limit is --state-max-bytes")
