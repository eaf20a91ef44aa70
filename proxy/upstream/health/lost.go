package health

import (
	"sync/atomic"
	"time"
)

// Grace is how much later than on another connection a response may come on one that is not lost.
const Grace = time.Second

// Server is what is known of the connections to one API server: whether some of them are lost.
//
// A feed connection whose ping is not answered in time is lost if a probe, over a new connection, was
// sent after that ping and is answered, and the feed connection still is silent Grace later. If nothing
// else was heard meanwhile, all connections of that time are lost: idle ones are closed, and requests
// that still wait are canceled.
//
// A connection that was opened before the probe, and has brought nothing at all by the time that the
// answer to the probe is some time old, is lost as well: nothing was sent on it but a greeting.
type Server struct {
	// Probe probes the server. It does not wait.
	Probe   func()
	abandon func()
	// When the last probe that was answered began, and when it was answered; in nanoseconds of now.
	began, answered atomic.Int64
	lostBefore      atomic.Int64 // connections from before then are lost; in nanoseconds of now
}

// ProbeAnswered records that a probe which began then, over a connection that works, was answered.
func (s *Server) ProbeAnswered(began, now time.Time) {
	s.answered.Store(now.UnixNano())
	s.began.Store(began.UnixNano())
}

// overtook reports whether a probe that began after a connection was opened was answered so long ago
// that the connection should have brought something.
func (s *Server) overtook(opened, now time.Time) bool {
	return int64(now.Sub(opened)) > now.UnixNano()-s.began.Load() && now.UnixNano()-s.answered.Load() >= int64(Grace/4)
}

// isLost reports whether a request that began then, and still waits, is on a lost connection.
func (s *Server) isLost(began time.Time) bool { return began.UnixNano() < s.lostBefore.Load() }

// doubt is what the monitor knows of a silent feed connection.
type doubt struct {
	// last is since when it was silent when that was noticed, and alone tells whether it was the only
	// one.
	last  int64
	alone bool
	// outlived is since when it was silent when a probe proved that others work, which was at since.
	outlived int64
	since    time.Time
}

// closeLost closes the lost connections.
func (d *Detector) closeLost() {
	now, pings := d.now(), d.opts.PingInterval
	for _, conn := range d.conns.silent(now.Add(-pings - Grace)) {
		last, server, doubt := conn.heard.Load(), conn.server, &conn.doubt
		due := d.at(last).Add(pings + Grace)
		switch {
		case !conn.pings.Load(): // it may be silent
		case server.began.Load() < due.UnixNano():
			if doubt.last != last {
				doubt.last, doubt.alone = last, now.Sub(d.heard()) < pings
			}
			server.Probe()
		case doubt.outlived != last:
			doubt.outlived, doubt.since = last, d.at(server.answered.Load())
		case now.Sub(doubt.since) >= Grace:
			d.opts.Log.Info("a connection to the upstream is dead while others work, and is closed", "silence", now.Sub(due)+pings+Grace)
			_ = conn.Close()
			if server.abandon != nil && !doubt.alone {
				server.lostBefore.Store(server.began.Load())
				server.abandon()
			}
		}
	}
	for _, conn := range d.conns.mute() {
		if conn.server.overtook(conn.opened, now) {
			_ = conn.Close()
		}
	}
}

// mute returns the connections that have brought nothing yet, not even the answer to a greeting.
func (c *Conns) mute() (mute []*Conn) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn := range c.all {
		if conn.heard.Load() == 0 {
			mute = append(mute, conn)
		}
	}
	return mute
}
