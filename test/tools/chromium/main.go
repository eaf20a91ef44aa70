// Command chromium opens pages in a headless Chromium for a test. The test sends orders as lines of
// JSON on standard input, and the command writes the pages' messages to standard output. It ends,
// and Chromium with it, when its input ends. An order may also be a command of the DevTools
// protocol for a page, whose result is reported.
//
// The pages of one profile share connections and cookies, as the tabs of one user do. In every page
// the script of the flag -script runs before the page's own scripts; it sends messages to the test
// with window.say(text), and defines window.hear(text) to receive the test's.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// An order is a line from the test: a page to open, or a message or command for an open one.
type order struct {
	Page     int             `json:"page"`    // number of the page, chosen by the test
	Profile  string          `json:"profile"` // profile in which to open it
	Open     string          `json:"open"`    // URL to open
	Argument string          `json:"tell"`    // argument for window.hear
	Command  string          `json:"command"` // of the DevTools protocol, such as Page.captureScreenshot
	Params   json.RawMessage `json:"params"`  // of the command
}

// A report is a line to the test: a message from a page, that the page is open, the result of a
// command, or a problem in a page: errors and warnings of its console, violations of a content
// policy, resources that could not be loaded.
type report struct {
	Page   int             `json:"page"`
	Output string          `json:"said,omitempty"`
	Opened bool            `json:"opened,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Failed string          `json:"failed,omitempty"`
	Wrong  string          `json:"wrong,omitempty"`
}

const (
	// openTime bounds the start of Chromium, and opening a page.
	openTime = 2 * time.Minute
	// commandTime bounds a command. A script that waits for several conditions bounds each wait
	// itself, and reports which condition failed.
	commandTime = 10 * time.Minute
)

func main() {
	program := flag.String("chromium", "chromium", "the browser's program")
	script := flag.String("script", "", "script to run in every page before the page's own")
	flag.Parse()
	if err := run(*program, *script, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		os.Exit(1)
	}
}

// A browser is a running Chromium with its open pages.
type browser struct {
	script   string
	profiles map[string]context.Context // the first page of each profile
	pages    map[int]context.Context

	mu  sync.Mutex // guards out: pages report concurrently
	out *json.Encoder
}

// startAttempts bounds how often Chromium is started: it sometimes crashes before it has a page.
const startAttempts = 3

// start starts Chromium. The caller must call stop in any case; Chromium has ended when stop
// returns.
func start(program string) (ctx context.Context, stop func(), err error) {
	// --headless, --no-first-run, --disable-background-networking, --disable-sync, a new user data
	// folder and others are defaults.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// Pages of one site share processes, which saves memory when there are many.
		chromedp.Flag("renderer-process-limit", "2"),
		// No request leaves the machine.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stop = func() {
		_ = chromedp.Cancel(ctx) // waits for Chromium, so that nothing remains in its folder
		cancel()
		stopAllocator()
	}
	return ctx, stop, chromedp.Do(ctx)
}

func run(program, script string, in io.Reader, out io.Writer) error {
	ctx, stop, err := start(program)
	for attempt := 1; err != nil && attempt < startAttempts; attempt++ {
		fmt.Fprintf(os.Stderr, "chromium: attempt %d: start %s: %v\n", attempt, program, err)
		stop()
		ctx, stop, err = start(program)
	}
	defer stop()
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	b := &browser{
		script: script, out: json.NewEncoder(out),
		profiles: map[string]context.Context{"": ctx}, pages: map[int]context.Context{},
	}
	orders := json.NewDecoder(bufio.NewReader(in))
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if err := b.obey(ctx, o); err != nil {
			return fmt.Errorf("page %d: %w", o.Page, err)
		}
	}
}

// obey executes an order.
func (b *browser) obey(ctx context.Context, o order) error {
	if o.Open != "" {
		return b.open(ctx, o)
	}
	tab, ok := b.pages[o.Page]
	if !ok {
		return errors.New("the page is not open")
	}
	if o.Command != "" {
		b.send(command(tab, o))
		return nil
	}
	text, err := json.Marshal(o.Argument)
	if err != nil {
		return err
	}
	// The result of hear, even a promise, is not awaited.
	_, err = chromedp.Run(tab, chromedp.Evaluate[bool](fmt.Sprintf("hear(%s), true", text)))
	return err
}

// open opens a page in its profile. The page closes when ctx ends.
func (b *browser) open(ctx context.Context, o order) error {
	parent, options := b.profiles[o.Profile], []chromedp.ContextOption(nil)
	if parent == nil {
		parent, options = ctx, []chromedp.ContextOption{chromedp.WithNewBrowserContext()}
	}
	tab, _ := chromedp.NewContext(parent, options...)
	if b.profiles[o.Profile] == nil {
		b.profiles[o.Profile] = tab
	}
	b.pages[o.Page] = tab
	if err := chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *runtime.EventBindingCalled:
			b.send(report{Page: o.Page, Output: e.Payload})
		default:
			if wrong := problem(event); wrong != "" {
				b.send(report{Page: o.Page, Wrong: wrong})
			}
		}
	}); err != nil {
		return err
	}
	if _, err := chromedp.Call(tab, runtime.AddBinding, runtime.AddBindingParams{Name: "say"}); err != nil {
		return err
	}
	if _, err := chromedp.Call(tab, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: b.script}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(tab, openTime)
	defer cancel()
	if err := chromedp.Do(bounded, chromedp.Navigate(o.Open)); err != nil {
		return fmt.Errorf("open %s: %w", o.Open, err)
	}
	b.send(report{Page: o.Page, Opened: true})
	return nil
}

// command sends a command of the DevTools protocol to a page.
func command(tab context.Context, o order) report {
	r := report{Page: o.Page}
	var params any // omitting the parameters differs from null
	if len(o.Params) > 0 {
		params = o.Params
	}
	bounded, cancel := context.WithTimeout(tab, commandTime)
	defer cancel()
	if err := chromedp.FromContext(tab).Target.Call(bounded, o.Command, params, &r.Result); err != nil {
		r.Failed = fmt.Sprintf("%s: %v", o.Command, err)
	}
	return r
}

// problem returns the problem that an event of a page reports, or "".
func problem(event any) string {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		if e.ExceptionDetails.Exception == nil {
			return e.ExceptionDetails.Text
		}
		return e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
			return ""
		}
		var text string
		for _, arg := range e.Args {
			text += fmt.Sprintf(" %s%s", arg.Value, arg.Description)
		}
		return fmt.Sprintf("console.%s:%s", e.Type, text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			return fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	}
	return ""
}

// send writes a line to the test.
func (b *browser) send(r report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// If the test has ended, standard input is closed, too, so the error is not needed.
	_ = b.out.Encode(r)
}
