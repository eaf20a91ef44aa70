// Package admin serves the admin listener: metrics, health, profiles, and the comparison of the
// cache with the upstream. Package console adds its pages. Package serve starts it.
package admin
