package usage

// The CPU costs of requests in nanoseconds, after docs/bench (a get from the cache takes some 43 us
// there, a list 0.6 to 0.8 ns a byte, an event that is delivered 4 to 9 us), and a run of each kind
// beside kube-apiserver, over HTTP/2:
//
//	                        bytes     measured  estimated
//	get from the cache      6,382        52 us      45 us
//	list from the cache     1,904,080  2000 us    1563 us
//	/version, forwarded     345         165 us     170 us
//	/openapi/v2, forwarded  2,229,434  3000 us    3514 us
//	get, collapsed          6,382       330 us     288 us
//	list, revalidated       1,904,080  2500 us    1870 us
const (
	RequestPrice         = 40e3
	BytePrice            = 0.8
	ForwardedBytePrice   = 1.5   // it is received and sent
	CoalescedPrice       = 100e3 // more, of a request that is shared
	WritePrice           = 4.5e3
	UpstreamRequestPrice = 130e3 // of a request to the upstream
	UpstreamBytePrice    = 2     // of what is read, and not only passed on
)
