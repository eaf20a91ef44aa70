package realkube

import (
	"context"
	"os/exec"
	"syscall"
)

// A Line is a shell command line that keeps running.
type Line struct{ proc *process }

// StartLine runs a command line in bash with an environment. Its output is appended to logFile.
// Kill ends it.
func StartLine(line, logFile string, env []string) (*Line, error) {
	cmd := exec.Command("bash", "-c", line)
	cmd.Env = env
	p, err := startCommand(line, logFile, cmd)
	if err != nil {
		return nil, err
	}
	return &Line{p}, nil
}

// Await waits until the output satisfies ready. It returns an error if the shell ends before.
func (l *Line) Await(ctx context.Context, ready func(printed string) bool) error {
	return l.proc.await(ctx, func(context.Context) (bool, error) { return ready(l.Log()), nil })
}

// Running reports whether the shell is running.
func (l *Line) Running() bool { return l.proc.running() }

// Log returns the output.
func (l *Line) Log() string { return string(l.proc.log()) }

// Kill kills the shell's process group and returns when the shell has ended.
func (l *Line) Kill() {
	if l.proc.running() { // otherwise the process id may be reused
		_ = syscall.Kill(-l.proc.pid(), syscall.SIGKILL)
	}
	<-l.proc.done
}
