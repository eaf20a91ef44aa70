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

// A testbed is what is measured: a cluster filled with pods, a gateway in front of it, and the floor.
type testbed struct {
	cluster *realkube.Cluster
	binary  string // path of kubeweir, empty to build it
	tls     *tls.Config

	apiserver *server
	gateway   *gateway // with default settings
	rival     *gateway // another build of it, nil without one
	stores    *storeBed
	visible   *visibleBed
	floor     *floor
	nginx     *nginx
	nginxPath string // of the program, empty without it

	rawBytes int64 // of all pods as JSON
}

// A gateway is a running kubeweir.
type gateway struct {
	*server
	process *realkube.Gateway
	// plaintext is its plaintext listener, nil without one.
	plaintext *server
}

// newTestbed starts a cluster and fills it. The gateway and the floor are started when they are asked for.
func newTestbed(ctx context.Context, binary string, e effort, progress func(string, ...any)) (_ *testbed, err error) {
	progress("starting etcd and kube-apiserver")
	b := &testbed{binary: binary}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	// What kubeweir serves by default and kube-apiserver only so.
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

// restart begins with a new kube-apiserver, in whose memory there is nothing of what was done before. No gateway may
// run that is measured afterwards.
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

// clientTLS is how clients reach a cluster, and what has its certificates from it: by HTTP/1.1.
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

// sidecarLine is what a gateway with a plaintext listener prints.
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

// common starts the gateway with default settings, its rival if there is a program of one, and the floor, once.
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

// version is the current resourceVersion.
func (b *testbed) version(ctx context.Context) (string, error) {
	return versionOf(ctx, b.apiserver, "/api/v1/pods?limit=1")
}

// cachedVersion is one that kubeweir's cache has, as clients know it that read or watch through kubeweir. A version
// of the store's, which moves with every write of anything, comes to a cache of pods only after a while.
func (b *testbed) cachedVersion(ctx context.Context, gw *gateway) (string, error) {
	return versionOf(ctx, gw.server, "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnone")
}

// versionOf is the resourceVersion of a list.
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

// path fills in a row's path.
func (b *testbed) path(ctx context.Context, r *Row, gw *gateway) (string, error) {
	version, err := b.cachedVersion(ctx, gw)
	if err != nil {
		return "", fmt.Errorf("version in the cache: %w", err)
	}
	return strings.NewReplacer(
		"{namespace}", namespaceName(3), "{node}", nodeName(42), "{pod}", podPath(123), "{version}", version,
	).Replace(r.Path), nil
}
