package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/config.md")

// TestReference: docs/config.md says what the settings are; -update writes it.
func TestReference(t *testing.T) {
	const file = "../docs/config.md"
	want := reference()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/config.md is not what the settings say (%v); run make docs", err)
	}
}

const referenceHead = `<!-- Written by make docs from the settings in config/. -->
# Configuration

All settings of ` + "`" + `kubeweir gateway` + "`" + ` and ` + "`" + `kubeweir standalone` + "`" + `. Set them by flags or in a YAML file (` + "`" + `--config FILE` + "`" + `).

- Flags override the file, and the file overrides the defaults. A file needs only the settings that differ from the defaults.
- The file is parsed strictly: unknown or repeated fields, and values of the wrong type, are errors with their line, and the program does
  not start. Quote strings that look like numbers.
- Durations use Go syntax (` + "`" + `90s` + "`" + `, ` + "`" + `10m` + "`" + `, ` + "`" + `1h30m` + "`" + `), sizes are Kubernetes quantities (` + "`" + `64Mi` + "`" + `, ` + "`" + `1Gi` + "`" + `) or numbers of bytes. A list flag takes
  commas (` + "`" + `--sidecar-hosts a,b` + "`" + `) or can be repeated.
- Relative paths in the file are relative to the file, those of flags to the working directory.

` + "```" + `sh
kubeweir config defaults gateway > gateway.yaml   # every setting at its default, with comments
kubeweir config check gateway.yaml                # every mistake, with its line; exit code 2
` + "```" + `

[examples/gateway.yaml](examples/gateway.yaml) and [examples/standalone.yaml](examples/standalone.yaml) are example files.

## Reloading

A gateway reads its file again at SIGHUP, and within three seconds after the file changes. The file can be in a mounted ConfigMap or
Secret, which kubelet updates within two minutes (but not with ` + "`" + `subPath` + "`" + `). Flags still override the file.

- **Atomic.** A file that is missing, invalid or cannot be applied changes nothing: one log line (` + "`" + `configuration rejected, the settings in force stay` + "`" + `)
  describes the mistake, and ` + "`" + `kubeweir_config_last_reload_successful` + "`" + ` is 0.
- **Live settings** apply to all new requests. Watches, followed logs and exec sessions that the new rules reject or serve differently end
  within two seconds (reason ` + "`" + `policy-changed` + "`" + `), so that clients reconnect. The budget of a rule keeps its state, unless its rate or its
  selectors have changed.
- **Other settings** need a restart. A log line names those that differ, ` + "`" + `kubeweir_config_restart_settings` + "`" + ` counts them, and the old values
  stay in force. In a gateway of several clusters, settings that a cluster can have itself need no restart of the process:
  [only that cluster is replaced](clusters.md#adding-changing-and-removing-clusters).
- ` + "`" + `profile` + "`" + ` needs a restart for ` + "`" + `authorization.allowedTTL` + "`" + ` and ` + "`" + `limits.idleCollectionTimeout` + "`" + `; its other defaults are live.
- Permissions and denials that were cached before ` + "`" + `offline.ttl` + "`" + ` was shortened keep their old time. Tokens follow the new one.

` + "```" + `sh
kubeweir config check gateway.yaml && kill -HUP "$(pidof kubeweir)"
` + "```" + `
`

