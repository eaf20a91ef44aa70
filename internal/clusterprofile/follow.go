package clusterprofile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeweir/kubeweir/internal/credentials"
	"github.com/kubeweir/kubeweir/internal/kubeconfig"
)

// Options determine which profiles a Follower follows.
type Options struct {
	// Config is how the hub is reached.
	Config *rest.Config
	// Namespace is the namespace of the profiles; "" means all. LabelSelector selects among them;
	// "" means all.
	Namespace, LabelSelector string
	// Max is how many there may be, the oldest first.
	Max    int
	Logger *slog.Logger
}

// Follower follows the profiles of a hub.
type Follower struct {
	o       Options
	hub     dynamic.Interface
	gvr     schema.GroupVersionResource // the one that the hub has
	digests map[string][32]byte         // digests by key of what was listed last, Max at most
	left    atomic.Int64                // how many were more than Max then
}

// Times of a Follower.
const (
	listTimeout  = 30 * time.Second
	watchTimeout = 5 * time.Minute // then it is listed anew
	gatherTime   = 500 * time.Millisecond
	pageSize     = 50 // of a megabyte each, at worst
	// The profiles are listed quickLists times at once, and every listEvery in the long run, however often they change or
	// a watch ends: clusters that are made anew all the time are of no use, and client-go forgets no plugin.
	quickLists = 10
	listEvery  = 10 * time.Second
)

// versions of the API that have what is read, the one that every hub has first.
var versions = []string{"v1alpha1", "v1alpha2"}

// NewFollower makes a Follower; nothing is asked yet.
func NewFollower(o Options) (*Follower, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.QPS = -1                                                    // there is one call at a time
	client, err := credentials.Client(cfg, listTimeout/2, o.Logger) // so that nobody waits for a plugin for longer than for the hub
	if err != nil {
		return nil, fmt.Errorf("hub of the ClusterProfiles: %w", err)
	}
	hub, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("hub of the ClusterProfiles: %w", err)
	}
	return &Follower{o: o, hub: hub}, nil
}

// Run calls take with all profiles, and again a moment after some of them have changed, until ctx ends. While the hub
// cannot be read nothing is taken.
func (f *Follower) Run(ctx context.Context, take func(context.Context, []Profile)) {
	backoff := newBackoff()
	away := false
	watched := func() {
		if away {
			away = false
			f.o.Logger.Info("hub of the ClusterProfiles recovered")
		}
		backoff = newBackoff()
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(float32(1/listEvery.Seconds()), quickLists)
	for limiter.Wait(ctx) == nil {
		list, version, err := f.list(ctx)
		if err == nil {
			take(ctx, list)
			err = f.watch(ctx, version, watched)
		}
		if err == nil {
			pause(ctx, gatherTime) // so that several changes count as one
			continue
		}
		if !away && ctx.Err() == nil {
			away = true
			f.o.Logger.Warn("ClusterProfiles cannot be read, their clusters stay unchanged", "error", err)
		}
		pause(ctx, backoff.Step())
	}
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
}

func pause(ctx context.Context, t time.Duration) {
	select {
	case <-time.After(t):
	case <-ctx.Done():
	}
}

// Left is how many profiles were left out of those that were listed last, as there may be no more.
func (f *Follower) Left() int { return int(f.left.Load()) }

// List reads the profiles one time.
func (f *Follower) List(ctx context.Context) ([]Profile, error) {
	list, _, err := f.list(ctx)
	return list, err
}

// list reads the profiles in a version of the API that the hub has, the oldest first, and says at which
// resourceVersion they were so.
func (f *Follower) list(ctx context.Context) (list []Profile, at string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for _, version := range versions {
		f.gvr = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: version, Resource: "clusterprofiles"}
		if list, at, err = f.listPages(ctx); !apierrors.IsNotFound(err) {
			return list, at, err
		}
	}
	return nil, "", errors.New("the hub has no ClusterProfiles: its custom resource definition is not there")
}

func (f *Follower) listPages(ctx context.Context) (list []Profile, at string, err error) {
	options := metav1.ListOptions{LabelSelector: f.o.LabelSelector, Limit: pageSize}
	total := 0
	for {
		page, err := f.hub.Resource(f.gvr).Namespace(f.o.Namespace).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			if p := read(&page.Items[i]); p.named() {
				list = append(list, p)
			}
		}
		total += len(page.Items)
		slices.SortFunc(list, older)
		list = list[:min(len(list), f.o.Max)]
		if at, options.Continue = page.GetResourceVersion(), page.GetContinue(); options.Continue == "" {
			break
		}
	}
	if left := int64(max(0, total-f.o.Max)); f.left.Swap(left) != left {
		f.o.Logger.Warn("too many ClusterProfiles, ignoring the youngest", "max", f.o.Max, "ignored", left)
	}
	f.digests = make(map[string][32]byte, len(list))
	for i := range list {
		f.digests[list[i].key()] = list[i].digest()
	}
	return list, at, nil
}

// watch returns when something has changed, or when it is time to look anyway. It calls watched when the hub lets it.
func (f *Follower) watch(ctx context.Context, version string, watched func()) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+listTimeout)
	defer cancel()
	w, err := f.hub.Resource(f.gvr).Namespace(f.o.Namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: f.o.LabelSelector, ResourceVersion: version, TimeoutSeconds: new(int64(watchTimeout / time.Second)),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	watched()
	for {
		select {
		case event, open := <-w.ResultChan():
			switch {
			case !open || f.concerns(event):
				return nil
			case event.Type == watch.Error:
				if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					return err
				}
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// concerns reports whether an event changes what was listed: most are of conditions and properties.
func (f *Follower) concerns(event watch.Event) bool {
	u, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Bookmark {
		return false
	}
	p := read(u)
	old, known := f.digests[p.key()]
	if event.Type == watch.Deleted {
		return known
	}
	return known && old != p.digest() || !known && len(f.digests) < f.o.Max && p.named()
}

// HubConfig is how the hub is reached, by a context of a kubeconfig, or its current one; without a kubeconfig by the
// service account of the pod.
func HubConfig(file, context string) (cfg *rest.Config, err error) {
	if file == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = kubeconfig.Load(file, context)
	}
	if err != nil {
		return nil, fmt.Errorf("hub of the ClusterProfiles: %w", err)
	}
	return cfg, nil
}
