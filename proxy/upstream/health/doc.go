// Package health is the failure detector of an upstream. Every response, every byte on the
// connections of the cache's feeds and every failed request feeds it. It answers:
//
//   - Is the upstream alive, and since when not? (Admit, Reachable)
//   - How late is what it sends? (Lag)
//   - Must this connection, or this request, be abandoned? (Await, IdleReader, Conns)
//
// A Detector is in one of four states. A sign of life (a response, or a byte on a feed connection,
// be it the answer to a ping) leads back to Reachable from each of them.
//
//	            no sign of life where one was due             no connection can be made,
//	            (failed request, late ping, silent feed)      or two probes in a row failed
//	Reachable ------------------------------------> Suspect -------------------------------> Unreachable
//	    ^                                              |                                          |
//	    |                                              | nothing heard for SilenceTimeout,        |
//	    |                                              | and probes hang                          |
//	    |                                              v                                          |
//	    +------------- a sign of life ------------- Silent <--------------------------------------+
//
// A refused connection leads to Unreachable from Reachable, too. While it is Suspect, Unreachable or
// Silent, the upstream is probed twice a second over new connections, whether or not a client
// waits. An Unreachable upstream is still sent requests, because they fail as fast as probes.
// Requests to a Silent one are rejected unsent, and those that wait for it end. A request that waits
// is itself a reason to probe after half of SilenceTimeout.
//
// A connection is lost if something on the way, such as a NAT gateway, forgot it: its peer is
// alive, and what is sent on it disappears. Evidence of that is a probe that was answered on a
// newer connection (see Server). A ping timeout counts bytes, not answers: on a slow link an answer
// waits behind data.
//
// Lag is the larger of a heartbeat's round trip on a feed connection and the time for which a ping
// is waited for. Less lag than before counts a second later, when the feeds have read what had come.
//
// Package pool makes connections that report to a Detector, package balance has a Server for each
// of several API servers, and package upstream owns the Detector. This package imports none of
// them.
package health
