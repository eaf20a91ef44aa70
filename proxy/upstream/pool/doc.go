// Package pool makes the connections to an API server, and knows what may be sent again.
//
// A Factory makes a Pool for each Style of connection. Pools of HTTP/1.1 have one request at a time
// on a connection: short requests share a few of them one after the other, upgrades and probes get
// a new connection each. Pools of HTTP/2 share connections, which are pinged when they are silent.
// Connections with the gateway's credentials and anonymous ones never mix. A Rotator replaces the
// connections when a certificate file changes.
//
// A Transport bounds how often net/http repeats a request, and Unprocessed tells which failed
// writes certainly were not processed.
//
// Packages upstream and balance call it. It reports connections to package health, and imports
// nothing else of proxy.
package pool
