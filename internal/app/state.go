package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/config"
)

// keep opens the folder of what is kept over restarts, if there is to be one. That each of several
// clusters has its own is package config's doing.
func (c *cluster) keep(s *config.State, client kubernetes.Interface) (_ checkpoint.Options, err error) {
	if s.Dir == "" {
		return checkpoint.Options{}, nil
	}
	key, err := stateKey(s.KeyFile, c.log)
	if err != nil {
		return checkpoint.Options{}, err
	}
	options := state.Options{
		Dir: s.Dir, Cluster: c.name, Key: key, MaxBytes: int64(s.MaxBytes), BytesPerSecond: int64(s.WriteRate),
		Registerer: c.registerer, Logger: c.log,
	}
	c.state, err = state.Open(options)
	if err != nil {
		return checkpoint.Options{}, fmt.Errorf("--state-dir: %w", err)
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	return checkpoint.Options{
		Storage: c.state, MaxAge: s.MaxAge,
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

// stateKey reads the key that what is kept is sealed with; nil without a file.
func stateKey(file string, log *slog.Logger) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--state-key-file: %w", err)
	}
	key, err := state.ParseKey(content)
	if err != nil {
		return nil, fmt.Errorf("--state-key-file: %s %w", file, err)
	}
	// Its group may read it: so a volume of Kubernetes gives a file to who is not root.
	if info, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		log.Warn("state key is readable by all users of this machine: chmod 600 it, and replace it if others may have read it",
			"file", file, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return key, nil
}

// letGo gives up the state folder: what has changed is saved, and from then on nothing is
// kept of the cluster, which is served all the same.
func (c *cluster) letGo() {
	if c.state == nil || !c.manager.ReleaseCheckpoints() {
		return // the disk does not respond, and may still be written
	}
	c.memory.close()
	closeState(c.state, c.log)
}

func closeState(dir *state.Dir, log *slog.Logger) {
	if err := dir.Close(); err != nil {
		log.Warn("closing the state directory", "error", err)
	}
}

// rememberWords opens what is kept of clients, and returns what tells whether what is kept of
// collections may be served before it is confirmed: not if it was kept of another API server,
// which only an answer could tell from another cluster. Without the former there is nobody to
// serve it to while no API server answers.
func (c *cluster) rememberWords(g *config.Gateway, cluster func(context.Context) (string, error), server string) func() bool {
	if c.state == nil {
		return nil
	}
	servesOffline := func() bool { return c.offlineTTL() > 0 }
	if g.State.KeyFile == "" {
		if servesOffline() {
			c.log.Info("decisions about clients are not saved without --state-key-file: a gateway that starts while no API server responds rejects all clients")
		}
		return servesOffline
	}
	c.memory = newMemory(c.state, cluster, server, c.offlineTTL, c.log)
	c.memory.doubted.Store(c.memory.load() != nil)
	return func() bool { return servesOffline() && !c.memory.doubted.Load() }
}

// keptRetry is how often it is looked whether what was kept can be started.
const keptRetry = 100 * time.Millisecond

// startKept starts the collections that were kept as soon as it is known what they are. It
// ends when they all are, or are known not to be served any more.
func (c *cluster) startKept(ctx context.Context) {
	kept := c.manager.Checkpoints(ctx)
	ticker := time.NewTicker(keptRetry)
	defer ticker.Stop()
	for {
		// First: what is not found after that is not there.
		settled := c.resources.Settled() && c.discovery.Read()
		kept = slices.DeleteFunc(kept, func(k checkpoint.Saved) bool {
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
				c.manager.ForgetCheckpoint(k)
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
