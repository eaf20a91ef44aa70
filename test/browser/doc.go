// Package browser opens watches in a real browser in the way of Headlamp: a list and a WebSocket
// for each resource, in each tab, through a backend that adds the user's token. The browser is
// Debian's Chromium, driven by chromedp (test/tools/chromium). The package also checks every page
// of the console in the same browser.
package browser
