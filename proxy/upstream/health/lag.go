package health

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heartbeatPeriod is the minimum time between two heartbeats. idleHeartbeat is the period while
	// no caller needs the lag, so that it is available at once.
	heartbeatPeriod = time.Second
	idleHeartbeat   = 5 * time.Second
	// heartbeatMemory is for how long a round trip counts.
	heartbeatMemory = 15 * time.Second
	// lagging is from which lag on it is held for drainTime, in which the feeds read what the link
	// held back.
	lagging   = time.Second
	drainTime = 250 * time.Millisecond
)

// lagMeter measures how late is what the upstream sends to the feeds. On a slow link bytes queue up
// for half a minute and more, and every one of them is a sign of life; a small request on a feed
// connection, the heartbeat, waits its turn behind them. One is in flight at a time.
//
// Data that a link held back arrives at once when it is free again, heartbeats and pings with it.
// The feeds need a moment to read it, during which the cache is as old as before. So less lag than
// before counts drainTime later.
//
// The link is measured, not the server: how far kube-apiserver's watch cache is behind its store
// cannot be known from outside, because events carry no time, and clocks of objects are other
// machines'. It is safe for concurrent use.
type lagMeter struct {
	now  clock
	send func(sent int64) // sends a heartbeat, and calls returned when it is over
	// unanswered returns for how long a ping is waited for.
	unanswered func() time.Duration

	// All times are in nanoseconds.
	inFlight atomic.Int64 // when the heartbeat that is waited for was sent, 0 for none
	took     atomic.Int64 // the last round trip
	held     atomic.Int64 // the lag that counts, 0 while nothing is late

	mu struct {
		sync.Mutex
		next  int64 // when the next heartbeat is due
		ended int64 // when the last one was answered
		fell  int64 // since when less than held is measured; 0: it is not
	}
}

// rtt returns the last round trip, or for how long a heartbeat is waited for if that is more.
func (m *lagMeter) rtt() time.Duration {
	took := m.took.Load()
	if sent := m.inFlight.Load(); sent != 0 {
		took = max(took, m.now.nanos()-sent)
	}
	return time.Duration(took)
}

// beat sends a heartbeat if one is due, and returns the round trip.
func (m *lagMeter) beat() time.Duration {
	if now := m.now.nanos(); m.begin(now) {
		m.send(now)
	}
	return m.rtt()
}

// begin reports whether a heartbeat is to be sent.
func (m *lagMeter) begin(now int64) bool {
	if m.inFlight.Load() != 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now < m.mu.next || !m.inFlight.CompareAndSwap(0, now) {
		return false
	}
	if now-m.mu.ended >= int64(heartbeatMemory) {
		m.took.Store(0)
	}
	m.mu.next = now + int64(heartbeatPeriod)
	return true
}

// returned records the end of the heartbeat that was sent at the given time. A failed one is
// ignored.
func (m *lagMeter) returned(sent int64, responded bool) {
	now := m.now.nanos()
	m.mu.Lock()
	defer m.mu.Unlock()
	if responded {
		m.mu.ended = now
		m.took.Store(now - sent)
	}
	m.inFlight.Store(0)
}

// measured returns the lag of the link.
func (m *lagMeter) measured() time.Duration { return max(m.rtt(), m.unanswered()) }

// current returns the lag that counts. It must be called now and then to notice changes.
func (m *lagMeter) current() time.Duration {
	measured := m.measured()
	if measured < lagging && m.held.Load() == 0 {
		return measured
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := time.Duration(m.held.Load()); measured < held {
		now := m.now.nanos()
		if m.mu.fell == 0 {
			m.mu.fell = now
		}
		if now-m.mu.fell < int64(drainTime) {
			return held
		}
	}
	m.mu.fell = 0
	if measured < lagging {
		m.held.Store(0)
	} else {
		m.held.Store(int64(measured))
	}
	return measured
}
