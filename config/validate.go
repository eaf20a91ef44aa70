package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is an address to listen on.
type listener struct {
	path, address string
	check         func(string) error
}

// checkListeners checks the configured listeners, and that their addresses differ.
func checkListeners(o *origins, listeners ...listener) {
	used := make(map[string]string)
	for _, l := range listeners {
		if l.address == "" {
			continue
		}
		if err := l.check(l.address); err != nil {
			o.report(l.path, "%w", err)
		} else if other, taken := used[l.address]; taken && !strings.HasSuffix(l.address, ":0") {
			o.report(l.path, "is %s, as %s is; give each listener its own", l.address, o.name(other))
		}
		used[l.address] = l.path
	}
}

// listPath is the path of an item when the list came from the file, and of the
// list otherwise.
func listPath(o *origins, path string, i int) string {
	if o.file != nil && !o.given(o.flags[path]) {
		return fmt.Sprintf("%s[%d]", path, i)
	}
	return path
}

func checkHostPort(address string) error {
	_, _, err := splitHostPort(address)
	return err
}

func splitHostPort(address string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("must be a host:port such as 127.0.0.1:8443 or [::]:8443, not %q", short(address))
	}
	return host, port, nil
}

// checkLoopback rejects addresses that other machines can reach: all clients of this listener have
// the gateway's own rights.
func checkLoopback(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("must name a unix socket by its absolute path, such as unix:/run/kubeweir.sock, not %q", short(address))
		}
		return nil
	}
	host, _, err := splitHostPort(address)
	if err != nil {
		return fmt.Errorf("must be a loopback host:port such as 127.0.0.1:8080, or unix:/path, not %q", short(address))
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("must be a loopback address or a unix socket, not %q: everyone who reaches it has the gateway's own rights", short(address))
	}
	return nil
}

// checkFiles checks that the files to be read exist.
func checkFiles(o *origins, settings []setting) {
	if o.elsewhere {
		return
	}
	for _, s := range settings {
		if s.placeholder() == "folder" || s.path == "audit.path" {
			continue
		}
		for _, name := range s.files() {
			if *name != "" {
				checkFile(o, s.path, *name)
			}
		}
	}
}

func checkFile(o *origins, path, name string) {
	f, err := os.Open(name)
	if err != nil {
		o.report(path, "cannot be used: %w", plainFileError(name, err))
		return
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		o.report(path, "cannot be used: %w", plainFileError(name, err))
	} else if info.IsDir() {
		o.report(path, "must be a file, and %s is a directory", shownPath(name))
	} else if info.Mode()&os.ModeDevice != 0 {
		o.report(path, "must be a file, and %s is a device", shownPath(name))
	}
}
