package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/seed"
)

//go:embed testdata/seed.yaml
var seedYAML []byte

// An Oracle is a real kube-apiserver with the seeded state.
type Oracle struct {
	Cluster *realkube.Cluster
	Env     *Env

	seeder *seed.Seeder
}

// StartOracle starts a cluster that writes nothing by itself once it has started, so that two
// subsequent reads return the same state. Its store has a version that is too old for every read.
// Seed writes the objects.
func StartOracle(ctx context.Context, opts realkube.Options) (*Oracle, error) {
	if opts.FeatureGates == nil {
		opts.FeatureGates = make(map[string]bool)
	}
	// APIServerIdentity renews a lease all the time; the other gate depends on it.
	opts.FeatureGates["APIServerIdentity"] = false
	opts.FeatureGates["UnknownVersionInteroperabilityProxy"] = false
	opts.ExtraArgs = append(opts.ExtraArgs, "--etcd-compaction-interval=0")
	opts.Users = append(opts.Users, realkube.User{Name: impostor})
	opts.EtcdOnly = true
	cluster, err := realkube.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	o := &Oracle{Cluster: cluster, Env: &Env{OtherRelease: opts.Release != ""}}
	for _, step := range []func() error{
		o.users,
		func() error { return o.age(ctx) },
		func() error { return cluster.StartAPIServer(ctx) },
	} {
		if err := step(); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Close stops the cluster.
func (o *Oracle) Close() { _ = o.Cluster.Close() }

// users collects the credentials of all users of cases.
func (o *Oracle) users() error {
	pair, err := o.Cluster.IssueClientCert(carol, "dev")
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return err
	}
	o.Env.Users = map[string]Credentials{
		carol:     {Cert: &cert},
		anonymous: {},
		nobody:    {Token: "not-a-token"},
	}
	for _, name := range []string{admin, alice, bob, jane, impostor} {
		o.Env.Users[name] = Credentials{Token: o.Cluster.Token(name)}
	}
	return nil
}

// Target returns the oracle as a target of cases.
func (o *Oracle) Target(http2 bool) (*Target, error) {
	return o.target("kube-apiserver", o.Cluster.URL(), http2)
}

// Gateway returns a gateway in front of the oracle as a target of cases.
func (o *Oracle) Gateway(g *realkube.Gateway, http2 bool) (*Target, error) {
	return o.target("gateway", g.URL(), http2)
}

// Standalone returns a standalone server with the oracle's users as a target of cases.
func (o *Oracle) Standalone(s *realkube.Standalone, http2 bool) (*Target, error) {
	t, err := o.target("standalone", s.URL(), http2)
	if err == nil {
		t.HasPriority = true
	}
	return t, err
}

func (o *Oracle) target(name, url string, http2 bool) (*Target, error) {
	ca, err := os.ReadFile(o.Cluster.ServingCAFile())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", o.Cluster.ServingCAFile())
	}
	return &Target{Name: name, URL: url, TLS: &tls.Config{RootCAs: pool}, HTTP2: http2}, nil
}

// age creates a version that is too old for every read: it is compacted in the store, and older
// than the first version that kube-apiserver's watch cache, which is not running yet, will have.
func (o *Oracle) age(ctx context.Context) error {
	v := &o.Env.Versions
	if err := o.Cluster.BumpRevision(ctx, firstVersion, false); err != nil {
		return err
	}
	if err := o.version(ctx, &v.Expired); err != nil {
		return err
	}
	return o.Cluster.BumpRevision(ctx, v.Expired+expiredVersions, true)
}

// The history of a store before its kube-apiserver starts.
const (
	firstVersion    = 100 // versions in messages have as many digits at every server
	expiredVersions = 4   // after Versions.Expired
)

// Seed writes the objects that the cases read. Call Change afterwards.
func (o *Oracle) Seed(ctx context.Context) error {
	v := &o.Env.Versions
	request, err := csr()
	if err != nil {
		return err
	}
	if o.seeder, err = seed.New(o.Cluster.AdminConfig()); err != nil {
		return err
	}
	o.seeder.OtherRelease = o.Env.OtherRelease
	for _, step := range []func() error{
		func() error { return o.seeder.Documents(ctx, seedYAML) },
		func() error { return o.seeder.Create(ctx, request) },
		func() error { return o.version(ctx, &v.Start) },
		func() error { return createPods(ctx, o.seeder) },
		func() error { return o.version(ctx, &v.Middle) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// SeedObjects writes the objects of the seed, except pods, through another server, so that users
// have the same permissions there and the same definitions exist.
func SeedObjects(ctx context.Context, cfg *rest.Config) error {
	return SeedDocuments(ctx, cfg, seedYAML)
}

// SeedDocuments writes the objects of a YAML stream.
func SeedDocuments(ctx context.Context, cfg *rest.Config, stream []byte) error {
	s, err := seed.New(cfg)
	if err != nil {
		return err
	}
	return s.Documents(ctx, stream)
}

// Change updates and deletes some of the objects. Watches from Versions.Middle receive these
// events.
func (o *Oracle) Change(ctx context.Context) error {
	if err := changePods(ctx, o.seeder.Client, &o.Env.Versions.Changed); err != nil {
		return err
	}
	return o.version(ctx, &o.Env.Versions.Seeded)
}

func (o *Oracle) version(ctx context.Context, to *int64) (err error) {
	*to, err = o.Cluster.Revision(ctx)
	return err
}

// csr returns a CertificateSigningRequest.
func csr() (*unstructured.Unstructured, error) {
	request, err := seed.CertificateRequest()
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "csr-1"},
		"spec": map[string]any{
			"signerName": "example.com/signer",
			"usages":     []any{"client auth"},
			"request":    base64.StdEncoding.EncodeToString(request),
		},
	}}, nil
}
