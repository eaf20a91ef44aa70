package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/proxy/admin"
)

// newVerify is `kubeweir verify`.
func newVerify() *cobra.Command {
	var (
		address, output string
		resources       []string
	)
	c := &cobra.Command{
		Use:   "verify",
		Short: "Compare the cache of a running gateway with its cluster.",
		Long: `Requests a self-check from a gateway, or a standalone, on this machine. It compares each cached
collection with the cluster at one version, as the gateway does every --self-check-period: all
names and versions, and some objects byte by byte. The command prints the results, and exits with
code 1 if anything differs or could not be compared. The gateway lists collections that differ
again. In a cluster, run it in the gateway's pod with kubectl exec.`,
		Example: `  kubeweir verify
  kubeweir verify --resource pods,deployments.apps

  # A standalone.
  kubeweir verify --admin http://127.0.0.1:9443 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageErrorf("--output must be table or json, not %q", output)
			}
			target, err := verifyURL(address, resources)
			if err != nil {
				return err
			}
			found, err := requestVerify(c.Context(), target)
			if err != nil {
				return err
			}
			if err := printVerified(c.OutOrStdout(), found, output); err != nil {
				return err
			}
			return verdict(found, resources)
		},
	}
	c.Flags().StringVar(&address, "admin", "http://127.0.0.1:9444", "`URL` of the gateway's admin listener (--admin-listen)")
	c.Flags().StringSliceVar(&resources, "resource", nil, "plural `names` such as pods or deployments.apps (default all cached resources)")
	c.Flags().StringVarP(&output, "output", "o", "table", "`format`: table or json")
	annotateChoices(c, "output", "table", "json")
	return c
}

// verifyURL returns the URL that compares resources.
func verifyURL(address string, resources []string) (*url.URL, error) {
	u, err := adminURL(address)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = admin.VerifyPath, url.Values{"resource": resources}.Encode()
	return u, nil
}

// requestVerify requests a self-check, which may take long.
func requestVerify(ctx context.Context, u *url.URL) (*admin.Verified, error) {
	at := u.Scheme + "://" + u.Host
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, body, err := roundTrip(adminClient(), req)
	if err != nil {
		return nil, err
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	found := &admin.Verified{}
	switch {
	case resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusTooManyRequests:
		return nil, fmt.Errorf("the gateway at %s rejects the request: %.200s", at, text)
	case resp.StatusCode != http.StatusOK || media != "application/json" || json.Unmarshal(body, found) != nil || found.Collections == nil:
		return nil, fmt.Errorf("%s is not a kubeweir admin listener that supports verify: %s", at, resp.Status)
	}
	return found, nil
}

func printVerified(out io.Writer, found *admin.Verified, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(found)
	}
	if len(found.Collections) == 0 {
		return nil
	}
	clusters := false
	for i := range found.Collections {
		clusters = clusters || found.Collections[i].Cluster != ""
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cluster string, cells ...any) {
		if clusters {
			fmt.Fprintf(w, "%s\t", cmp.Or(cluster, "-"))
		}
		fmt.Fprintf(w, "%v\t%v\t%v\t%v\t%v\t%v\n", cells...)
	}
	row("CLUSTER", "COLLECTION", "ENCODING", "OBJECTS", "VERSION", "SAMPLED", "RESULT")
	for i := range found.Collections {
		c := &found.Collections[i]
		if c.Result == "unfinished" {
			row(c.Cluster, collectionName(c), c.Encoding, "-", "-", "-", c.Result+": "+c.Error)
			continue
		}
		row(c.Cluster, collectionName(c), c.Encoding, c.Objects, c.ResourceVersion, c.Sampled, c.Result)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return printDifferences(out, found)
}

// printDifferences prints a line for each object that differs.
func printDifferences(out io.Writer, found *admin.Verified) error {
	version := func(v uint64) string {
		if v == 0 {
			return "none"
		}
		return fmt.Sprint(v)
	}
	for i := range found.Collections {
		c := &found.Collections[i]
		for _, d := range c.Differences {
			if _, err := fmt.Fprintf(out, "%s %s: %s (cached: %s, upstream: %s)\n", collectionName(c), d.Key, d.Difference, version(d.Cached), version(d.Upstream)); err != nil {
				return err
			}
		}
		if more := c.Differing - len(c.Differences); more > 0 {
			if _, err := fmt.Fprintf(out, "%s: and %d more\n", collectionName(c), more); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectionName returns the plural and the group of a collection.
func collectionName(c *admin.VerifiedCollection) string {
	if c.Group == "" {
		return c.Resource
	}
	return c.Resource + "." + c.Group
}

// verdict returns an error unless all collections are equal.
func verdict(found *admin.Verified, resources []string) error {
	var differ, unfinished int
	for i := range found.Collections {
		switch found.Collections[i].Result {
		case "same":
		case "differs":
			differ++
		default:
			unfinished++
		}
	}
	n := len(found.Collections)
	switch {
	case n == 0 && len(resources) > 0:
		return fmt.Errorf("this gateway does not cache %s", strings.Join(resources, ", "))
	case n == 0:
		return errors.New("this gateway does not cache anything yet")
	case differ > 0:
		return fmt.Errorf("%d of %d collections differ from the upstream; the gateway lists them again, see its log", differ, n)
	case unfinished > 0:
		return fmt.Errorf("%d of %d collections could not be compared", unfinished, n)
	}
	return nil
}
