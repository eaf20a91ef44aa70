//go:build !unix

package edge

// canWriteNow says whether a socket can be written to without waiting.
const canWriteNow = false

func writeNow(int, []byte) (n int, again bool, err error) { panic("not reached") }
