package faults

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/link"
)

// A fault is something that goes wrong for a while.
type fault struct {
	name string
	// what says it in a few words.
	what string
	// short faults are tried each time, the others with -faults.long.
	short bool
	// lasts is the time from its begin to its end, at least.
	lasts time.Duration
	// crowded: the way is open, and carries less than is asked for, so requests wait their turn.
	crowded bool
	// own: kube-apiserver answers meanwhile, and may say 500 itself.
	own bool
	// restarts: a kube-apiserver that was started again knows no changes from before that. A feed that missed some lists,
	// and of the changes of one object its watches get the last.
	restarts bool
	begin    func(context.Context, *scene) error
	end      func(context.Context, *scene) error // nil: it ends by itself
}

// linkFault is one of the way to kube-apiserver.
func linkFault(name, what string, short bool, lasts time.Duration, c link.Condition) fault {
	return fault{
		name: name, what: what, short: short, lasts: lasts,
		begin: func(_ context.Context, s *scene) error { return s.link.Set(c) },
		end:   func(_ context.Context, s *scene) error { return s.link.Set(link.Condition{}) },
	}
}

func crowded(f fault) fault {
	f.crowded = true
	return f
}

// modem is for how long bytes wait in a modem of 50 kbit/s that holds 32 KB.
const modem = 5 * time.Second

// linkFaults are those of the way.
func linkFaults() []fault {
	return []fault{
		linkFault("refused", "connections closed, new ones refused", true, 6*time.Second, link.Condition{Refuse: true}),
		linkFault("refused-long", "the same, longer than permissions are cached", false, 40*time.Second, link.Condition{Refuse: true}),
		{name: "dropped", what: "all connections closed once", short: true, lasts: time.Second,
			begin: func(_ context.Context, s *scene) error { s.link.Cut(); return nil }},
		linkFault("frozen", "no data in either direction, delivered later", true, 8*time.Second, link.Condition{HoldUp: true, HoldDown: true}),
		linkFault("frozen-long", "the same, longer", false, 40*time.Second, link.Condition{HoldUp: true, HoldDown: true}),
		linkFault("lost", "data lost in both directions, old connections stay silent", true, 8*time.Second, link.Condition{HoldUp: true, HoldDown: true, Lose: true}),
		linkFault("lost-long", "the same, longer", false, 40*time.Second, link.Condition{HoldUp: true, HoldDown: true, Lose: true}),
		linkFault("up-held", "no data to kube-apiserver", false, 12*time.Second, link.Condition{HoldUp: true}),
		linkFault("down-held", "no data from kube-apiserver", false, 12*time.Second, link.Condition{HoldDown: true}),
		{name: "half-closed", what: "all connections half-closed by kube-apiserver", lasts: time.Second,
			begin: func(_ context.Context, s *scene) error { s.link.HalfClose(); return nil }},
		linkFault("cut", "each connection closed after 20,000 bytes", true, 6*time.Second, link.Condition{CutAfter: 20_000}),
		linkFault("corrupted", "one bit of each chunk corrupted", true, 6*time.Second, link.Condition{Corrupt: true}),
		linkFault("delayed", "300 ms latency in each direction", false, 10*time.Second, link.Condition{Delay: 300 * time.Millisecond}),
		crowded(linkFault("throttled", "50 kbit/s in each direction", true, 10*time.Second, link.Condition{Rate: 50_000 / 8, Queue: modem})),
		crowded(linkFault("throttled-long", "the same, longer", false, 40*time.Second, link.Condition{Rate: 50_000 / 8, Queue: modem})),
	}
}

// serverFaults are those of kube-apiserver and etcd.
func serverFaults() []fault {
	signal := func(pid func(*scene) int, sig syscall.Signal) func(context.Context, *scene) error {
		return func(_ context.Context, s *scene) error { return syscall.Kill(pid(s), sig) }
	}
	apiserver := func(s *scene) int { return s.kube.APIServerPID() }
	etcd := func(s *scene) int { return s.kube.EtcdPID() }
	start := func(ctx context.Context, s *scene) error { return s.kube.StartAPIServer(ctx) }
	return []fault{
		{name: "server-killed", what: "kube-apiserver killed (SIGKILL) and restarted", short: true, lasts: 3 * time.Second,
			begin: func(_ context.Context, s *scene) error { return s.kube.KillAPIServer() }, end: start, restarts: true},
		{name: "server-killed-long", what: "the same, longer", lasts: 20 * time.Second,
			begin: func(_ context.Context, s *scene) error { return s.kube.KillAPIServer() }, end: start, restarts: true},
		{name: "server-frozen", what: "kube-apiserver frozen (SIGSTOP)", short: true, lasts: 6 * time.Second,
			begin: signal(apiserver, syscall.SIGSTOP), end: signal(apiserver, syscall.SIGCONT)},
		{name: "server-frozen-long", what: "the same, longer", lasts: 40 * time.Second,
			begin: signal(apiserver, syscall.SIGSTOP), end: signal(apiserver, syscall.SIGCONT)},
		{name: "server-stopped", what: "kube-apiserver shut down gracefully (SIGTERM) and restarted", lasts: 3 * time.Second,
			begin: func(ctx context.Context, s *scene) error { return s.kube.StopAPIServer(ctx) }, end: start, restarts: true},
		// How soon kube-apiserver finds etcd again is its own affair: it tries ever more seldom.
		{name: "etcd-killed", what: "etcd killed (SIGKILL) and restarted, until kube-apiserver accepts a write", lasts: 6 * time.Second, own: true,
			begin: func(_ context.Context, s *scene) error { return s.kube.KillEtcd() },
			end: func(ctx context.Context, s *scene) error {
				if err := s.kube.StartEtcd(ctx); err != nil {
					return err
				}
				return s.writer.ready(ctx)
			}},
		{name: "etcd-frozen", what: "etcd frozen (SIGSTOP)", lasts: 12 * time.Second, own: true,
			begin: signal(etcd, syscall.SIGSTOP), end: signal(etcd, syscall.SIGCONT)},
	}
}

// chosen are the faults to be tried.
func chosen(all []fault) []fault {
	var out []fault
	for _, f := range all {
		if f.short || *long {
			out = append(out, f)
		}
	}
	return out
}

// Whatever happens on the way to kube-apiserver, or to it, reads of the cache go on, and say how old they are; what
// needs it is refused soon and in a way that tells clients to come back; watches stay open and miss nothing, see nothing
// twice and nothing out of order; what was acknowledged is there, and 3 s after the fault all is as before.
func TestFaults(t *testing.T) {
	report := newReport(t)
	t.Run("link", func(t *testing.T) {
		t.Parallel()
		for _, f := range chosen(linkFaults()) {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				ctx := deadline(t)
				o := newScene(ctx, t, bed.Kube, "faults-"+f.name).play(ctx, t, &f)
				report.add(t, o)
				o.check(ctx, t)
			})
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		kube := startCluster(t)
		for _, f := range chosen(serverFaults()) {
			t.Run(f.name, func(t *testing.T) {
				ctx := deadline(t)
				o := newScene(ctx, t, kube, "faults-"+f.name).play(ctx, t, &f)
				report.add(t, o)
				o.check(ctx, t)
			})
		}
	})
}

// deadline bounds a test, so that one that hangs fails by itself and says where.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
