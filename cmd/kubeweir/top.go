package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy/console"
)

// topOptions are the flags of `kubeweir top`.
type topOptions struct {
	admin, tokenFile, cluster string
	sort, clientSort, window  string
	output                    string
	interval                  time.Duration
	once                      bool
}

// The values of --sort and --sort-clients.
var (
	collectionOrders = []string{"name", "objects", "bytes", "watchers", "events", "age"}
	clientOrders     = []string{"requests", "bytes", "cpu", "watches", "upstreamRequests", "upstreamBytes"}
)

// minInterval is the shortest --interval: the console does not update its figures more often.
const minInterval = 500 * time.Millisecond

// newTop returns the command `kubeweir top`.
func newTop() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top",
		Short: "Show requests, cache hit ratio and clients of a running gateway or standalone.",
		Long: `Shows in a terminal what the console shows in a browser: requests by source, the load kept off
the cluster, usage by client, and the collections. It connects to the admin listener of a gateway,
or a standalone, on this machine; one on another machine requires --token-file (see
--console-token-file). In a cluster, run it in the gateway's pod with kubectl exec. Press q to
quit. If the output is not a terminal, it prints once.`,
		Example: `  kubeweir top
  kubeweir top --sort watchers --sort-clients upstreamRequests

  # Print the figures of a standalone once, for a script.
  kubeweir top --admin http://127.0.0.1:9443 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := newTopClient(&o)
			if err != nil {
				return err
			}
			return top.run(c.Context(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.admin, "admin", "http://127.0.0.1:9444", "`URL` of the admin listener (--admin-listen)")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the console's token, if it requires one")
	f.StringVar(&o.cluster, "cluster", "", "`name` of one of several clusters (default all clusters)")
	f.StringVar(&o.sort, "sort", "bytes", "`order` of the collections: "+strings.Join(collectionOrders, ", "))
	f.StringVar(&o.clientSort, "sort-clients", "requests", "`order` of the clients: "+strings.Join(clientOrders, ", "))
	f.StringVar(&o.window, "window", "1m", "`time` over which usage is counted: 1m or 1h")
	f.DurationVar(&o.interval, "interval", 2*time.Second, "`time` between updates")
	f.BoolVar(&o.once, "once", false, "print once and exit")
	f.StringVarP(&o.output, "output", "o", "table", "`format`: table, or json (printed once)")
	annotateChoices(c, "sort", collectionOrders...)
	annotateChoices(c, "sort-clients", clientOrders...)
	annotateChoices(c, "window", "1m", "1h")
	annotateChoices(c, "output", "table", "json")
	return c
}

// topClient fetches documents from a console.
type topClient struct {
	*topOptions
	base   *url.URL
	token  string
	client *http.Client
}

func newTopClient(o *topOptions) (*topClient, error) {
	for _, choice := range []struct {
		flag, value string
		choices     []string
	}{{"sort", o.sort, collectionOrders}, {"sort-clients", o.clientSort, clientOrders}, {"window", o.window, []string{"1m", "1h"}}, {"output", o.output, []string{"table", "json"}}} {
		if !slices.Contains(choice.choices, choice.value) {
			return nil, usageErrorf("--%s must be one of %s, not %q", choice.flag, strings.Join(choice.choices, ", "), choice.value)
		}
	}
	if o.interval < minInterval {
		return nil, usageErrorf("--interval must be at least %v, not %v", minInterval, o.interval)
	}
	base, err := adminURL(o.admin)
	if err != nil {
		return nil, err
	}
	t := &topClient{topOptions: o, base: base}
	if o.tokenFile != "" {
		content, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, usageErrorf("--token-file: %w", err)
		}
		if t.token = strings.TrimSpace(string(content)); t.token == "" || strings.ContainsAny(t.token, " \r\n\t") {
			return nil, usageErrorf("--token-file: %s must contain one token", o.tokenFile)
		}
	}
	t.client = adminClient()
	t.client.Timeout = 15 * time.Second
	return t, nil
}

// adminURL parses the URL of an admin listener.
func adminURL(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, usageErrorf("--admin must be a URL such as http://127.0.0.1:9444, not %q", address)
	}
	u.Path, u.RawQuery = "", ""
	return u, nil
}

// topFrame holds the documents shown at a time.
type topFrame struct {
	Session     console.Session     `json:"session"`
	Overview    console.Overview    `json:"overview"`
	Clients     console.Clients     `json:"clients"`
	Collections console.Collections `json:"collections"`
}

// fetch reads all documents of a frame.
func (t *topClient) fetch(ctx context.Context) (*topFrame, error) {
	frame, of := &topFrame{}, url.Values{}
	if t.cluster != "" {
		of.Set("cluster", t.cluster)
	}
	by := url.Values{"window": {t.window}, "sort": {t.clientSort}}
	for name, values := range of {
		by[name] = values
	}
	for _, one := range []struct {
		path  string
		query url.Values
		into  any
	}{{"session", nil, &frame.Session}, {"overview", of, &frame.Overview}, {"clients", by, &frame.Clients}, {"collections", of, &frame.Collections}} {
		if err := t.get(ctx, one.path, one.query, one.into); err != nil {
			return nil, err
		}
	}
	return frame, nil
}

// get reads a document.
func (t *topClient) get(ctx context.Context, name string, query url.Values, into any) error {
	u := *t.base
	u.Path, u.RawQuery = console.Path+"api/"+name, query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, body, err := roundTrip(t.client, req)
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var failed console.Failure
	switch {
	case media != "application/json":
		return fmt.Errorf("%s is not a kubeweir admin listener with --console: %s", t.base, printable(resp.Status))
	case resp.StatusCode == http.StatusUnauthorized && t.token == "":
		return fmt.Errorf("the gateway at %s requires a token: set --token-file", t.base)
	case resp.StatusCode != http.StatusOK && json.Unmarshal(body, &failed) == nil && failed.Error != "":
		return fmt.Errorf("the gateway at %s rejects the request: %.200s", t.base, printable(failed.Error))
	case resp.StatusCode != http.StatusOK, json.Unmarshal(body, into) != nil:
		return fmt.Errorf("%s is not a console that this kubeweir supports (%s)", t.base, printable(resp.Status))
	}
	return nil
}

// run shows the figures once, or until the user quits.
func (t *topClient) run(ctx context.Context, out io.Writer) error {
	frame, err := t.fetch(ctx)
	if err != nil {
		return err
	}
	screen := openScreen(out)
	if !t.once && t.output == "table" && screen != nil {
		return t.follow(ctx, screen, frame)
	}
	if frame.Overview.Requests.Rate == nil { // the console needs two samples for a rate
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errInterrupted
		}
		if frame, err = t.fetch(ctx); err != nil {
			return err
		}
	}
	if t.output == "json" {
		return writeJSON(out, frame)
	}
	width := defaultWidth
	if screen != nil {
		width, _ = screen.size()
	}
	_, err = io.WriteString(out, t.render(frame, width, 0))
	return err
}

// controls escapes the control characters that JSON does not have to escape but terminals interpret:
// DEL and C1 controls. In JSON they occur only in strings.
var controls = func() *strings.Replacer {
	var pairs []string
	for r := rune(0x7f); r <= 0x9f; r++ {
		pairs = append(pairs, string(r), fmt.Sprintf("\\u%04x", r))
	}
	return strings.NewReplacer(pairs...)
}()

// writeJSON writes a frame as JSON that is safe to print to a terminal, because clients choose the
// names in it.
func writeJSON(out io.Writer, frame *topFrame) error {
	text, err := json.MarshalIndent(frame, "", "  ")
	if err != nil {
		return err
	}
	_, err = controls.WriteString(out, string(text)+"\n")
	return err
}

// follow shows the figures until the user quits.
func (t *topClient) follow(ctx context.Context, s *screen, frame *topFrame) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	restore, err := s.open()
	if err != nil {
		return fmt.Errorf("opening the terminal: %w", err)
	}
	defer restore()
	contain.New(nil, nil).Go(nil, "background", func() { // until the process ends, if no key is pressed
		s.waitForKey("qQ\x03") // raw mode leaves Ctrl-C to the program
		quit()
	})
	ticker := time.NewTicker(t.interval)
	defer ticker.Stop()
	for {
		width, height := s.size()
		text := t.render(frame, width, height-1)
		if err != nil {
			text = cut(printable(err.Error()), width) + "\n" + text
		}
		if err := s.show(text); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		var next *topFrame
		if next, err = t.fetch(ctx); err == nil {
			frame = next
		}
	}
}
