package realkube

import (
	"context"
	"errors"
	"os"
	"slices"
)

// StartPeer starts an additional kube-apiserver on c's etcd, with the same certificates, users and
// flags plus extraArgs, and returns when it is ready. The returned cluster shares c's etcd; its
// methods start, stop and kill only the additional kube-apiserver. Close it before c.
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
