// Package consistency keeps reads through the gateway as new as their clients may expect.
//
// A Session tracks the writes that went through the gateway, so that a read in session mode waits
// until the cache holds them. A Coalescer serves reads of the most recent state that cannot be
// revalidated: identical requests that arrive while one is in flight share the next upstream request.
// Rejections remembers what the gateway itself may not read, so that such reads are forwarded at
// once.
//
// Package proxy decides which of them a read needs.
package consistency
