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

What ` + "`kubeweir gateway`" + ` and ` + "`kubeweir standalone`" + ` can be told, by flags or by a YAML file (` + "`--config FILE`" + `).

- Flags win over the file, the file over the defaults. A file needs to have only what differs.
- The file is read strictly: an unknown or repeated field, or a value of another kind, is an error with its line, and
  nothing starts. A string that looks like a number must be in quotes.
- Durations are written as in Go (` + "`90s`, `10m`, `1h30m`" + `), sizes as Kubernetes quantities (` + "`64Mi`, `1Gi`" + `) or as a number of
  bytes. A flag takes a list with commas (` + "`--sidecar-hosts a,b`" + `) or given several times.
- Relative paths in the file are relative to the file, those of flags to the working directory.

` + "```sh" + `
kubeweir config defaults gateway > gateway.yaml   # every setting at its default, with comments
kubeweir config check gateway.yaml                # every mistake, with its line; exit code 2
` + "```" + `

[examples/gateway.yaml](../examples/gateway.yaml) and [examples/standalone.yaml](../examples/standalone.yaml) are files
to begin with.

## Reloading

A gateway reads its file again at SIGHUP, and within three seconds after the file changes. It may be a mounted ConfigMap or
Secret, which kubelet changes within two minutes, but not by ` + "`subPath`" + `. Flags keep winning over the file.

- **Atomic.** A file that is missing, not valid or cannot be applied changes nothing: one log line (` + "`configuration rejected, the settings in force stay`" + `)
  says where the mistake is, and ` + "`kubeweir_config_last_reload_successful`" + ` is 0.
- **Live settings** count for every request that arrives from then on. Watches, followed logs and exec sessions that the new
  rules reject or serve in another way end within two seconds (reason ` + "`policy-changed`" + `), so that their clients ask again. A
  rule's budgets keep what its users have spent, unless the rate or whom the rule matches has changed.
