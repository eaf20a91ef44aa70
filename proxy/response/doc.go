// Package response has what rewriters of responses share: bounded reading of a response, its end,
// the headers that all who share a response may see, and the events of a watch one at a time. Source
// names where a response came from.
//
// Packages redact, consistency, explain and proxy use it. It imports package api only.
package response
