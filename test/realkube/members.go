package realkube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Members are an etcd cluster of several members, without kube-apiserver. Its methods are safe for
// concurrent use, but starting and killing the same member must not overlap.
type Members struct {
	dir, etcd string
	// initial is the value of etcd's --initial-cluster flag.
	initial string
	members []*member
}

type member struct {
	name         string
	client, peer *port

	mu      sync.Mutex
	process *process // the latest process; guarded by mu
}

// StartMembers starts an etcd cluster of n members on loopback ports and returns when all serve.
// ctx bounds only the start; Close ends the cluster.
func StartMembers(ctx context.Context, n int) (*Members, error) {
	paths, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	m := &Members{etcd: paths.Etcd}
	if m.dir, err = os.MkdirTemp("", "kubeweir-members-"); err != nil {
		return nil, err
	}
	var initial []string
	for i := range n {
		one := &member{name: fmt.Sprintf("m%d", i)}
		m.members = append(m.members, one)
		if one.client, err = reservePort(); err == nil {
			one.peer, err = reservePort()
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		initial = append(initial, one.name+"=http://"+one.peer.addr())
	}
	m.initial = strings.Join(initial, ",")
	// A member serves only once a majority is running.
	started := make(chan error, n)
	for i := range n {
		go func() { started <- m.Start(ctx, i) }()
	}
	for range n {
		err = errors.Join(err, <-started)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Start starts a member, or restarts it after it was killed, and returns when it serves.
func (m *Members) Start(ctx context.Context, i int) error {
	one := m.members[i]
	clientURL, peerURL := "http://"+one.client.addr(), "http://"+one.peer.addr()
	p, err := startProcess("etcd "+one.name, filepath.Join(m.dir, one.name+".log"), m.etcd,
		"--name="+one.name, "--data-dir="+filepath.Join(m.dir, one.name),
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster="+m.initial, "--log-level=info", "--unsafe-no-fsync",
	)
	if err != nil {
		return err
	}
	one.mu.Lock()
	one.process = p
	one.mu.Unlock()
	return p.await(ctx, func(context.Context) (bool, error) {
		return bytes.Contains(p.log(), []byte("ready to serve client requests")), nil
	})
}

// Kill ends a member with SIGKILL and returns when it has ended.
func (m *Members) Kill(i int) {
	one := m.members[i]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.process != nil {
		one.process.kill()
	}
}

// URLs returns the URLs at which the members serve clients.
func (m *Members) URLs() []string {
	urls := make([]string, len(m.members))
	for i, one := range m.members {
		urls[i] = "http://" + one.client.addr()
	}
	return urls
}

// Close kills all members, releases the ports and removes the data.
func (m *Members) Close() error {
	for i, one := range m.members {
		m.Kill(i)
		for _, p := range []*port{one.client, one.peer} {
			if p != nil {
				p.release()
			}
		}
	}
	return os.RemoveAll(m.dir)
}
