package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/state"
	"github.com/kubeweir/kubeweir/config"
)

// keep opens the folder of what is kept over restarts, if there is to be one. That each of several
// clusters has its own is package config's doing.
func (c *cluster) keep(s *config.State, client kubernetes.Interface) (_ cache.KeepOptions, err error) {
	if s.Dir == "" {
		return cache.KeepOptions{}, nil
	}
	var key []byte
	if s.KeyFile != "" {
		content, err := os.ReadFile(s.KeyFile)
		if err != nil {
			return cache.KeepOptions{}, fmt.Errorf("--state-key-file: %w", err)
		}
		if key, err = state.ParseKey(content); err != nil {
			return cache.KeepOptions{}, fmt.Errorf("--state-key-file: %s %w", s.KeyFile, err)
		}
	}
	if c.state, err = state.Open(state.Options{
		Dir: s.Dir, Key: key, MaxBytes: int64(s.MaxBytes), BytesPerSecond: int64(s.WriteRate),
		Registerer: c.registerer, Logger: c.log,
	}); err != nil {
		if c.succeeds && errors.Is(err, state.ErrInUse) {
			// By the one whose place this cluster takes, which ends only when this one serves.
			c.log.Warn("nothing is kept of the cluster until the process starts again, as it had its state folder before it was changed", "error", err)
			return cache.KeepOptions{}, nil
		}
		return cache.KeepOptions{}, fmt.Errorf("--state-dir: %w", err)
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	return cache.KeepOptions{
		Images: c.state, MaxAge: s.MaxAge,
		Cluster: func(ctx context.Context) (string, error) {
			ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return string(ns.UID), nil
		},
		Exclude: func(gr schema.GroupResource) bool {
			return gr == secrets && key == nil || slices.Contains(s.Exclude, gr.String())
		},
	}, nil
}

// keptRetry is how often it is looked whether what was kept can be started.
const keptRetry = 100 * time.Millisecond

// startKept starts the collections that were kept as soon as it is known what they are. It
// ends when they all are, or are known not to be served any more.
func (c *cluster) startKept(ctx context.Context) {
	kept := c.manager.Kept()
	ticker := time.NewTicker(keptRetry)
	defer ticker.Stop()
	for {
		settled := c.resources.Settled() // first: what is not found after that is not there
		kept = slices.DeleteFunc(kept, func(k cache.KeptCollection) bool {
			res, ok := c.resources.Lookup(k.Resource)
			if ok {
				c.manager.Start(res, k.Encoding)
			}
			return ok
		})
		switch {
		case len(kept) == 0:
			return
		case settled:
			for _, k := range kept {
				c.manager.Forget(k)
			}
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
