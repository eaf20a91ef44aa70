package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A console is the tab that shows the console.
type console struct {
	t      *testing.T // the current subtest
	b      *chromium
	folder string
}

// consoleTab is the tab's number.
const consoleTab = 1

func openConsole(t *testing.T, url string) *console {
	t.Helper()
	folder := *screenshots
	if folder == "" {
		folder = t.TempDir()
	}
	must(t, os.MkdirAll(folder, 0o755))
	c := &console{t: t, b: startChromium(t, "console.js"), folder: folder}
	c.b.open(consoleTab, "", url)
	if opened := <-c.b.ended; !opened.Opened {
		t.Fatalf("the console is not open: %+v", opened)
	}
	c.size(1280)
	return c
}

// run runs a subtest in the tab. It fails if the browser reports a problem.
func (c *console) run(name string, test func()) {
	whole := c.t
	if whole.Failed() {
		return // waiting for a page that cannot be opened would take long in each subtest
	}
	whole.Run(name, func(t *testing.T) {
		c.t = t
		defer func() { c.t = whole }()
		test()
		c.content()
	})
}

// content fails the test if the browser reports a problem other than those allowed.
func (c *console) content(allowed ...string) {
	c.t.Helper()
	for _, message := range c.b.errors() {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(message, a) }) {
			c.t.Errorf("the browser reports: %s", message)
		}
	}
}

// command sends a command of the DevTools protocol to the tab.
func (c *console) command(command string, params map[string]any, result any) {
	c.t.Helper()
	c.b.command(c.t, consoleTab, command, params, result)
}

// eval evaluates an expression in the page. It waits for promises.
func (c *console) eval(value any, expression string, args ...any) {
	c.t.Helper()
	for i, arg := range args {
		text, err := json.Marshal(arg)
		must(c.t, err)
		args[i] = text
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	c.command("Runtime.evaluate", map[string]any{
		"expression": fmt.Sprintf(expression, args...), "awaitPromise": true, "returnByValue": true,
	}, &r)
	if r.ExceptionDetails != nil {
		c.draw("failed")
		c.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	if value != nil {
		must(c.t, json.Unmarshal(r.Result.Value, value))
	}
}

// do runs statements in the page.
func (c *console) do(expression string, args ...any) {
	c.t.Helper()
	c.eval(nil, "(async () => {"+expression+"})()", args...)
}

// press presses a key.
func (c *console) press(key string) {
	c.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		down["text"] = "\r"
	}
	c.command("Input.dispatchKeyEvent", down, nil)
	down["type"] = "keyUp"
	c.command("Input.dispatchKeyEvent", down, nil)
}

// write types a text into the focused element.
func (c *console) write(text string) {
	c.t.Helper()
	c.command("Input.insertText", map[string]any{"text": text}, nil)
}

// size sets the width of the window in pixels.
func (c *console) size(width int) {
	c.t.Helper()
	c.command("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// scheme sets the preferred color scheme: light or dark.
func (c *console) scheme(scheme string) {
	c.t.Helper()
	c.command("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// drawnHeight limits the screenshot of a long page.
const drawnHeight = 4000

// draw saves a screenshot of the whole page.
func (c *console) draw(name string) {
	c.t.Helper()
	var size struct{ Width, Height int }
	c.eval(&size, `({width: innerWidth, height: Math.max(innerHeight, document.documentElement.scrollHeight)})`)
	var picture struct {
		Data []byte `json:"data"`
	}
	c.command("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": size.Width, "height": min(size.Height, drawnHeight), "scale": 1},
	}, &picture)
	must(c.t, os.WriteFile(filepath.Join(c.folder, strings.ReplaceAll(c.t.Name(), "/", "-")+"-"+name+".png"), picture.Data, 0o644))
}

// names returns the names of the console's pages.
func (c *console) names() (names []string) {
	c.t.Helper()
	c.eval(&names, `until('the list of pages', () => document.querySelectorAll('nav a').length > 5)
		.then(() => [...document.querySelectorAll('nav a')].map(a => a.hash.slice(2)))`)
	return names
}

// pages opens pages wide and narrow, light and dark.
func (c *console) pages(names []string) {
	titles := make(map[string]string)
	for _, name := range names {
		var problem, title string
		c.eval(&problem, `openPage(%s)`, name)
		if problem != "" {
			c.t.Errorf("%s: %s", name, problem)
		}
		c.eval(&title, `document.title`)
		if other, taken := titles[title]; taken {
			c.t.Errorf("%s and %s have the title %q", name, other, title)
		}
		titles[title] = name
		for _, width := range []int{1280, 360} {
			c.size(width)
			for _, scheme := range []string{"light", "dark"} {
				c.scheme(scheme)
				c.look(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			}
		}
		c.size(1280)
	}
}

// look checks the visible page and saves a screenshot.
func (c *console) look(name string) {
	c.t.Helper()
	var problems []string
	c.eval(&problems, `look()`)
	if !strings.HasSuffix(name, "-dark") { // the accessible names are the same in the dark scheme
		problems = append(problems, c.unnamed()...)
	}
	for _, problem := range problems {
		c.t.Errorf("%s: %s", name, problem)
	}
	c.draw(name)
}

// named are roles that users of assistive technology cannot use without an accessible name.
var named = []string{
	"button", "link", "textbox", "searchbox", "combobox", "radio", "checkbox", "image", "img", "table", "columnheader",
	"rowheader", "heading", "dialog", "navigation", "region", "form", "group", "RootWebArea",
}

// unnamed returns the elements without a name in the browser's accessibility tree.
func (c *console) unnamed() (problems []string) {
	c.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
		}
	}
	c.command("Accessibility.getFullAXTree", nil, &tree)
	for _, node := range tree.Nodes {
		if !node.Ignored && slices.Contains(named, node.Role.Value) && strings.TrimSpace(node.Name.Value) == "" {
			problems = append(problems, "no name has a "+node.Role.Value)
		}
	}
	if len(tree.Nodes) < 10 {
		problems = append(problems, "the accessibility tree is empty")
	}
	return problems
}
