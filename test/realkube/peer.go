package realkube

import (
	"context"
	"errors"
	"os"
	"slices"
)

// StartPeer starts one more kube-apiserver on c's etcd, with the same certificates, users and flags, to which extraArgs
// are appended, and returns when it is ready. What is returned has c's etcd, but only its own kube-apiserver is its own: that is what its methods
// start, stop and kill. Close it before c.
func (c *Cluster) StartPeer(ctx context.Context, extraArgs ...string) (*Cluster, error) {
	p := &Cluster{opts: c.opts, paths: c.paths, pki: c.pki, users: c.users, tokenFile: c.tokenFile, client: c.client, etcdPort: c.etcdPort, peer: true}
	p.opts.ExtraArgs = append(slices.Clip(c.opts.ExtraArgs), extraArgs...)
	var err error
	if p.dir, err = os.MkdirTemp(c.dir, "peer-"); err != nil {
		return nil, err
	}
	if p.opts.AuditPolicy != "" {
		if err := os.WriteFile(p.auditPolicyFile(), []byte(p.opts.AuditPolicy), 0o600); err != nil {
			return nil, err
		}
	}
	if err := p.startFirstAPIServer(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
