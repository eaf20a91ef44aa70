package realkube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Ports are below the range from which kernels pick ports of outgoing connections (32768 and up on
// Linux), so that the port of a stopped server is still free when it restarts.
const (
	firstPort = 20000
	lastPort  = 29999
	portTries = 200
)

// A port is a loopback TCP port that no other user of this package uses while it is held.
type port struct {
	number int
	lock   *os.File
}

func (p *port) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }

func (p *port) release() {
	if p.lock != nil {
		_ = p.lock.Close()
		p.lock = nil
	}
}

// reservePort picks a free port. Other programs may still take it before it is used, so callers
// retry with another one if their server cannot bind.
func reservePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("kubeweir-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for range portTries {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(n)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		p := &port{number: n, lock: f}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if l, err := net.Listen("tcp", p.addr()); err == nil {
				_ = l.Close()
				return p, nil
			}
		}
		p.release()
	}
	return nil, errors.New("realkube: no free loopback port found")
}

// pollPeriod is how often conditions outside this process are checked.
const pollPeriod = 25 * time.Millisecond

// pause waits for one poll period. If ctx ends before, it returns ctx's error.
func pause(ctx context.Context) error {
	t := time.NewTimer(pollPeriod)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
