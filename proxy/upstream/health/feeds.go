package health

import "time"

// Watch counts a watch that conn carries, nil if it is no feed connection. pings tells whether conn is
// pinged, and reads how the watch's body is read. end must be called when the watch ends.
func (c *Conns) Watch(conn *Conn, pings bool, reads *Reads) (end func()) {
	if conn == nil {
		return func() {}
	}
	conn.pings.Store(pings)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.feeds[conn] == nil {
		c.feeds[conn] = make(map[*Reads]struct{})
	}
	c.feeds[conn][reads] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.feeds[conn], reads); len(c.feeds[conn]) == 0 {
			delete(c.feeds, conn)
		}
	}
}

// Feeds returns how many connections carry watches.
func (c *Conns) Feeds() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.feeds)
}

// LastContact returns the least recent contact of the connections that carry watches, or that of the
// last feed connection if there is none. It is zero before the first.
func (c *Conns) LastContact() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.feeds) == 0 {
		return c.d.at(c.heard.Load())
	}
	oldest := int64(1<<63 - 1)
	for conn := range c.feeds {
		oldest = min(oldest, conn.heard.Load())
	}
	return c.d.at(oldest)
}

// CloseSilent closes the connections with watches to a server from which nothing was heard since then.
func (c *Conns) CloseSilent(server *Server, since time.Time) {
	for _, conn := range c.silent(since) {
		if conn.server == server {
			_ = conn.Close()
		}
	}
}

// silent returns the connections with watches from which nothing was heard since then.
func (c *Conns) silent(since time.Time) (silent []*Conn) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn := range c.feeds {
		if conn.heard.Load() < since.UnixNano() {
			silent = append(silent, conn)
		}
	}
	return silent
}

// drained reports whether all that had come by then, in nanoseconds of now, was read from the connections
// of watches and by the watches. A connection that is silent for longer than its pings allow may still
// bring something.
func (c *Conns) drained(then int64) bool {
	now, pings := c.d.now().UnixNano(), c.d.opts.PingInterval
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn, watches := range c.feeds {
		if conn.pings.Load() && now-conn.heard.Load() > int64(pings*3/2) || !conn.reads.waited(then, now) {
			return false
		}
		for reads := range watches {
			if !reads.waited(then, now) {
				return false
			}
		}
	}
	return true
}

// findQuiet finds the feed connection whose ping is waited for the longest.
func (c *Conns) findQuiet() {
	var quiet *Conn
	for _, conn := range c.silent(c.d.now().Add(-c.d.opts.PingInterval)) {
		if conn.pings.Load() && (quiet == nil || conn.heard.Load() < quiet.heard.Load()) {
			quiet = conn
		}
	}
	c.quiet.Store(quiet)
}

// unanswered returns for how long a ping is waited for. Pings are sent after PingInterval of silence.
func (c *Conns) unanswered() time.Duration {
	conn := c.quiet.Load()
	if conn == nil {
		return 0
	}
	return max(0, time.Duration(c.d.now().UnixNano()-conn.heard.Load())-c.d.opts.PingInterval)
}
