package realkube

import "context"

// A Program is a running kubeweir with arguments chosen by the caller. Starting and stopping it
// must not overlap.
type Program struct {
	path, logFile string
	args          []string

	proc *process // the latest process
}

// StartProgram starts the kubeweir at path, or that of Kubeweir if path is empty, and returns when
// it is ready. Kill ends it.
func StartProgram(ctx context.Context, path, logFile string, args ...string) (*Program, error) {
	var err error
	if path == "" {
		if path, err = Kubeweir(ctx); err != nil {
			return nil, err
		}
	}
	p := &Program{path: path, logFile: logFile, args: args}
	return p, p.Start(ctx)
}

// Start restarts it after it was stopped or killed, and returns when it is ready.
func (p *Program) Start(ctx context.Context) (err error) {
	if p.proc, err = startKubeweir(p.logFile, p.path, p.args...); err != nil {
		return err
	}
	return p.proc.await(ctx, func(context.Context) (bool, error) { return readyLine.Match(p.proc.log()), nil })
}

// Log returns the output since the last start.
func (p *Program) Log() string { return string(p.proc.log()) }

// Stop ends it with SIGTERM and waits while it drains.
func (p *Program) Stop(ctx context.Context) error { return p.proc.stop(ctx) }

// Kill ends it with SIGKILL and returns when it has ended.
func (p *Program) Kill() { p.proc.kill() }

// ReservePort reserves a loopback port for a server, also over the server's restarts, until release
// is called.
func ReservePort() (address string, release func(), err error) {
	p, err := reservePort()
	if err != nil {
		return "", nil, err
	}
	return p.addr(), p.release, nil
}
