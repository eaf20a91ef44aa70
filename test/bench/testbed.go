package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A testbed is what is measured: a cluster filled with pods, a gateway in front of it, and the
// floor.
type testbed struct {
	cluster *realkube.Cluster
	binary  string // path of kubeweir, empty to build it
	tls     *tls.Config

	apiserver *server
	gateway   *gateway // with default settings
	rival     *gateway // another build of kubeweir, or nil
	stores    *storeBed
	visible   *visibleBed
	floor     *floor
	nginx     *nginx
	nginxPath string // path of the program, or ""

	rawBytes int64 // size of all pods as JSON
}

// A gateway is a running kubeweir.
type gateway struct {
	*server
	process *realkube.Gateway
	// plaintext is its plaintext listener, or nil.
	plaintext *server
}

// newTestbed starts a cluster and fills it. The gateway and the floor start when first needed.
func newTestbed(ctx context.Context, binary string, e effort, progress func(string, ...any)) (_ *testbed, err error) {
	progress("starting etcd and kube-apiserver")
	b := &testbed{binary: binary}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	// kubeweir serves both by default, kube-apiserver only behind these feature gates.
	gates := map[string]bool{"CBORServingAndStorage": true, "ShardedListAndWatch": true}
	if b.cluster, err = realkube.Start(ctx, realkube.Options{FeatureGates: gates}); err != nil {
		return nil, err
	}
	if b.tls, err = clientTLS(b.cluster); err != nil {
		return nil, err
	}
	progress("writing %d pods", e.pods)
	if err := seed(ctx, b.cluster.AdminConfig(), e.pods); err != nil {
		return nil, err
	}
	b.apiserver = b.upstream()
	if e.restart {
		progress("restarting kube-apiserver")
		if err := b.restart(ctx); err != nil {
			return nil, err
		}
	}
	r, _, err := fetch(ctx, b.apiserver, requestSpec{path: "/api/v1/pods?resourceVersion=0"})
	b.rawBytes = r.bytes
	return b, err
}

// restart restarts kube-apiserver, so that its memory does not reflect earlier work. Gateways that
// are measured later must not be running yet.
func (b *testbed) restart(ctx context.Context) error {
	if err := errors.Join(b.cluster.StopAPIServer(ctx), b.cluster.StartAPIServer(ctx)); err != nil {
		return err
	}
	*b.apiserver = *b.upstream()
	return nil
}

func (b *testbed) upstream() *server {
	pid := b.cluster.APIServerPID()
	return &server{
		name: "kube-apiserver", addr: strings.TrimPrefix(b.cluster.URL(), "https://"), tls: b.tls,
		token: b.cluster.AdminToken(), pids: []int{pid}, pid: pid,
	}
}

// clientTLS returns the TLS settings with which clients reach a cluster, and servers with its
// certificates, over HTTP/1.1.
func clientTLS(c *realkube.Cluster) (*tls.Config, error) {
	ca, err := os.ReadFile(c.ServingCAFile())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}, ServerName: "127.0.0.1"}, nil
}

func (b *testbed) close() (err error) {
	for _, g := range []*gateway{b.gateway, b.rival} {
		if g != nil {
			g.process.Close()
		}
	}
	if b.floor != nil {
		b.floor.close()
	}
	if b.nginx != nil {
		b.nginx.close()
	}
	if b.stores != nil {
		defer func() { err = errors.Join(err, b.stores.close()) }()
	}
	if b.visible != nil {
		defer func() { err = errors.Join(err, b.visible.close()) }()
	}
	if b.cluster != nil {
		return b.cluster.Close()
	}
	return nil
}

// sidecarLine is printed by a gateway with a plaintext listener.
var sidecarLine = regexp.MustCompile(`(?m)^kubeweir: sidecar on (\S+)$`)

// startGateway starts another gateway, which the caller closes.
func (b *testbed) startGateway(ctx context.Context, binary string, args ...string) (*gateway, error) {
	return b.startGatewayWith(ctx, realkube.GatewayOptions{Path: binary, ExtraArgs: args})
}

func (b *testbed) startGatewayWith(ctx context.Context, o realkube.GatewayOptions) (*gateway, error) {
	p, err := realkube.StartGatewayWith(ctx, b.cluster, o)
	if err != nil {
		return nil, err
	}
	g := &gateway{process: p, server: &server{
		name: "kubeweir", addr: strings.TrimPrefix(p.URL(), "https://"), tls: b.tls,
		token: b.cluster.AdminToken(), pids: []int{p.PID()}, pid: p.PID(),
	}}
	if m := sidecarLine.FindStringSubmatch(p.Log()); m != nil {
		plain := *g.server
		plain.addr, plain.tls, plain.token = m[1], nil, ""
		g.plaintext = &plain
	}
	return g, nil
}

// common starts, once, the gateway with default settings, the rival if it is set, and the floor.
func (b *testbed) common(ctx context.Context, rival string) error {
	var err error
	if b.gateway == nil {
		if b.gateway, err = b.startGateway(ctx, b.binary); err != nil {
			return err
		}
	}
	if b.rival == nil && rival != "" {
		if b.rival, err = b.startGateway(ctx, rival); err != nil {
			return err
		}
	}
	if b.floor == nil {
		pair, err := b.cluster.IssueServingCert("127.0.0.1")
		if err != nil {
			return err
		}
		b.floor, err = startFloor(pair.CertFile, pair.KeyFile, b.tls)
		if err != nil {
			return err
		}
	}
	return nil
}

// version returns the current resourceVersion.
func (b *testbed) version(ctx context.Context) (string, error) {
	return versionOf(ctx, b.apiserver, "/api/v1/pods?limit=1")
}

// cachedVersion returns a version that kubeweir's cache has reached, as clients know it that read
// or watch through kubeweir. The store's version moves with every write of any resource, and a
// cache of pods reaches it only after a while.
func (b *testbed) cachedVersion(ctx context.Context, gw *gateway) (string, error) {
	return versionOf(ctx, gw.server, "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnone")
}

// versionOf returns the resourceVersion of a list.
func versionOf(ctx context.Context, s *server, path string) (string, error) {
	_, body, err := fetch(ctx, s, requestSpec{path: path})
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", err
	}
	if list.Metadata.ResourceVersion == "" {
		return "", errors.New("a list without resourceVersion")
	}
	return list.Metadata.ResourceVersion, nil
}

// path replaces the placeholders in a row's path.
func (b *testbed) path(ctx context.Context, r *Row, gw *gateway) (string, error) {
	version, err := b.cachedVersion(ctx, gw)
	if err != nil {
		return "", fmt.Errorf("version in the cache: %w", err)
	}
	return strings.NewReplacer(
		"{namespace}", namespaceName(3), "{node}", nodeName(42), "{pod}", podPath(123), "{version}", version,
	).Replace(r.Path), nil
}
