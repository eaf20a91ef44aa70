package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// unixPrefix marks the address of a unix socket. "unix:///path" is taken too.
const unixPrefix = "unix:"

// socketMode is the permission of a unix socket: it lets the user in that the gateway runs as.
const socketMode = fs.FileMode(0o600)

// listenSecure opens the TLS listener's socket. TLS itself is done per connection.
func listenSecure(address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	return ln, nil
}

// listenSidecar opens the plaintext listener, on loopback or a unix socket only:
// its requests have the gateway's own identity.
func listenSidecar(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(strings.TrimPrefix(path, "//"))
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("plaintext listen address %q: %w", address, err)
	}
	rejected := fmt.Errorf("plaintext listen address %q: only a loopback address (127.0.0.1, [::1], localhost) or unix:PATH, because whoever reaches it acts as the gateway itself", address)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, rejected
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	// A hosts file may say anything about localhost.
	if bound, ok := ln.Addr().(*net.TCPAddr); !ok || !bound.IP.IsLoopback() {
		_ = ln.Close()
		return nil, rejected
	}
	return ln, nil
}

// listenUnix opens a socket that processes without the permission cannot reach at any
// moment: it gets its mode under another name first.
func listenUnix(path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("plaintext listen address: unix: needs a path")
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on unix socket %q: %w", path, err)
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, socketMode)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = ln.Close()
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("listening on unix socket %q: %w", path, err)
	}
	return &unixListener{UnixListener: ln, path: path}, nil
}

// removeStale removes the socket that an earlier process left behind, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unix socket %q: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("unix socket %q: a file that is no socket is there", path)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("unix socket %q: another process listens there", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("unix socket %q: %w", path, err)
	}
	return nil
}

// unixListener is known by the name its socket was given last.
type unixListener struct {
	*net.UnixListener
	path string
}

func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	if rmErr := os.Remove(l.path); err == nil && !errors.Is(rmErr, fs.ErrNotExist) {
		err = rmErr
	}
	return err
}
