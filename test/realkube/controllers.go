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

// kwokStages simulates nodes and pods in kwok: they are ready immediately, pods of jobs complete,
// deleted pods end.
var kwokStages = strings.Join([]string{
	nodestages.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
	podstages.DefaultPodReady, podstages.DefaultPodComplete, podstages.DefaultPodDelete,
}, "\n---\n")

// ControllerOptions configure Controllers.
type ControllerOptions struct {
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// ServiceAccountKey signs service account tokens; RootCA is published in every namespace
	// (kube-root-ca.crt).
	ServiceAccountKey, RootCA string
	// Dir holds logs and other files of the programs.
	Dir string
	// NoKwok starts no kwok, for clusters with real nodes.
	NoKwok bool
}

// Controllers are a running kube-controller-manager, kube-scheduler and kwok (whose nodes only
// simulate pods), all three unmodified, on one API server.
type Controllers struct {
	ports     []*port
	processes map[string]*process
}

// StartControllers builds missing programs, starts the three and waits until their health checks
// succeed.
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

// start starts one program on a free port and waits until it is healthy.
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
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the program generates the certificate at its start
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

// Log returns the output of one of the three programs by name.
func (c *Controllers) Log(name string) string {
	if p := c.processes[name]; p != nil {
		return string(p.log())
	}
	return ""
}

// Close kills the running programs.
func (c *Controllers) Close() {
	for _, p := range c.processes {
		p.kill()
	}
	for _, p := range c.ports {
		p.release()
	}
}

// BuildControllers builds the three programs from the modules in go.mod, as Binaries does, and
// returns their folder.
func BuildControllers(ctx context.Context) (dir string, err error) {
	return buildModules(ctx, "controllers", []string{"kube-controller-manager", "kube-scheduler", "kwok"}, func(root, dir, ldflags string) error {
		return goBuild(ctx, root, dir, ldflags,
			"k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes/cmd/kube-scheduler", "sigs.k8s.io/kwok/cmd/kwok")
	})
}
