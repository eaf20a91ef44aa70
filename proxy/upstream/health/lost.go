package health

import "time"

// Grace is how much later than on another connection a response may come on one that is not lost.
const Grace = time.Second

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
//
// A feed connection whose ping is not answered in time is lost if a probe, over a new connection, was
// sent after that ping and is answered, and the feed connection still is silent Grace later. If nothing
// else was heard meanwhile, all connections of that time are lost: idle ones are closed, and requests
// that still wait are canceled.
//
// A connection that was opened before the probe, and has brought nothing at all by the time that the
// answer to the probe is some time old, is lost as well: nothing was sent on it but a greeting.
func (d *Detector) closeLost() {
	now, pings := d.now(), d.opts.PingInterval
	for _, conn := range d.conns.silent(now.Add(-pings - Grace)) {
		last, server, doubt := conn.heard.Load(), conn.server, &conn.doubt
		due := d.at(last).Add(pings + Grace)
		switch {
		case !conn.pings.Load(): // it may be silent
		case server.probeBegan.Load() < due.UnixNano():
			if doubt.last != last {
				doubt.last, doubt.alone = last, now.Sub(d.heard()) < pings
			}
			server.Probe()
		case doubt.outlived != last:
			doubt.outlived, doubt.since = last, d.at(server.probeAnswered.Load())
		case now.Sub(doubt.since) >= Grace:
			d.opts.Log.Info("a connection to the upstream is dead while others work, and is closed", "silence", now.Sub(due)+pings+Grace)
			_ = conn.Close()
			if server.abandon != nil && !doubt.alone {
				server.lostBefore.Store(server.probeBegan.Load())
				server.abandon()
			}
		}
	}
	for _, conn := range d.conns.mute() {
		if conn.server.isOvertaken(conn.opened, now) {
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