const referenceConsistency = `
A most-recent read (without resourceVersion, as kubectl and most dashboards send) has one of two modes:

- ` + "`" + `strict` + "`" + ` (linearizable): each read involves the cluster. For a list whose objects are in the cache, the cluster returns only names and
  versions. Identical simultaneous reads are coalesced.
- ` + "`" + `session` + "`" + `: the cache responds as soon as it holds all writes made through this gateway, by any client. Other writes appear as soon as
  the feed delivers them. Such reads cost the cluster nothing. They become strict when the gateway had no contact with the cluster for
  ` + "`" + `consistency.maxStaleness` + "`" + `. Discovery and the version of the cluster are served as the same user received them within
  ` + "`" + `authorization.allowedTTL` + "`" + ` (at most 5 minutes), until a definition or an APIService changes; without permission to watch those, they are
  forwarded.

[Rules](#rules) select the mode per request. A get or list with the header ` + "`" + `Cache-Control: no-cache` + "`" + ` is always strict. For reads with a
resourceVersion, the resourceVersion defines how current the response must be.

A session read can miss a write that was made through another gateway or directly at the cluster. Controllers that compare their reads with
their writes, such as those of kube-controller-manager since Kubernetes 1.36 (KEP-5647), treat that as a stale cache and wait. If ` + "`" + `session` + "`" + ` is the
default, keep them strict with a rule:

` + "```" + `yaml
consistency:
  default: session
rules:
- userAgents: ["kube-controller-manager*"]
  consistency: strict
` + "```" + `
`

const referenceOffline = `
[offline.md](offline.md) describes which requests are served while no API server responds. [Rules](#rules) select the mode per request.
`

