package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// An nginx is the distribution's nginx. It serves kube-apiserver's responses from its proxy_cache:
// without authorization, freshness or watches, but in C.
type nginx struct {
	dir    string
	cmd    *exec.Cmd
	server *server
	// release releases its port.
	release func()
}

// findNginx returns the path of nginx, or "" if it is not installed. Distributions install it in
// directories that only root has in PATH.
func findNginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxVersion returns the version that the program prints.
func nginxVersion(ctx context.Context, path string) string {
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	_, version, ok := strings.Cut(strings.TrimSpace(string(out)), "nginx version: ")
	if err != nil || !ok {
		return fmt.Sprintf("%s (%s, %v)", path, strings.TrimSpace(string(out)), err)
	}
	return version
}

// nginxConf differs from nginx's defaults in two ways: the cache stores all of kube-apiserver's
// responses and has a separate entry for each Accept header, and connections stay open as long as
// the other servers keep theirs.
const nginxConf = `%sworker_processes 1;
pid nginx.pid;
error_log nginx.log;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path body;
  fastcgi_temp_path fastcgi;
  proxy_temp_path proxy;
  scgi_temp_path scgi;
  uwsgi_temp_path uwsgi;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  proxy_cache_path cache keys_zone=kube:10m max_size=2g inactive=1d use_temp_path=off;
  server {
    listen %s ssl http2;
    ssl_certificate %s;
    ssl_certificate_key %s;
    location / {
      proxy_pass https://%s;
      proxy_http_version 1.1;
      proxy_cache kube;
      proxy_cache_key "$request_uri $http_accept $http_accept_encoding";
      proxy_cache_valid 200 1d;
      proxy_ignore_headers Cache-Control Expires Vary Set-Cookie X-Accel-Expires;
    }
  }
}
`

// startedNginx returns the nginx in front of kube-apiserver and starts it if necessary. It returns
// nil if nginx is not installed.
func (b *testbed) startedNginx(ctx context.Context) (*nginx, error) {
	if b.nginxPath == "" || b.nginx != nil {
		return b.nginx, nil
	}
	var err error
	if b.nginx, err = b.startNginx(ctx); err != nil {
		return nil, fmt.Errorf("nginx: %w", err)
	}
	return b.nginx, nil
}

func (b *testbed) startNginx(ctx context.Context) (_ *nginx, err error) {
	pair, err := b.cluster.IssueServingCert("127.0.0.1")
	if err != nil {
		return nil, err
	}
	n := &nginx{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	// Nginx cannot choose a free port and report it.
	var addr string
	if addr, n.release, err = realkube.ReservePort(); err != nil {
		return nil, err
	}
	if n.dir, err = os.MkdirTemp("", "kubeweir-bench-nginx-"); err != nil {
		return nil, err
	}
	user := "" // a user that may write to the folder
	if os.Getuid() == 0 {
		user = "user root;\n"
	}
	conf := filepath.Join(n.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConf, user, addr, pair.CertFile, pair.KeyFile, b.apiserver.addr)
	if err = os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	n.cmd = exec.Command(b.nginxPath, "-p", n.dir, "-c", conf, "-e", filepath.Join(n.dir, "nginx.log"), "-g", "daemon off;")
	if err = n.cmd.Start(); err != nil {
		n.cmd = nil
		return nil, err
	}
	n.server = &server{name: "nginx", addr: addr, tls: b.tls, token: b.cluster.AdminToken()}
	return n, n.await(ctx)
}

// await waits until nginx responds and then looks up its worker process.
func (n *nginx) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		_, _, err := fetch(ctx, n.server, requestSpec{path: "/version"})
		if err == nil {
			if n.server.pid, err = worker(n.cmd.Process.Pid); err == nil {
				n.server.pids = []int{n.server.pid}
				return nil
			}
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			log, _ := os.ReadFile(filepath.Join(n.dir, "nginx.log"))
			return fmt.Errorf("does not serve: %w\n%s", err, log)
		}
	}
}

// worker returns the child of nginx's master process that serves requests.
func worker(parent int) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return 0, err
	}
	for child := range strings.FieldsSeq(string(children)) {
		title, _ := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
		if strings.HasPrefix(string(title), "nginx: worker process") {
			return strconv.Atoi(child)
		}
	}
	return 0, errors.New("no worker process")
}

func (n *nginx) close() {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(os.Interrupt)
		_ = n.cmd.Wait()
	}
	if n.release != nil {
		n.release()
	}
	_ = os.RemoveAll(n.dir)
}
