package health

import (
	"sync/atomic"
	"time"
)

// Patience is how much later than another connection one may answer that is alive.
const Patience = time.Second

// LostConns knows what is known of connections that died without a word: something on the way
// has forgotten them, while new ones work. Their pings would be waited for as if the
// upstream were slow, and what is sent on them is lost.
//
// A connection of feeds whose ping is not answered in time is dead when a probe, on a new
// connection, was sent after that ping and is answered, and it still is silent then. If
// nothing else was heard meanwhile, all connections of that time are as good as dead:
// idle ones are closed, and requests that still wait end.
//
// A connection that was opened before the probe, and has brought nothing at all when the
// answer to that is some time old, is dead as well: nothing was sent on it but a greeting.
type LostConns struct {
	// proven is when the last probe that was answered began, answered when that was; unix
	// nanoseconds.
	proven, answered atomic.Int64
	// since is from when on requests are on connections that live; unix nanoseconds.
	since atomic.Int64
	// Ask sends a probe, abandon lets requests go over new connections. Several servers are
	// looked at all the time; what connections they have besides those of feeds is judged by
	// that (apiServer.forget), and there is no abandon.
	Ask, abandon func()
}

// Prove records that a probe which began then is answered now.
func (d *LostConns) Prove(began, now time.Time) {
	d.answered.Store(now.UnixNano())
	d.proven.Store(began.UnixNano())
}

// overtook reports whether a probe that began after a connection was opened was answered so
// long ago that the connection should have brought something.
func (d *LostConns) overtook(opened, now time.Time) bool {
	return int64(now.Sub(opened)) > now.UnixNano()-d.proven.Load() && now.UnixNano()-d.answered.Load() >= int64(Patience/4)
}

// bury closes the feeds' connections that are dead. They are pinged after pings of
// silence.
func (l *Detector) bury(pings time.Duration) {
	now := l.now()
	for _, conn := range l.contacts.silent(now.Add(-pings - Patience)) {
		last, dead := conn.last.Load(), conn.dead
		due := l.contacts.At(last).Add(pings + Patience)
		switch {
		case !conn.pings.Load(): // it may be silent
		case dead.proven.Load() < due.UnixNano():
			if conn.suspected.Swap(last) != last {
				conn.alone.Store(now.Sub(l.heard()) < pings)
			}
			dead.Ask()
		case conn.outlived != last:
			conn.outlived, conn.since = last, l.contacts.At(dead.answered.Load())
		case now.Sub(conn.since) >= Patience:
			l.log.Info("a connection to the upstream is dead while others work, and is closed", "silence", now.Sub(due)+pings+Patience)
			_ = conn.Close()
			if dead.abandon != nil && !conn.alone.Load() {
				dead.since.Store(dead.proven.Load())
				dead.abandon()
			}
		}
	}
}

// outlived reports whether a request that began then, and still waits, is on a
// connection that is as good as dead.
func (l *Detector) outlived(began time.Time) bool {
	return began.UnixNano() < l.dead.since.Load()
}