const referenceRules = `
Rules override settings for some requests. They are in the file only, at the top level or in a cluster; rules in a cluster replace those of
the top level. For each setting, the first matching rule that has it applies; if there is none, the general setting applies. A rule matches
if each of its non-empty lists matches:

| Field | Matches |
|---|---|
| ` + "`" + `users` + "`" + `, ` + "`" + `groups` + "`" + `, ` + "`" + `userAgents` + "`" + ` | names, in which ` + "`" + `*` + "`" + ` matches any characters; users and groups are the effective ones, after impersonation. Clients choose their user agent |
| ` + "`" + `resources` + "`" + ` | plural names, with the group unless it is the core group: ` + "`" + `pods` + "`" + `, ` + "`" + `deployments.apps` + "`" + `. Subresources belong to their resource, events of both groups are the same, and bindings belong to pods |

A rule has one or more of these settings:

| Field | Value and effect | Overrides |
|---|---|---|
| ` + "`" + `profile` + "`" + ` | ` + "`" + `dashboard` + "`" + `: the defaults below, for settings that the rule does not have itself | ` + "`" + `profile` + "`" + ` |
| ` + "`" + `consistency` + "`" + ` | ` + "`" + `strict` + "`" + ` or ` + "`" + `session` + "`" + ` | ` + "`" + `consistency.default` + "`" + ` |
| ` + "`" + `offline` + "`" + ` | ` + "`" + `allow` + "`" + ` or ` + "`" + `deny` + "`" + ` | ` + "`" + `offline.default` + "`" + ` |
| ` + "`" + `readOnly` + "`" + ` | ` + "`" + `true` + "`" + `: requests that are not certainly a get, list or watch get 403, except self-reviews, whatever the cluster allows; it also matches the impersonator. ` + "`" + `false` + "`" + ` makes an exception from a later rule | |
| ` + "`" + `selfReviews` + "`" + ` | ` + "`" + `forwarded` + "`" + ` or ` + "`" + `cached` + "`" + ` | ` + "`" + `authorization.selfReviews` + "`" + ` |
| ` + "`" + `view` + "`" + ` | ` + "`" + `redacted` + "`" + `: objects are shown without values of Secrets and environment variables and without copies of objects in annotations; requests whose response cannot be redacted, including writes, get 403 ([redacted.md](redacted.md)); it also matches the impersonator. ` + "`" + `full` + "`" + ` makes an exception from a later rule | |
| ` + "`" + `coalesce` + "`" + ` | a duration from ` + "`" + `10ms` + "`" + ` to ` + "`" + `30s` + "`" + `; ` + "`" + `0` + "`" + `: events are not delayed, not even for ` + "`" + `watchBytesPerSecond` + "`" + ` | ` + "`" + `coalesce` + "`" + ` |
| ` + "`" + `watchBytesPerSecond` + "`" + ` | a size of at least ` + "`" + `1Ki` + "`" + ` | ` + "`" + `watchBytesPerSecond` + "`" + ` |
| ` + "`" + `visibleLists` + "`" + ` | ` + "`" + `true` + "`" + `: cluster-wide lists and watches that the user may not make show the namespaces that the user may list ([visible.md](visible.md)) instead of a 403. ` + "`" + `false` + "`" + ` makes an exception from a later rule | |
| ` + "`" + `drop` + "`" + ` | ` + "`" + `[metadata.managedFields]` + "`" + `: lists, gets and watches from the cache omit managedFields (a third of most objects) in every form. Writing such an object back does not change its managedFields. Forwarded responses (writes, aggregated APIs, resources that are not cached) include them. No other field can be dropped, because the cluster would treat it as deleted | |
| ` + "`" + `upstreamRequestsPerSecond` + "`" + `, ` + "`" + `upstreamBytesPerSecond` + "`" + ` | a number of at least 1; a size of at least ` + "`" + `1Ki` + "`" + `: the load that each user may cause at the cluster, averaged over ten seconds | |
| ` + "`" + `overBudget` + "`" + ` | ` + "`" + `reject` + "`" + ` (429 with Retry-After) or ` + "`" + `cached` + "`" + ` (most-recent reads get the cached state with its age, other requests 429): the response to requests above the budget | |
| ` + "`" + `block` + "`" + ` | ` + "`" + `true` + "`" + `: all requests get 429. ` + "`" + `false` + "`" + ` makes an exception from a later rule | |

See [watches.md](watches.md) for coalesced watches and [usage.md](usage.md) for budgets. For the last four settings, ` + "`" + `users` + "`" + ` and ` + "`" + `groups` + "`" + ` match the
authenticated user, not the impersonated one.

` + "`" + `readOnly` + "`" + ` also rejects exec, attach, port-forward and proxy, which are GETs over WebSockets; GETs of subresources that Kubernetes does not
define; upgrades other than watches; and paths with escaped slashes, empty or dot segments. Match users or groups: a client can change its user
agent.

A profile is a set of defaults for a use case, for all requests (` + "`" + `--profile` + "`" + `) or for those of a rule. Explicit settings, in the file or by a flag,
override it. Clients need no change. ` + "`" + `dashboard` + "`" + `:

| Setting | Default | Reason |
|---|---|---|
| ` + "`" + `consistency.default` + "`" + ` (in a rule ` + "`" + `consistency` + "`" + `) | ` + "`" + `session` + "`" + ` | pages read the same data again and again; users of the same gateway see their writes at once |
| ` + "`" + `authorization.selfReviews` + "`" + ` (in a rule ` + "`" + `selfReviews` + "`" + `) | ` + "`" + `cached` + "`" + ` | a page requests dozens of self-reviews to decide what it shows; actions are authorized anew |
| ` + "`" + `authorization.allowedTTL` + "`" + ` (not in a rule) | ` + "`" + `1m` + "`" + ` | users read a page for longer than 10 s, and the next page needs the same permissions; if the gateway may watch RBAC objects, changes apply at once |
| ` + "`" + `coalesce` + "`" + ` | ` + "`" + `500ms` + "`" + ` | users do not read faster; the first event after an idle interval is sent at once |
| ` + "`" + `watchBytesPerSecond` + "`" + ` | ` + "`" + `1Mi` + "`" + ` | a browser tab that receives more only parses events |
| ` + "`" + `limits.idleCollectionTimeout` + "`" + ` (not in a rule) | ` + "`" + `1h` + "`" + ` | users who return to a tab do not wait for a full list |

`

