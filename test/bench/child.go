package bench

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// A child is a server in a process of its own: this program, run again.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer // the process ends when it is closed
	server *server
}

// startChild runs this program again with an environment variable from which ServeFloor learns what
// to serve. It reads the server's address from the first line of output.
func startChild(name, env, arguments string, tlsConfig *tls.Config) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+arguments)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server %q: %w", name, err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.close()
		return nil, fmt.Errorf("the server %q prints no address: %w", name, err)
	}
	pid := cmd.Process.Pid
	c.server = &server{name: name, addr: strings.TrimSpace(addr), tls: tlsConfig, pids: []int{pid}, pid: pid}
	return c, nil
}

func (c *child) close() {
	_ = c.stdin.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// ServeFloor turns this process into the floor or the file server if its environment says so, and
// returns only if it does not. The process runs until its standard input ends. Programs and tests
// that call Run call ServeFloor first.
func ServeFloor() {
	for name, serve := range map[string]func(string) error{floorEnv: serveFloor, filesEnv: serveFiles} {
		arguments, ok := os.LookupEnv(name)
		if !ok {
			continue
		}
		if err := serve(arguments); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}
