// Package explain describes how a request would be served, for operators.
//
// It executes the decisions of package route without side effects: it only looks at what a request
// would send, wait or pay for. Package proxy executes them for real, and hands its parts to Explain.
package explain