- **Other settings** need a restart. A log line names those that differ, ` + "`kubeweir_config_restart_settings`" + ` counts them, and
  the old values stay in force. In a gateway of several clusters, a setting that a cluster may have of its own needs no
  restart of the process: [that cluster alone is replaced](clusters.md#adding-changing-and-removing-clusters).
- ` + "`profile`" + ` needs a restart for ` + "`authorization.allowedTTL`" + ` and ` + "`limits.idleCollectionTimeout`" + `; its other defaults are live.
- Decisions that were remembered for outages before ` + "`offline.ttl`" + ` was shortened keep their old time.

` + "```sh" + `
kubeweir config check gateway.yaml && kill -HUP "$(pidof kubeweir)"
` + "```" + `
`

const referenceConsistency = `
A read of the most recent state (without resourceVersion: what kubectl and most dashboards send) is answered in one of
two modes:

- ` + "`strict`" + ` (linearizable): the cluster is asked each time. A list that the cache has the bytes of costs it names and
  versions alone; identical reads at the same time share one request.
- ` + "`session`" + `: the cache answers as soon as it holds every write that was made through this gateway, to anyone. Writes
  made elsewhere appear as fast as the feed brings them. It costs the cluster nothing. While the cluster has given no
  sign of life for ` + "`consistency.maxStaleness`" + `, such reads are strict.
  What the cluster serves, and its version, is answered as it answered the same user within ` + "`authorization.allowedTTL`" + `
  (5 minutes at most), until a definition or an APIService changes; without the right to watch those it is asked each time.

[Rules](#rules) choose between them request by request. A get or list with the header ` + "`Cache-Control: no-cache`" + ` is strict
whatever the mode; a read with a resourceVersion says itself how new its answer must be.

A session read may lack a write that went through another gateway, or straight to the cluster. Controllers that compare what
they read with what they wrote, such as those of kube-controller-manager since Kubernetes 1.36 (KEP-5647), would take that
for a stale cache and wait. Where ` + "`session`" + ` is the default, a rule keeps them strict:

` + "```yaml" + `
consistency:
  default: session
rules:
- userAgents: ["kube-controller-manager*"]
  consistency: strict
` + "```" + `
`

const referenceOffline = `
Who is served while no API server answers, and with what, is in [offline.md](offline.md). [Rules](#rules) choose request by
request.
`

const referenceRules = `
Rules say what holds for some requests instead of what holds for all. They are in the file only, at the top level or in a
cluster, which then has none of those of the top level. They are tried in order, for each setting: the first rule that
matches the request and has the setting decides; without one, the setting of all requests. A rule matches when each of its
lists that is not empty has a match:

| Field | Holds |
|---|---|
| ` + "`users`, `groups`, `userAgents`" + ` | names in which ` + "`*`" + ` stands for any run of characters; the user and the groups are those that the request acts as. A client says itself what its user agent is |
| ` + "`resources`" + ` | plural names, with their group unless it is the core group: ` + "`pods`, `deployments.apps`" + `; subresources belong to their resource, events of either group are the same, and bindings are pods' |

and says one or more of these:

| Field | What it is | Instead of |
|---|---|---|
| ` + "`profile`" + ` | ` + "`dashboard`" + `: what the rule does not say itself is as below | ` + "`profile`" + ` |
| ` + "`consistency`" + ` | ` + "`strict` or `session`" + ` | ` + "`consistency.default`" + ` |
| ` + "`offline`" + ` | ` + "`allow` or `deny`" + ` | ` + "`offline.default`" + ` |
| ` + "`readOnly`" + ` | ` + "`true`" + `: whatever is not surely a get, list or watch is 403, the self-reviews excepted, whatever the cluster allows; also of who impersonates others. ` + "`false`" + ` excepts from a later rule | |
| ` + "`selfReviews`" + ` | ` + "`forwarded` or `cached`" + ` | ` + "`authorization.selfReviews`" + ` |
| ` + "`view`" + ` | ` + "`redacted`" + `: objects are shown without what Secrets hold, what environment variables are set to, and copies of objects in annotations, and what cannot be shown so is 403, writes included ([redacted.md](redacted.md)); also of who impersonates others. ` + "`full`" + ` excepts from a later rule | |
| ` + "`coalesce`" + ` | a duration from ` + "`10ms` to `30s`" + `; ` + "`0`" + `: events never wait, for ` + "`watchBytesPerSecond`" + ` neither | ` + "`coalesce`" + ` |
| ` + "`watchBytesPerSecond`" + ` | a size of at least ` + "`1Ki`" + ` | ` + "`watchBytesPerSecond`" + ` |
| ` + "`visibleLists`" + ` | ` + "`true`" + `: a list or watch of all namespaces that the user may not make shows the namespaces that the user may list ([visible.md](visible.md)) instead of 403. ` + "`false`" + ` excepts from a later rule | |
| ` + "`drop`" + ` | ` + "`[metadata.managedFields]`" + `: what the cache answers, lists, gets and watches in every form, is sent without managedFields, a third of most objects. Writing such an object back does not change its managedFields. What the cluster itself answers (writes, aggregated APIs, what the cache does not have) has them. Nothing else can be dropped: the cluster would take it for deleted | |
| ` + "`upstreamRequestsPerSecond`" + `, ` + "`upstreamBytesPerSecond`" + ` | a number from 1 on; a size of at least ` + "`1Ki`" + `: what each user may cause at the cluster, averaged over ten seconds | |
| ` + "`overBudget`" + ` | ` + "`refuse`" + ` (429 with Retry-After) or ` + "`cached`" + ` (a most-recent read gets what the cache holds, and its age; all else 429): what becomes of a request that would cause more | |
| ` + "`block`" + ` | ` + "`true`" + `: all is 429. ` + "`false`" + ` excepts from a later rule | |

How watches coalesce is in [watches.md](watches.md), how budgets are paid in [usage.md](usage.md). The last four hold for who
sends a request, as whomever they act: ` + "`users`" + ` and ` + "`groups`" + ` are the sender's there.

With ` + "`readOnly`" + ` these are refused, too: exec, attach, port-forward and proxy, which are GETs over WebSockets; a GET of a
subresource that is not one of Kubernetes' own; an upgrade of anything but a watch; paths with escaped slashes, empty or dot
segments. Match by users or groups: by another user agent a client gets past it.

A profile is a set of defaults for a use, for all requests (` + "`--profile`" + `) or for those of a rule. What somebody says of a
setting counts, in the file or by a flag; clients need no change. ` + "`dashboard`" + `:

| Setting | is by default | because |
|---|---|---|
| ` + "`consistency.default`" + ` (in a rule ` + "`consistency`" + `) | ` + "`session`" + ` | a page reads what the last one read; who writes through the same gateway sees it at once |
| ` + "`authorization.selfReviews`" + ` (in a rule ` + "`selfReviews`" + `) | ` + "`cached`" + ` | a page asks dozens of times what its user may do, which decides only what it shows: what is done is decided anew |
| ` + "`authorization.allowedTTL`" + ` (not in a rule) | ` + "`1m`" + ` | a person reads a page for longer than 10 s, and the next one needs the same rights; where the gateway may watch RBAC objects, a change of one ends that at once |
| ` + "`coalesce`" + ` | ` + "`500ms`" + ` | nobody reads faster; what was quiet is seen at once |
| ` + "`watchBytesPerSecond`" + ` | ` + "`1Mi`" + ` | a tab that is sent more does nothing but parse it |
| ` + "`limits.idleCollectionTimeout`" + ` (not in a rule) | ` + "`1h`" + ` | who comes back to a tab does not wait for a full list |

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
	b.WriteString("\n## kubeweir gateway\n\nAnd what [both](#both) have. \"Live\" settings count as soon as a changed file was [reloaded](#reloading).\n")
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
			b.WriteString("\n[clusters.md](clusters.md) says how they are reached.\n\n")
			writeExample(&b, clustersPath)
		}
	}
	b.WriteString("\n## kubeweir standalone\n\nAnd what [both](#both) have.\n")
	for _, s := range standalone.sections {
		if !slices.ContainsFunc(shared, func(other section) bool { return s.title == other.title }) {
			writeSection(&b, s, false)
		}
	}
	b.WriteString("\n## Both\n\nThe column Change is about a gateway; standalone reads its file when it starts.\n")
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
	fmt.Fprintf(b, "\n### %s\n\n| In the file, flag | Default | Allowed | %sWhat it is, and what it costs |\n|---|---|---|---|%s\n", s.title, reload, strings.Repeat("---|", strings.Count(reload, "|")))
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

// TestExamples: the files in examples/ are good, and for the command that they say.
func TestExamples(t *testing.T) {
	for _, mode := range Modes() {
		file := "../examples/" + mode + ".yaml"
		checked, err := CheckFile(file, "", true)
		if err != nil || checked.Mode != mode || len(checked.Errors) > 0 {
			t.Errorf("%s: %+v, %v", file, checked, err)
		}
	}
}
