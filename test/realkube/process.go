package realkube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end after SIGTERM before it is killed.
const stopGrace = 20 * time.Second

// A process is a child process. It is reaped when it ends, and dies with its parent.
type process struct {
	name    string
	logFile string
	logFrom int64 // size of the log before this process wrote to it
	cmd     *exec.Cmd
	done    chan struct{} // closed once the process is reaped
	err     error         // why it ended; may be read after done is closed
}

// startProcess starts a program whose output is appended to logFile.
func startProcess(name, logFile, path string, args ...string) (*process, error) {
	return startCommand(name, logFile, exec.Command(path, args...))
}

// KubeweirEnv returns the environment of a kubeweir under test, without GOGC: the Makefile sets it so
// that tests spend less time on garbage collection, but kubeweir runs as its users run it.
func KubeweirEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
}

func startKubeweir(logFile, path string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = KubeweirEnv()
	return startCommand("kubeweir "+args[0], logFile, cmd)
}

// startCommand is startProcess for a command. It sets the command's output and attributes.
func startCommand(name, logFile string, cmd *exec.Cmd) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	p := &process{name: name, logFile: logFile, logFrom: size, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the process and reaps it. The kernel's parent-death signal refers to the thread that
// started the child, so that thread is locked to this goroutine until the child ends.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: send %s: %w", p.name, sig, err)
	}
	return nil
}

// Pause stops a process with SIGSTOP: its connections stay open and silent. It returns when all threads
// have stopped, which takes a while on a busy machine.
func Pause(pid int) error {
	if pid <= 0 { // a whole process group
		return errors.New("there is no process to stop")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for !stopped(pid) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Resume continues a paused process.
func Resume(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("continue process %d: %w", pid, err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits until it has ended. It does nothing if the process
// has already ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop sends SIGTERM and waits; after stopGrace, or when ctx ends, it kills the process. The error
// is an *exec.ExitError if the process ended by itself with a status other than 0, and another
// error if it was killed.
func (p *process) stop(ctx context.Context) error {
	if !p.running() {
		return p.err
	}
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
		return p.err
	case <-grace.C:
	case <-ctx.Done():
	}
	p.kill()
	return fmt.Errorf("%s did not stop and was killed", p.name)
}

// log returns what the process has written so far.
func (p *process) log() []byte {
	b, err := os.ReadFile(p.logFile)
	if err != nil || int64(len(b)) < p.logFrom {
		return nil
	}
	return b[p.logFrom:]
}

// failure describes a process that ended too early, including the end of its output.
func (p *process) failure() error {
	<-p.done
	b := p.log()
	const tail = 3000
	if len(b) > tail {
		b = b[len(b)-tail:]
	}
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte("address already in use")) {
			return fmt.Errorf("%s: %w: %s", p.name, errPortTaken, bytes.TrimSpace(line))
		}
	}
	return fmt.Errorf("%s ended too early: %s\n%s", p.name, p.cmd.ProcessState, b)
}

// errPortTaken means that another program took a port before it was used.
var errPortTaken = errors.New("a port is taken")

// await polls ready until it returns true, the process ends, or ctx ends.
func (p *process) await(ctx context.Context, ready func(context.Context) (bool, error)) error {
	var last error
	for {
		ok, err := ready(ctx)
		if ok && p.running() {
			return nil
		}
		if err != nil {
			last = err
		}
		if !p.running() {
			return p.failure()
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%s not ready: %w (last: %v)", p.name, err, last)
		}
	}
}
