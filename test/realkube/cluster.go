// Package realkube runs a real Kubernetes control plane for tests: etcd and kube-apiserver, built
// from their modules and started on loopback ports with TLS, tokens, client and front-proxy
// certificates and RBAC. It can stop, kill, pause and restart them. Nothing needs to be installed
// and no test is skipped: missing programs are built.
package realkube

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A User is a user with a bearer token.
type User struct {
	Name   string
	UID    string
	Groups []string
	Token  string // generated if empty
}

// The users of every cluster.
const (
	// Admin is in system:masters and may do everything.
	Admin = "admin"
	// GatewayUser is kubeweir's identity at its upstream; it is in system:masters, too.
	GatewayUser = "kubeweir-gateway"
	// Alice, Bob and Jane have no rights beyond those of every authenticated user. Jane is in group
	// "dev".
	Alice = "alice"
	Bob   = "bob"
	Jane  = "jane"
)

// Options configure a cluster. The zero value is usable.
type Options struct {
	// Dir holds data, certificates and logs. If empty, Start creates a temporary folder that Close
	// removes.
	Dir string
	// Release of kube-apiserver, for example Release130. Empty means that of this repository's
	// go.mod.
	Release string
	// ExtraArgs are appended to kube-apiserver's flags, EtcdArgs to etcd's.
	ExtraArgs, EtcdArgs []string
	// FeatureGates of kube-apiserver.
	FeatureGates map[string]bool
	// Fsync makes etcd sync to the disk, as in production. Without it, writes are faster and are
	// lost if the machine, not the process, crashes.
	Fsync bool
	// AuditPolicy of kube-apiserver, which then writes AuditLog. Empty means no audit log.
	AuditPolicy string
	// AuthorizationWebhook is called by kube-apiserver before RBAC; nil means none.
	AuthorizationWebhook *Webhook
	// Users are added to the users of every cluster.
	Users []User
	// Nodes prepares kube-apiserver for nodes: it enables the node authorizer and NodeRestriction,
	// service accounts for all pods, and a client certificate for kubelets. Addresses of Services
	// are then loopback addresses (127.96.0.0/16), the first of which is KubernetesService.
	Nodes bool
	// EtcdOnly starts no kube-apiserver; StartAPIServer starts it later.
	EtcdOnly bool
}

// A Webhook is an authorization webhook.
type Webhook struct {
	URL string
	CA  []byte // CA of its certificate, PEM
}

// A Cluster is a running etcd and kube-apiserver. Its methods are safe for concurrent use, but
// starting and stopping the same process must not overlap.
type Cluster struct {
	opts      Options
	dir       string
	ownDir    bool
	paths     Paths
	pki       *pki
	users     map[string]User
	tokenFile string
	client    *http.Client // trusts the serving CA

	apiPort, etcdPort, etcdPeerPort *port
	peer                            bool // the etcd belongs to another Cluster

	mu struct {
		sync.Mutex
		etcd, apiserver *process // the latest processes
		certs           int      // number of issued client certificates, for their file names
	}
}

// Start builds missing programs, starts etcd and kube-apiserver, and returns when they are ready.
// ctx bounds only the start; Close ends the cluster.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	paths, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Release != "" {
		if paths.KubeAPIServer, err = KubeAPIServer(ctx, opts.Release); err != nil {
			return nil, err
		}
	}
	c := &Cluster{opts: opts, dir: opts.Dir, paths: paths}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.startFirstEtcd(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if opts.EtcdOnly {
		if c.apiPort, err = reservePort(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
	if err := c.startFirstAPIServer(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) prepare() error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "kubeweir-realkube-")
		if err != nil {
			return err
		}
		c.dir, c.ownDir = dir, true
	}
	// etcd requires a private data folder.
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return err
	}
	c.dir = dir
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	c.client = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.ServingCAs()}, DisableKeepAlives: true},
	}
	if c.opts.AuditPolicy != "" {
		if err := os.WriteFile(c.auditPolicyFile(), []byte(c.opts.AuditPolicy), 0o600); err != nil {
			return err
		}
	}
	if w := c.opts.AuthorizationWebhook; w != nil {
		if err := w.writeKubeconfig(c.webhookFile()); err != nil {
			return err
		}
	}
	return c.writeTokens()
}

func (c *Cluster) writeTokens() error {
	all := append([]User{
		{Name: Admin, UID: "admin-uid", Groups: []string{"system:masters"}},
		{Name: GatewayUser, UID: "gateway-uid", Groups: []string{"system:masters"}},
		{Name: Alice, UID: "alice-uid"},
		{Name: Bob, UID: "bob-uid"},
		{Name: Jane, UID: "jane-uid", Groups: []string{"dev"}},
	}, c.opts.Users...)
	c.users = make(map[string]User, len(all))
	var file strings.Builder
	for _, u := range all {
		if u.Token == "" {
			b := make([]byte, 16)
			if _, err := rand.Read(b); err != nil {
				return err
			}
			u.Token = hex.EncodeToString(b)
		}
		c.users[u.Name] = u
		fmt.Fprintf(&file, "%s,%s,%s,%q\n", u.Token, u.Name, u.UID, strings.Join(u.Groups, ","))
	}
	c.tokenFile = filepath.Join(c.dir, "tokens.csv")
	return os.WriteFile(c.tokenFile, []byte(file.String()), 0o600)
}

// Close kills the running processes, releases the ports and removes the folder if Start created it.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range []*process{c.mu.apiserver, c.mu.etcd} {
		if p != nil {
			p.kill()
		}
	}
	ports := []*port{c.apiPort}
	if !c.peer {
		ports = append(ports, c.etcdPort, c.etcdPeerPort)
	}
	for _, p := range ports {
		if p != nil {
			p.release()
		}
	}
	if c.ownDir {
		return os.RemoveAll(c.dir)
	}
	return nil
}

// Dir returns the folder of data, certificates and logs.
func (c *Cluster) Dir() string { return c.dir }

// AuditLog returns the path of kube-apiserver's audit log, which exists if Options.AuditPolicy is
// set.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

func (c *Cluster) webhookFile() string {
	return filepath.Join(c.dir, "authorization-webhook.kubeconfig")
}

func (c *Cluster) auditPolicyFile() string { return filepath.Join(c.dir, "audit-policy.yaml") }
