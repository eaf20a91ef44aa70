package health

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heartbeatPeriod is the least time between two heartbeats, and idleHeartbeat how often one is
	// sent while nobody asks for the lag, so that it is known at once.
	heartbeatPeriod = time.Second
	idleHeartbeat   = 5 * time.Second
	// heartbeatMemory is for how long a round trip counts.
	heartbeatMemory = 15 * time.Second
	// maxHeartbeats is how many heartbeats are in flight at most.
	maxHeartbeats = 8
	// lagging is from which lag on it is held for drainTime, in which the feeds read what the link
	// held back.
	lagging   = time.Second
	drainTime = time.Second
)

// lagMeter measures how late is what the upstream sends to the feeds. On a slow link bytes queue up
// for half a minute and more, and every one of them is a sign of life; a small request on a feed
// connection, the heartbeat, waits its turn behind them. While one is in flight others follow it,
// because the queue may grow: the lag is known to an eighth of it.
//
// What a link held back arrives at once when it is free again, heartbeats and pings with it. The
// feeds need a moment to read it, during which the cache is as old as before. So less lag than
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
	next   atomic.Int64 // when the next heartbeat is due
	oldest atomic.Int64 // when the oldest that is in flight was sent, 0 for none
	took   atomic.Int64 // the last round trip
	held   atomic.Int64 // the lag that counts, 0 while nothing is late

	mu struct {
		sync.Mutex
		inFlight []int64 // when they were sent, ascending
		newest   int64   // when the one that took is of was sent
		ended    int64   // when the last one was answered
		fell     int64   // since when less than held is measured; 0: it is not
	}
}

// rtt returns the last round trip, or for how long a heartbeat is waited for if that is more.
func (m *lagMeter) rtt() time.Duration {
	took := m.took.Load()
	if oldest := m.oldest.Load(); oldest != 0 {
		took = max(took, m.now.nanos()-oldest)
	}
	return time.Duration(took)
}

// beat sends a heartbeat if one is due, and returns the round trip.
func (m *lagMeter) beat() time.Duration {
	if now := m.now.nanos(); now >= m.next.Load() && m.begin(now) {
		m.send(now)
	}
	return m.rtt()
}

// begin reports whether a heartbeat is to be sent: nobody else does so just now, and not too many
// are in flight.
func (m *lagMeter) begin(now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now < m.next.Load() || len(m.mu.inFlight) == maxHeartbeats {
		return false
	}
	if len(m.mu.inFlight) == 0 {
		if now-m.mu.ended >= int64(heartbeatMemory) {
			m.took.Store(0)
		}
		m.oldest.Store(now)
	}
	m.mu.inFlight = append(m.mu.inFlight, now)
	m.next.Store(now + max(int64(heartbeatPeriod), int64(m.rtt())/maxHeartbeats))
	return true
}

// returned records the end of the heartbeat that was sent then. One that failed says nothing.
func (m *lagMeter) returned(sent int64, answered bool) {
	now := m.now.nanos()
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := slices.BinarySearch(m.mu.inFlight, sent); ok {
		m.mu.inFlight = slices.Delete(m.mu.inFlight, i, i+1)
	}
	if answered {
		m.mu.ended = now
		if sent >= m.mu.newest {
			m.mu.newest = sent
			m.took.Store(now - sent)
		}
	}
	if len(m.mu.inFlight) > 0 {
		m.oldest.Store(m.mu.inFlight[0])
	} else {
		m.oldest.Store(0)
	}
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
