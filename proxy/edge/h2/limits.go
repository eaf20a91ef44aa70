package h2

// Limits of the useless work that a client may cause. Frames that cause no useful work
// (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, CONTINUATION, DATA that is empty or
// padding for the most part, unknown ones) take of a credit that comes back with time and
// with responses that are complete. A client whose credit is spent gets ENHANCE_YOUR_CALM, and
// its connection ends. A WINDOW_UPDATE for data that was sent is free. floods_test.go lists
// what servers died of, what bounds it here, and the tests.
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
