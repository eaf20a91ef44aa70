package realkube

import "context"

// A Program is a running kubeweir whose arguments the caller has chosen, all of them. Starting and stopping it must not
// overlap.
type Program struct {
	path, logFile string
	args          []string

	proc *process // the one started last
}

// StartProgram starts the kubeweir at path, that of Kubeweir when it is empty, and returns when it is ready. Kill ends it.
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

// Start starts it again after it was stopped or killed, and returns when it is ready.
func (p *Program) Start(ctx context.Context) (err error) {
	if p.proc, err = startProcess("kubeweir "+p.args[0], p.logFile, p.path, p.args...); err != nil {
		return err
	}
	return p.proc.await(ctx, func(context.Context) (bool, error) { return readyLine.Match(p.proc.log()), nil })
}

// Log is what the one that was started last has printed.
func (p *Program) Log() string { return string(p.proc.log()) }

// Stop asks it to end (SIGTERM) and waits while it drains.
func (p *Program) Stop(ctx context.Context) error { return p.proc.stop(ctx) }

// Kill ends it with SIGKILL and returns when it is gone.
func (p *Program) Kill() { p.proc.kill() }

// ReservePort reserves a loopback port, which stays free over restarts of what listens there, until release is called.
func ReservePort() (address string, release func(), err error) {
	p, err := reservePort()
	if err != nil {
		return "", nil, err
	}
	return p.addr(), p.release, nil
}
