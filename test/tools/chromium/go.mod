// Chromium in the hands of a test, by chromedp: a module of its own, so that the graph of the main one stays as it is.
module github.com/kubeweir/kubeweir/test/tools/chromium

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
