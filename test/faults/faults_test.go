package faults

import (
	"context"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// A fault is a temporary failure.
type fault struct {
	name string
	// what describes the fault in a few words, for docs/faults.md.
	what string
	// short faults are injected in every run, the others only with -faults.long.
	short bool
	// lasts is the minimum duration of the fault.
	lasts time.Duration
	// crowded means that the link works, but has less bandwidth than the load needs, so requests
	// queue.
	crowded bool
	// own means that kube-apiserver keeps responding during the fault and may itself return 500.
	own bool
	// restarts means that kube-apiserver restarts. It then has no history from before the restart, so
	// a reflector that missed some changes lists again, and its watches receive only the last change
	// of each object.
	restarts bool
	begin    func(context.Context, *scene) error
	end      func(context.Context, *scene) error // nil if the fault ends by itself
}

// linkFault returns a fault of the network between the gateway and kube-apiserver.
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

// modem is how long data queues in a modem that sends 50 kbit/s and buffers 32 KB.
const modem = 5 * time.Second

// linkFaults returns the network faults.
func linkFaults() []fault {
	return []fault{
		linkFault("refused", "connections closed, new ones refused", true, 6*time.Second, link.Condition{Reject: true}),
		linkFault("refused-long", "the same, longer than permissions are cached", false, 40*time.Second, link.Condition{Reject: true}),
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

// serverFaults returns the faults of kube-apiserver and etcd.
func serverFaults() []fault {
	send := func(change func(pid int) error, pid func(*scene) int) func(context.Context, *scene) error {
		return func(_ context.Context, s *scene) error { return change(pid(s)) }
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
			begin: send(realkube.Pause, apiserver), end: send(realkube.Resume, apiserver)},
		{name: "server-frozen-long", what: "the same, longer", lasts: 40 * time.Second,
			begin: send(realkube.Pause, apiserver), end: send(realkube.Resume, apiserver)},
		{name: "server-stopped", what: "kube-apiserver shut down gracefully (SIGTERM) and restarted", lasts: 3 * time.Second,
			begin: func(ctx context.Context, s *scene) error { return s.kube.StopAPIServer(ctx) }, end: start, restarts: true},
		// The gateway cannot influence how soon kube-apiserver reconnects to etcd, which it retries with
		// exponential backoff.
		{name: "etcd-killed", what: "etcd killed (SIGKILL) and restarted, until kube-apiserver accepts a write", lasts: 6 * time.Second, own: true,
			begin: func(_ context.Context, s *scene) error { return s.kube.KillEtcd() },
			end: func(ctx context.Context, s *scene) error {
				if err := s.kube.StartEtcd(ctx); err != nil {
					return err
				}
				return s.writer.ready(ctx)
			}},
		{name: "etcd-frozen", what: "etcd frozen (SIGSTOP)", lasts: 12 * time.Second, own: true,
			begin: send(realkube.Pause, etcd), end: send(realkube.Resume, etcd)},
	}
}

// chosen returns the faults that this run injects.
func chosen(all []fault) []fault {
	var out []fault
	for _, f := range all {
		if f.short || *long {
			out = append(out, f)
		}
	}
	return out
}

// TestFaults checks what clients see during faults of kube-apiserver and of the network to it:
//
//   - Reads from the cache succeed, and stale responses are marked with their age.
//   - Requests that need kube-apiserver fail soon, with a status that makes clients retry.
//   - Watches stay open, without lost, repeated or reordered events.
//   - Acknowledged writes are not lost.
//   - Everything has recovered 3 s after the fault.
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

// deadline returns a context that bounds the test, so that a test that hangs fails and says where.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
