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
	"github.com/kubeweir/kubeweir/internal/app/decisions"
)

// checkpointOptions opens the state directory, if there is one. Package config gives each of several clusters its own.
func (c *cluster) checkpointOptions(s *config.State, client kubernetes.Interface) (_ checkpoint.Options, err error) {
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

// stateKey reads the key that encrypts the state directory; nil without a file.
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
	// The group may read it: volumes of Kubernetes give files to non-root users in this way.
	if info, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		log.Warn("state key is readable by all users of this machine: chmod 600 it, and replace it if others may have read it",
			"file", file, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return key, nil
}

// releaseState saves what has changed and closes the state directory. The cluster is served as before,
// without checkpoints.
func (c *cluster) releaseState() {
	if c.state == nil || !c.manager.ReleaseCheckpoints() {
		return // the disk does not respond, and may still be written
	}
	c.decisions.Close()
	closeState(c.state, c.log)
}

func closeState(dir *state.Dir, log *slog.Logger) {
	if err := dir.Close(); err != nil {
		log.Warn("closing the state directory", "error", err)
	}
}

// openDecisions loads the saved decisions about clients. It returns a function that reports whether
// checkpoints may be served unconfirmed: not if they are of another API server, which may be that of
// another cluster.
func (c *cluster) openDecisions(g *config.Gateway, cluster func(context.Context) (string, error), server string) func() bool {
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
	var doubtful bool
	c.decisions, doubtful = decisions.Open(decisions.Options{
		Dir: c.state, Cluster: cluster, Server: server, TTL: c.offlineTTL, Reachable: c.reachable, Discovery: c.discovery, Log: c.log,
	})
	return func() bool { return servesOffline() && !doubtful }
}

// savedRetry is how often it is looked whether what was kept can be started.
const savedRetry = 100 * time.Millisecond

// startSaved starts the collections that were kept as soon as it is known what they are. It
// ends when they all are, or are known not to be served any more.
func (c *cluster) startSaved(ctx context.Context) {
	checkpoints := c.manager.Checkpoints(ctx)
	ticker := time.NewTicker(savedRetry)
	defer ticker.Stop()
	for {
		// First: what is not found after that is not there.
		settled := c.resources.Settled() && c.discovery.Read()
		checkpoints = slices.DeleteFunc(checkpoints, func(k checkpoint.Saved) bool {
			res, ok := c.resources.Lookup(k.Resource)
			if ok {
				c.manager.Start(res, k.Encoding)
			}
			return ok
		})
		switch {
		case len(checkpoints) == 0:
			return
		case settled:
			for _, k := range checkpoints {
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
