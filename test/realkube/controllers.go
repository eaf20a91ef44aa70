package realkube

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	nodestages "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podstages "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

// kwokStages is how kwok's nodes and pods live: they are ready at once, pods of jobs end, what is deleted goes.
var kwokStages = strings.Join([]string{
	nodestages.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
	podstages.DefaultPodReady, podstages.DefaultPodComplete, podstages.DefaultPodDelete,
}, "\n---\n")

// ControllerOptions say whose controllers are started and where their files go.
type ControllerOptions struct {
	// Kubeconfig of an administrator.
	Kubeconfig string
	// ServiceAccountKey signs tokens of service accounts, RootCA goes into every namespace (kube-root-ca.crt).
	ServiceAccountKey, RootCA string
	// Dir takes logs and what the programs write.
	Dir string
	// NoKwok starts no kwok, where there are nodes that run pods.
	NoKwok bool
}

// Controllers are a running kube-controller-manager, kube-scheduler and kwok (whose nodes run pods only in name), all
// three unmodified, on one API server.
type Controllers struct {
	ports     []*port
	processes map[string]*process
}

// StartControllers builds what is missing and starts the three; they are ready when they answer their health checks.
func StartControllers(ctx context.Context, opts ControllerOptions) (*Controllers, error) {
	dir, err := BuildControllers(ctx)
	if err != nil {
		return nil, err
	}
	stages := filepath.Join(opts.Dir, "stages.yaml")
	if err := os.WriteFile(stages, []byte(kwokStages), 0o600); err != nil {
		return nil, err
	}
	c := &Controllers{processes: make(map[string]*process)}
	for _, start := range []func() error{
		func() error {
			return c.start(ctx, opts, filepath.Join(dir, "kube-controller-manager"), "https", func(port string) []string {
				return []string{
					"--kubeconfig", opts.Kubeconfig, "--authentication-kubeconfig", opts.Kubeconfig, "--authorization-kubeconfig", opts.Kubeconfig,
					"--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", opts.Dir,
					"--service-account-private-key-file", opts.ServiceAccountKey, "--root-ca-file", opts.RootCA,
					"--use-service-account-credentials=true", "--leader-elect=true", "--concurrent-gc-syncs=5",
					"--kube-api-qps=500", "--kube-api-burst=1000",
				}
			})
		},
		func() error {
			return c.start(ctx, opts, filepath.Join(dir, "kube-scheduler"), "https", func(port string) []string {
				return []string{
					"--kubeconfig", opts.Kubeconfig, "--authentication-kubeconfig", opts.Kubeconfig, "--authorization-kubeconfig", opts.Kubeconfig,
					"--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", opts.Dir,
					"--kube-api-qps=500", "--kube-api-burst=1000",
				}
			})
		},
		func() error {
			if opts.NoKwok {
				return nil
			}
			return c.start(ctx, opts, filepath.Join(dir, "kwok"), "http", func(port string) []string {
				return []string{"--kubeconfig", opts.Kubeconfig, "--config", stages, "--manage-all-nodes", "--server-address", "127.0.0.1:" + port}
			})
		},
	} {
		if err := start(); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// start starts one program on a free port and waits until it says that it is healthy.
func (c *Controllers) start(ctx context.Context, opts ControllerOptions, path, scheme string, args func(port string) []string) error {
	name := filepath.Base(path)
	for try := 1; ; try++ {
		port, err := reservePort()
		if err != nil {
			return err
		}
		c.ports = append(c.ports, port)
		p, err := startProcess(name, filepath.Join(opts.Dir, name+".log"), path, args(strconv.Itoa(port.number))...)
		if err != nil {
			return err
		}
		c.processes[name] = p
		url := scheme + "://" + port.addr() + "/healthz"
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // made up by the program at its start
		}}
		err = p.await(ctx, func(ctx context.Context) (bool, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return false, err
			}
			resp, err := client.Do(req)
			if err != nil {
				return false, err
			}
			return resp.StatusCode == http.StatusOK, resp.Body.Close()
		})
		if err == nil || !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
	}
}

// Log is what one of the three (by the name of its program) has written.
func (c *Controllers) Log(name string) string {
	if p := c.processes[name]; p != nil {
		return string(p.log())
	}
	return ""
}

// Close kills what runs.
func (c *Controllers) Close() {
	for _, p := range c.processes {
		p.kill()
	}
	for _, p := range c.ports {
		p.release()
	}
}

// BuildControllers builds the three programs into a folder from the modules that go.mod names, as Binaries does.
func BuildControllers(ctx context.Context) (dir string, err error) {
	return buildModules(ctx, "controllers", []string{"kube-controller-manager", "kube-scheduler", "kwok"}, func(root, dir, ldflags string) error {
		return goBuild(ctx, root, dir, ldflags,
			"k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes/cmd/kube-scheduler", "sigs.k8s.io/kwok/cmd/kwok")
	})
}
