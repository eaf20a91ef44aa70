package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is one thing that can be wrong.
type check func(*origins) error

// firstOf returns the first thing that is wrong.
func firstOf(o *origins, checks ...check) error {
	for _, check := range checks {
		if err := check(o); err != nil {
			return err
		}
	}
	return nil
}

// listener is an address to listen on.
type listener struct {
	path, address string
	check         func(string) error
}

// checkListeners checks those that are asked for, and that each is another.
func checkListeners(o *origins, listeners ...listener) error {
	used := make(map[string]string)
	for _, l := range listeners {
		if l.address == "" {
			continue
		}
		if err := l.check(l.address); err != nil {
			return o.errorf(l.path, "%w", err)
		}
		if other, taken := used[l.address]; taken && !strings.HasSuffix(l.address, ":0") {
			return o.errorf(l.path, "is %s, as %s is; give each listener its own", l.address, o.name(other))
		}
		used[l.address] = l.path
	}
	return nil
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
		return "", 0, fmt.Errorf("must be a host:port such as 127.0.0.1:8443 or [::]:8443, not %q", address)
	}
	return host, port, nil
}

// checkLoopback refuses what others than this machine can reach: everyone there
// has the gateway's own rights.
func checkLoopback(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("must name a unix socket by its absolute path, such as unix:/run/kubeweir.sock, not %q", address)
		}
		return nil
	}
	host, _, err := splitHostPort(address)
	if err != nil {
		return fmt.Errorf("must be a loopback host:port such as 127.0.0.1:8080, or unix:/path, not %q", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("must be a loopback address or a unix socket, not %q: everyone who reaches it has the gateway's own rights", address)
	}
	return nil
}

// checkFiles checks that the files that are read are there.
func checkFiles(o *origins, files map[string]*string) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name := *files[path]
		if path == "audit.path" || path == "dataDir" || path == "certDir" || path == "serviceAccountDir" || name == "" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return o.errorf(path, "is a file that cannot be used: %w", plainFileError(name, err))
		}
		info, err := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			return o.errorf(path, "is a file that cannot be used: %w", plainFileError(name, err))
		}
		if info.IsDir() {
			return o.errorf(path, "must be a file, and %s is a directory", name)
		}
	}
	return nil
}

// bound is the range of a number. A most of 0 is no bound.
type bound struct {
	path  string
	value int64
	least int64
	most  int64
	bytes bool
}

func (b *bound) check(o *origins) error {
	show := func(n int64) string {
		if b.bytes {
			return Bytes(n).String()
		}
		return strconv.FormatInt(n, 10)
	}
	switch {
	case b.value < b.least:
		return o.errorf(b.path, "must be at least %s, not %s", show(b.least), show(b.value))
	case b.most > 0 && b.value > b.most:
		return o.errorf(b.path, "must be at most %s, not %s", show(b.most), show(b.value))
	}
	return nil
}

func checkAudit(o *origins, a *Audit) error {
	path := a.Path
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return o.errorf("audit.path", "must be a file, and %s is a directory", path)
	}
	dir := cmp.Or(filepath.Dir(path), ".")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return o.errorf("audit.path", "is in a directory that does not exist; make %s first", dir)
	}
	return nil
}

func checkTLS(o *origins, t *TLS) error {
	switch {
	case t.CertFile != "" && t.PrivateKeyFile == "":
		return o.errorf("tls.certFile", "is set without %s; give both or none", o.name("tls.privateKeyFile"))
	case t.CertFile == "" && t.PrivateKeyFile != "":
		return o.errorf("tls.privateKeyFile", "is set without %s; give both or none", o.name("tls.certFile"))
	}
	return nil
}

func count(path string, n int, least, most int64) bound {
	return bound{path, int64(n), least, most, false}
}

func size(path string, n, least, most Bytes) bound {
	return bound{path, int64(n), int64(least), int64(most), true}
}

// checkNumbers checks the limits, and what else has bounds.
func checkNumbers(o *origins, l *Limits, a *Audit, more ...bound) error {
	for _, b := range append(more,
		count("limits.maxInFlight", l.MaxInFlight, 0, 0),
		count("limits.maxWatches", l.MaxWatches, 0, 0),
		count("limits.maxResumedWatches", l.MaxResumedWatches, 0, 0),
		count("limits.maxConnections", l.MaxConnections, 1, 0),
		count("limits.maxStreams", l.MaxStreams, 1, 1<<31-1),
		size("limits.maxHeaderBytes", l.MaxHeaderBytes, 4<<10, 16<<20),
		size("limits.historyBytes", l.HistoryBytes, 1<<20, 0),
		count("limits.historyEvents", l.HistoryEvents, 100, 0),
		size("limits.snapshotBytes", l.SnapshotBytes, 1<<20, 0),
		size("limits.derivedCacheBytes", l.DerivedCacheBytes, 1<<20, 0),
		size("limits.collapsedBodyBytes", l.CollapsedBodyBytes, 1<<10, 0),
		size("limits.maxObjectBytes", l.MaxObjectBytes, 4<<20, 1<<30),
		count("limits.maxColdStarts", l.MaxColdStarts, 1, 0),
		count("limits.maxStartWaiters", l.MaxStartWaiters, 1, 0),
		count("limits.maxIndexes", l.MaxIndexes, 1, 1000),
		size("audit.maxSize", a.MaxSize, 0, 0),
		count("audit.maxBackups", a.MaxBackups, 0, 10_000),
	) {
		if err := b.check(o); err != nil {
			return err
		}
	}
	return nil
}

// span is the range of a duration. A most of 0 is no bound.
type span struct {
	path        string
	value       time.Duration
	least, most time.Duration
}

// checkDurations checks those that all commands have, and more.
func checkDurations(o *origins, l *Limits, t *ServingTimeouts, s *Shutdown, more ...span) error {
	for _, d := range append(more,
		span{"limits.historyAge", l.HistoryAge, time.Second, 0},
		span{"limits.snapshotAge", l.SnapshotAge, time.Second, 0},
		span{"limits.idleCollectionTimeout", l.IdleCollectionTimeout, time.Second, 0},
		span{"timeouts.handshake", t.Handshake, time.Millisecond, 0},
		span{"timeouts.readHeader", t.ReadHeader, time.Millisecond, 0},
		span{"timeouts.idle", t.Idle, time.Millisecond, 0},
		span{"timeouts.bodyIdle", t.BodyIdle, time.Millisecond, 0},
		span{"timeouts.write", t.Write, time.Millisecond, 0},
		span{"timeouts.ping", t.Ping, time.Millisecond, 0},
		span{"timeouts.pingAnswer", t.PingAnswer, time.Millisecond, 0},
		span{"shutdown.drain", s.Drain, 0, time.Hour},
	) {
		switch {
		case d.value < d.least:
			return o.errorf(d.path, "must be at least %v, not %v", d.least, d.value)
		case d.most > 0 && d.value > d.most:
			return o.errorf(d.path, "must be at most %v, not %v", d.most, d.value)
		}
	}
	return nil
}
