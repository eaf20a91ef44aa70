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

	// updateBytes is the number of received bytes per free WINDOW_UPDATE: clients that read in
	// small pieces send two for each piece.
	updateBytes = 256

	// padded is the number of padding bytes that cost as much as a frame, in a DATA frame with less
	// data than padding. Padding of larger frames is free.
	padded = 64

	// headerFrames is the maximum number of CONTINUATION frames of a header.
	headerFrames = 32

	// mostSettings is the maximum number of settings in a SETTINGS frame, as in x/net's server.
	// Each may affect every stream, and writers wait meanwhile.
	mostSettings = 100
)
