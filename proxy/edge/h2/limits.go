package h2

import (
	"time"

	"golang.org/x/net/http2"
)

// What a client may have the server do for nothing. Frames that ask for no work of use
// (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, CONTINUATION, DATA that is empty or
// padding for the most part, unknown ones) take of a credit that comes back with time and
// with requests that are answered. A client whose credit is spent is told to calm down, and
// its connection ends. A WINDOW_UPDATE for data that was sent is free.
//
// What HTTP/2 servers died of, what bounds it here, and the test (TestHTTP2...):
//
//	rapid reset                  resetCost, earned back by complete answers only;
//	                             reset requests count for MaxStreams        RapidReset, Floods
//	requests to be reset         resetCost                                MadeYouReset, Floods, Malformed
//	CONTINUATION flood           headerFrames, ReadHeaderTimeout for all    HeaderBombs, SlowHeader
//	header bombs                 headerLimit decoded, twice that encoded    HeaderBombs, IndexedBomb
//	cookies in crumbs            joined once                                Crumbs
//	growth of HPACK's table      headerTable; answers use none              HeaderBombs
//	SETTINGS, PING, PRIORITY     frameCost                                Floods
//	settings in one frame        mostSettings                               HeaderBombs
//	WINDOW_UPDATE                frameCost, or one for updateBytes sent   Floods, SmallReads
//	windows of 0 and 1 byte      WriteTimeout for half a MiB                ClosedWindow, OneByteWindows
//	answers taken in silence     a PING for each askAfter, answered in time  ClosedAndSilent
//	uploads that nobody reads    windows are small from largeAllowed on;
//	                             reset beyond the user's share              CrowdedUploads, UnreadUploads,
//	                                                                        HoarderPays
//	answers to closed windows,   waitingAllowed, shared by the users; strangers'
//	or not read                  strangersAllowed; reset beyond that        WindowsClosed, AnswersUnread
//	answers held back unread     nothing is from largeAllowed on            Hoard
//	reading on after an error    only what is queued is sent                Goodbye
//	answers that nobody reads    queueLimit, framesAtOnce; then no reading;
//	                             the end for strangersAllowed               PingsUnread, HeadUnread,
//	                                                                        StrangersHoard
//	events that nobody reads     queueLimit, WriteTimeout; others go on     UnreadEvents, WatchTooFarBehind
//	streams that never end       BodyIdleTimeout, PING and its timeout      BodyThatNeverComes, Silent
//	tunnels that nobody reads    the stream's window, for upgrades only; the
//	                             connection's beyond a share of
//	                             unreadAllowed; reset as uploads are        UpgradeWindows, UpgradesUnread
//	half-closed bodies           reset when answered; frameCost           HalfClosed, UnwantedData
//	DATA behind a reset          the stream's window, then resetCost      LateData, UnwantedData
//	frames that never end        ReadHeaderTimeout, from their beginning    SlowFrame, BusyConnection
//	more than the windows        errors of stream and connection            Overrun
//	bad padding, large frames    errors of the connection                   HeaderBombs
//	padding instead of data      frameCost, and one for padded bytes      Floods
//	requests behind GOAWAY       resetCost                                BehindGoAway
//	GOAWAY that nobody heeds     goAwayWait                                 GoAwayInTime
//	GOAWAY and no end after it   PingTimeout, lingerBytes                   GoAwaySlowReader
//	smuggled fields              malformed                                  Malformed
const (
	maxCredit       = 10_000
	creditPerSecond = 1_000
	frameCost       = 1  // taken by a frame
	resetCost       = 10 // by a stream that is reset or refused
	responseCredit  = 20 // given by a request that is answered to its end

	// updateBytes is for how many bytes that it got a client may send a WINDOW_UPDATE:
	// those that read in small pieces send two for each.
	updateBytes = 256

	// padded is for how many bytes of padding a DATA frame that holds less data pays as for
	// another frame. An upload whose frames are padded as well is free.
	padded = 64

	// headerFrames is the most CONTINUATION frames of a header.
	headerFrames = 32

	// mostSettings is the most that a SETTINGS frame may have, as x/net's server takes them: each
	// may concern every stream, and those who write to these wait meanwhile.
	mostSettings = 100
)

// charge takes n of the client's credit. It is for the goroutine that reads.
func (h *conn) charge(n int) error {
	if h.credit -= n; h.credit >= 0 {
		return nil
	}
	now := time.Now()
	passed := min(now.Sub(h.creditSince), time.Minute)
	h.creditSince = now
	h.mu.Lock()
	earned := min(h.earned, maxCredit)
	h.earned = 0
	h.mu.Unlock()
	h.credit = min(h.credit+int(passed.Seconds()*creditPerSecond)+earned, maxCredit)
	if h.credit < 0 {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
