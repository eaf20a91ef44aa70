package realkube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// startTries is how often a server is started on another port because its port was taken meanwhile.
const startTries = 5

// etcdName is the name of etcd's only member.
const etcdName = "kubeweir-test"

// startFirstEtcd starts etcd on free ports.
func (c *Cluster) startFirstEtcd(ctx context.Context) error {
	for try := 1; ; try++ {
		client, err := reservePort()
		if err != nil {
			return err
		}
		peer, err := reservePort()
		if err != nil {
			client.release()
			return err
		}
		c.etcdPort, c.etcdPeerPort = client, peer
		err = c.StartEtcd(ctx)
		if err == nil || !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
		client.release()
		peer.release()
	}
}

// StartEtcd restarts etcd after it was stopped or killed, on the same ports and data, and returns
// when it serves.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.etcd != nil && c.mu.etcd.running() {
		return errors.New("etcd is already running")
	}
	clientURL, peerURL := c.EtcdURL(), "http://"+c.etcdPeerPort.addr()
	args := []string{
		"--name=" + etcdName,
		"--data-dir=" + c.etcdDir(),
		"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=" + etcdName + "=" + peerURL,
		"--log-level=info",
		"--watch-progress-notify-interval=5s", // as in common setups; bookmarks of idle resources depend on it
	}
	if !c.opts.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	p, err := startProcess("etcd", filepath.Join(c.dir, "etcd.log"), c.paths.Etcd, append(args, c.opts.EtcdArgs...)...)
	if err != nil {
		return err
	}
	c.mu.etcd = p
	// etcd's log, not its port, shows that it is ready: on a port that was just lost, another etcd
	// would respond.
	return p.await(ctx, func(context.Context) (bool, error) {
		return bytes.Contains(p.log(), []byte("ready to serve client requests")), nil
	})
}

// StopEtcd ends etcd with SIGTERM and waits for it.
func (c *Cluster) StopEtcd(ctx context.Context) error {
	p, err := c.etcd()
	if err != nil {
		return err
	}
	// etcd sends itself the signal again after its shutdown.
	var ended *exec.ExitError
	if err := p.stop(ctx); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		return err
	}
	return nil
}

// KillEtcd ends etcd with SIGKILL and returns when it has ended.
func (c *Cluster) KillEtcd() error {
	p, err := c.etcd()
	if err != nil {
		return err
	}
	p.kill()
	return nil
}

// EtcdPID returns the process id of the etcd that was started last, or 0.
func (c *Cluster) EtcdPID() int {
	p, err := c.etcd()
	if err != nil {
		return 0
	}
	return p.pid()
}

func (c *Cluster) etcd() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.etcd == nil {
		return nil, errors.New("etcd was not started")
	}
	return c.mu.etcd, nil
}

// EtcdURL returns the URL at which etcd serves clients, in plain HTTP.
func (c *Cluster) EtcdURL() string { return "http://" + c.etcdPort.addr() }

// Revision returns the store's current revision, which is the resourceVersion of the most recent
// write.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	var out struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcdCall(ctx, "maintenance/status", map[string]any{}, &out); err != nil {
		return 0, err
	}
	return strconv.ParseInt(out.Header.Revision, 10, 64)
}

// Compact drops the store's history below revision. Reads at older versions then fail unless
// kube-apiserver still has them in memory.
func (c *Cluster) Compact(ctx context.Context, revision int64) error {
	return c.etcdCall(ctx, "kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true}, nil)
}

// DeletePrefix deletes the keys with a prefix in one transaction, at one revision, bypassing
// kube-apiserver.
func (c *Cluster) DeletePrefix(ctx context.Context, prefix string) error {
	return c.etcdCall(ctx, "kv/deleterange", prefixRange(prefix), nil)
}

// prefixRange returns the range of keys with a prefix in the form of etcd's requests.
func prefixRange(prefix string) map[string]any {
	end := []byte(prefix)
	end[len(end)-1]++
	return map[string]any{"key": []byte(prefix), "range_end": end}
}

// etcdCall uses etcd's JSON gateway, so that the tests do not need etcd's client library.
func (c *Cluster) etcdCall(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", method, resp.Status, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
