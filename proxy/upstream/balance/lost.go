package balance

import (
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// A device on the way to a server, such as a router that was replaced, may forget connections: data
// sent on them disappears without an error, while new connections work. Checks detect this, because
// they use their own connection, which stays open.

// errLost cancels an attempt on a lost connection.
var errLost = fmt.Errorf("%w on a connection that there was", health.ErrSilent)

// replaceLost is called when a check that began then was not responded to on an open connection,
// and one that was sent at retried was, on a new connection. Requests use new connections from now
// on. Those that wait on an old one are canceled, and feed connections that were silent all the
// time are closed.
func (s *Server) replaceLost(began, retried time.Time) {
	s.log.Info("connections to an API server are dead while new ones work, and are replaced")
	pool.RenewAll(s.pools, s.log)
	s.cancel(errLost, func(a *attempt) bool { return a.waits() && (a.reused.Load() || a.began.Before(retried)) })
	s.set.Health.Conns().CloseSilent(&s.health, began)
}

// replaceDoubtful is called when a check that began then was responded to on a new connection,
// after one that was not on any. Requests use new connections from now on. Those that wait on old
// ones since before are sent again if they may be. The others, writes, may still be responded to;
// the pings of their connections tell.
func (s *Server) replaceDoubtful(began time.Time) {
	pool.RenewAll(s.pools, s.log)
	s.cancel(errLost, func(a *attempt) bool { return a.repeatable && a.waits() && a.began.Before(began) })
}