// reference is docs/config.md.
func reference() []byte {
	gateway, standalone := Default().program(), DefaultStandalone().program()
	var b bytes.Buffer
	b.WriteString(referenceHead)
	both := func(s section) bool {
		return slices.ContainsFunc(standalone.sections, func(other section) bool {
			return reflect.DeepEqual(rows(s, false), rows(other, false)) && s.title == other.title
		})
	}
	var shared []section
	b.WriteString("\n## kubeweir gateway\n\nThe settings of [both programs](#settings-of-both-programs) apply, too. Changes of \"live\" settings apply on [reload](#reloading).\n")
	for _, s := range gateway.sections {
		if both(s) {
			shared = append(shared, s)
			continue
		}
		writeSection(&b, s, true)
		switch s.title {
		case "Consistency":
			b.WriteString(referenceConsistency)
		case "Offline":
			b.WriteString(referenceOffline)
		case "Rules":
			b.WriteString(referenceRules)
			writeExample(&b, rulesPath)
		}
		if s.title == "Several clusters" {
			b.WriteString("\nSee [clusters.md](clusters.md).\n\n")
			writeExample(&b, clustersPath)
		}
	}
	b.WriteString("\n## kubeweir standalone\n\nThe settings of [both programs](#settings-of-both-programs) apply, too.\n")
	for _, s := range standalone.sections {
		if !slices.ContainsFunc(shared, func(other section) bool { return s.title == other.title }) {
			writeSection(&b, s, false)
		}
	}
	b.WriteString("\n## Settings of both programs\n\nThe column Change applies to a gateway; a standalone reads its file only at startup.\n")
	for _, s := range shared {
		writeSection(&b, s, true)
	}
	return b.Bytes()
}

func writeExample(b *bytes.Buffer, setting string) {
	fmt.Fprintf(b, "```yaml\n%s:\n%s\n```\n", setting, strings.TrimSpace(examples[setting]))
}

// writeSection writes a section's table; of a gateway's it tells which settings are live.
func writeSection(b *bytes.Buffer, s section, gateway bool) {
	reload := ""
	if gateway {
		reload = "Change | "
	}
	fmt.Fprintf(b, "\n### %s\n\n| Key, flag | Default | Allowed | %sDescription |\n|---|---|---|---|%s\n", s.title, reload, strings.Repeat("---|", strings.Count(reload, "|")))
	for _, row := range rows(s, reload != "") {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// rows are the cells of a section's table.
func rows(s section, gateway bool) (all [][]string) {
	for _, s := range s.settings {
		field := reflect.ValueOf(s.value).Elem()
		name := "`" + s.path + "`"
		if s.flag != "" {
			name += "<br>`--" + s.flag + "`"
		}
		def := "none"
		if text := getText(field); text != "" && s.flag != "" {
			def = "`" + text + "`"
		}
		allowed := s.allowed()
		if allowed == "" {
			allowed = kind(&s)
		}
		row := []string{name, def, allowed}
		if gateway {
			row = append(row, change(s.path))
		}
		all = append(all, append(row, strings.ReplaceAll(s.text(), "|", `\|`)))
	}
	return all
}

// change returns "live" or "restart", whichever a gateway needs to take over a changed setting.
func change(path string) string {
	if Live(path) || path == clustersPath {
		return "live"
	}
	return "restart"
}

// kind says what a value without bounds is.
func kind(s *setting) string {
	switch reflect.TypeOf(s.value).Elem().Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		switch s.path {
		case rulesPath:
			return "rules, see below"
		case clustersPath:
			return "clusters, see below"
		}
		return "list of " + s.placeholder()
	}
	return s.placeholder()
}

// TestExamples: the files in docs/examples/ are good, and for the command that they say.
func TestExamples(t *testing.T) {
	for _, mode := range Modes() {
		file := "../docs/examples/" + mode + ".yaml"
		checked, err := CheckFile(file, "", true)
		if err != nil || checked.Mode != mode || len(checked.Errors) > 0 {
			t.Errorf("%s: %+v, %v", file, checked, err)
		}
	}
}
