// Package browser watches as Headlamp does, in a real browser: a list and a WebSocket for each resource, in each tab,
// through a backend that adds the user's token. The browser is Debian's Chromium, driven by chromedp (test/tools/chromium).
// In the same browser every page of the console is looked at.
package browser
