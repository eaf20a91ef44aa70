package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

var screenshots = flag.String("screenshots", "", "the `folder` for screenshots of the console's pages; temporary by default")

// TestConsole checks every page of a gateway's console in Chromium, while clients with malicious
// names send requests.
func TestConsole(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	must(t, os.WriteFile(config, []byte("console: {actions: true}\nrules:\n- users: [\"team:*\"]\n  visibleLists: true\n"), 0o600))
	g := startGateway(t, "--config", config)
	load := startLoad(ctx, t, g)
	c := openConsole(t, g.AdminURL())
	c.run("pages", func() { c.pages(c.names()) })
	c.run("live figures move", c.live)
	c.run("names are text", c.hostile)
	c.run("numbers have units", c.units)
	c.run("by keyboard alone", c.keyboard)
	c.run("a request is explained", c.explained)
	c.run("a visible list is explained", func() { c.explainsVisible(ctx, g) })
	c.run("a watch is ended", func() { c.endsWatch(ctx, g) })
	c.run("a user agent is blocked and unblocked", func() { c.blocks(ctx, g) })
	load.stop()
	c.run("the stream is lost and comes back", func() { c.lost(ctx, g) })
}

// TestConsoleOfStandalone logs in with a token and checks the pages that only a standalone has.
func TestConsoleOfStandalone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("0123456789abcdef0123\n"), 0o600))
	s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Path: bed.Program, Dir: t.TempDir(), ExtraArgs: []string{"--console-token-file", token}})
	must(t, err)
	t.Cleanup(s.Close)
	c := openConsole(t, s.AdminURL())
	c.run("login", func() { c.logsIn("not the token at all", "0123456789abcdef0123") })
	c.run("pages", func() { c.pages([]string{"store"}) })
	c.run("types have objects", func() {
		c.do(`await openPage('store');
			const cells = (type) => [...document.querySelectorAll('tbody tr')].find(tr => tr.textContent.startsWith(type))?.cells;
			await until('the number of ClusterRoles', () => Number(cells('clusterroles')?.[1].textContent) > 0);`)
	})
}

// TestConsoleOfClusters selects one cluster of a gateway, another of which is unreachable.
func TestConsoleOfClusters(t *testing.T) {
	folder := t.TempDir()
	down, config := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "gateway.yaml")
	must(t, kube.WriteKubeconfig(down, "https://127.0.0.1:1", kube.ServingCAFile(), kube.AdminToken()))
	must(t, os.WriteFile(config, fmt.Appendf(nil, "clusters:\n- name: main\n- name: down\n  kubeconfig: %s\n", down), 0o600))
	g := startGateway(t, "--config", config)
	c := openConsole(t, g.AdminURL())
	c.run("pages", func() { c.pages([]string{"overview", "collections", "upstreams"}) })
	c.run("a cluster is chosen", c.chosen)
}

// live checks that the figures of the overview and the rows of collections update by themselves,
// and that the focus stays on its row.
func (c *console) live() {
	c.do(`await openPage('overview');
		await changes('requests', 3, () => figure('Requests').textContent);
		await changes('events', 2, () => figure('Events sent').textContent);
		await until('a hit ratio', () => /\d %%/.test(figure('Cache hit ratio').textContent));`)
	c.do(`await openPage('collections');
		const row = () => [...document.querySelectorAll('tbody tr')].find(tr => /^configmaps/.test(tr.textContent));
		await until('the collection of ConfigMaps', row);
		await changes('its version', 3, () => row().textContent);
		await until('its line', () => /now \S+\/s/.test(row().querySelector('svg.spark').getAttribute('aria-label')));`)
	c.do(`await openPage('watches');
		const button = await until('a watch', () => document.querySelector('tbody button'));
		const row = button.closest('tr');
		button.focus();
		await changes('its figures', 3, () => row.textContent);
		if (document.activeElement !== button || !row.isConnected) throw new Error('the focus is lost');`)
}

// hostile checks that names chosen by clients are shown literally and execute nothing.
func (c *console) hostile() {
	for _, page := range []string{"watches", "permissions", "clients"} {
		c.do(`await openPage(%[1]s);
			document.querySelector('input[value=userAgents]')?.click();
			await until('the bad name on '+%[1]s, () => document.querySelector('#page').textContent.includes(%[2]s));
			if (document.querySelector('#page :is(img, script, b[onclick])') || window.harmed) throw new Error('a name became an element');`, page, badName)
	}
}

// units checks that numbers are short and have units.
func (c *console) units() {
	for _, n := range []struct {
		function string
		argument any
		want     string
	}{
		{"bytes", 0, "0 B"}, {"bytes", 1023, "1.00 KiB"}, {"bytes", 64 << 20, "64.0 MiB"}, {"bytes", 5e15, "4,547 TiB"}, {"bytes", nil, "–"},
		{"byteRate", 2048, "2.00 KiB/s"}, {"rate", 0, "0/s"}, {"rate", 0.001, "< 0.01/s"}, {"rate", 12345.6, "12,346/s"},
		{"count", 1234567, "1,234,567"}, {"percent", 0.9999, "99.9 %"}, {"percent", 1, "100 %"}, {"percent", 0.00001, "< 0.1 %"},
		{"seconds", 0, "0 s"}, {"seconds", 0.0021, "2.10 ms"}, {"seconds", 59.9, "59 s"}, {"seconds", 60, "1 min"},
		{"seconds", 3725, "1 h 2 min"}, {"seconds", 90000, "1 d 1 h"}, {"time", "0001-01-01T00:00:00Z", "–"}, {"time", "nonsense", "–"},
	} {
		var got string
		c.eval(&got, `import('/console/format.js').then(f => f[%s](%s))`, n.function, n.argument)
		if got != n.want {
			c.t.Errorf("%s(%v): %q, want %q", n.function, n.argument, got, n.want)
		}
	}
}

// keyboard goes through a page with the Tab key. The first stop is the skip link; every control is
// reachable and shows its focus.
func (c *console) keyboard() {
	c.do(`await openPage('watches'); await until('a watch', () => document.querySelector('tbody button'));
		document.activeElement.blur(); reached.clear(); scrollTo(0, 0);`)
	c.command("Page.bringToFront", nil, nil)
	// The browser continues from the last focus, so the focus moves to the beginning of the page
	// first.
	c.do(`const first = document.createElement('span'); first.tabIndex = -1; document.body.prepend(first); first.focus(); first.remove();`)
	const most = 300
	for i := range most {
		c.press("Tab")
		var f struct {
			End     bool
			Problem string
		}
		c.eval(&f, `focused()`)
		if f.Problem != "" {
			c.t.Error(f.Problem)
		}
		if i == 0 {
			c.do(`if (document.activeElement.id !== 'skip') throw new Error('the first stop is '+document.activeElement.outerHTML);`)
		}
		if f.End {
			break
		}
	}
	var unreached []string
	c.eval(&unreached, `unreached(reached)`)
	for _, e := range unreached {
		c.t.Errorf("the Tab key does not reach %s", e)
	}
	c.size(360)
	c.do(`const menu = document.querySelector('#menu');
		await until('the menu, of a narrow window', () => menu.checkVisibility());
		menu.focus();`)
	c.press("Enter")
	c.do(`await until('the list of pages', () => document.querySelector('nav a').checkVisibility());`)
	c.look("menu-360")
	c.press("Enter")
	c.do(`await until('that the list of pages is put away', () => !document.querySelector('nav a').checkVisibility());`)
	c.size(1280)
	c.do(`document.querySelector('#skip').focus();`)
	c.press("Enter")
	c.do(`if (document.activeElement.tagName !== 'H1' || !location.hash.includes('watches')) throw new Error('the skip link leads elsewhere');
		document.querySelector('nav a[href="#/checks"]').focus();`)
	c.press("Enter")
	c.do(`await until('the focus at the new heading', () => document.activeElement.textContent === 'Self-check' && document.title.startsWith('Self-check'));`)
}

// explained explains a request, using only the keyboard.
func (c *console) explained() {
	c.do(`await openPage('explain'); document.querySelector('[name=path]').focus();`)
	c.write("/api/v1/configmaps?resourceVersion=0")
	c.press("Tab")
	c.write("jane")
	c.press("Enter")
	c.do(`await until('the explanation', () => document.querySelector('#page .answer'));`)
	c.look("answer-1280")
	c.do(`const path = document.querySelector('[name=path]'); path.value = 'no path'; path.form.requestSubmit();
		await until('what is wrong', () => document.querySelector('#page [role=alert]'));`)
	c.content("status of 400") // Chromium reports every such response
}

// explainsVisible explains a cluster-wide list by a user who may list only some namespaces.
func (c *console) explainsVisible(ctx context.Context, g *realkube.Gateway) {
	const team = "team:a"
	rights := clientOf(c.t, g, "rights/1", "").RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}
	_, err := rights.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	must(c.t, err)
	c.t.Cleanup(func() { _ = rights.ClusterRoles().Delete(context.WithoutCancel(ctx), "team-a", metav1.DeleteOptions{}) })
	for _, namespace := range []string{"default", "kube-public"} {
		_, err := rights.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "team-a"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: team}},
		}, metav1.CreateOptions{})
		must(c.t, err)
		c.t.Cleanup(func() {
			_ = rights.RoleBindings(namespace).Delete(context.WithoutCancel(ctx), "team-a", metav1.DeleteOptions{})
		})
	}
	lists := clientOf(c.t, g, "team/1", team).CoreV1().ConfigMaps("")
	must(c.t, testbed.Poll(ctx, 2*time.Minute, func() error {
		_, err := lists.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	}))
	c.do(`await openPage('explain');
		const form = document.querySelector('[name=path]').form;
		form.path.value = '/api/v1/configmaps?resourceVersion=0';
		form.user.value = %s;
		form.requestSubmit();
		await until('how many namespaces', () => document.querySelector('#page').textContent.includes('rules[0] shows the 2 namespaces'));`, team)
	c.look("visible-1280")
	c.size(360)
	c.look("visible-360")
	c.size(1280)
}

// blocks blocks a user agent from the table, using only the keyboard, and unblocks it.
func (c *console) blocks(ctx context.Context, g *realkube.Gateway) {
	const agent = "to-be-blocked/1"
	cfg := g.AdminConfig()
	cfg.UserAgent = agent
	client, err := rest.HTTPClientFor(cfg)
	must(c.t, err)
	responded := func(want int) {
		c.t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/version", nil)
		must(c.t, err)
		resp, err := client.Do(r)
		must(c.t, err)
		must(c.t, resp.Body.Close())
		if resp.StatusCode != want {
			c.t.Errorf("%s gets status %d, want %d", agent, resp.StatusCode, want)
		}
	}
	responded(200)
	c.do(`await openPage('clients');
		document.querySelector('input[value=userAgents]').click();
		const button = await until('the button of '+%[1]s, () => document.querySelector('button[aria-label="Block '+%[1]s+'"]'));
		button.focus();`, agent)
	c.confirm("block-1280")
	c.do(`await until('the row of the blocked', () => document.querySelector('button[aria-label="Unblock '+%s+'"]'));`, agent)
	responded(429)
	c.do(`const row = document.querySelector('button[aria-label="Unblock '+%[1]s+'"]').closest('tr');
		await until('that a request was refused', () => row.cells[3].textContent === '1');
		row.querySelector('button').focus();`, agent)
	c.look("blocked-1280")
	c.confirm("unblock-1280")
	c.do(`await until('the row to go', () => !document.querySelector('button[aria-label="Unblock '+%s+'"]'));`, agent)
	responded(200)
}

// confirm presses the focused button and the button of the confirmation that follows.
func (c *console) confirm(name string) {
	c.press("Enter")
	c.do(`await until('the question', () => document.querySelector('dialog')?.contains(document.activeElement));`)
	c.look(name)
	c.press("Tab")
	c.press("Enter")
}

// endsWatch ends a watch from the table, using only the keyboard.
func (c *console) endsWatch(ctx context.Context, g *realkube.Gateway) {
	const agent = "to-be-ended/1"
	w, err := clientOf(c.t, g, agent, "").CoreV1().Secrets("kube-system").Watch(ctx, metav1.ListOptions{})
	must(c.t, err)
	c.t.Cleanup(w.Stop)
	c.do(`await openPage('watches');
		const row = await until('the row of the watch', () => [...document.querySelectorAll('tbody tr')].find(tr => tr.textContent.includes(%s)));
		row.querySelector('button').focus();`, agent)
	c.confirm("question-1280")
	awaitEnd(ctx, c.t, w)
	c.do(`await until('the row to go', () => ![...document.querySelectorAll('tbody tr')].some(tr => tr.textContent.includes(%s)));
		await until('what came of it', () => document.querySelector('[role=alert]').textContent);
		if (document.activeElement === document.body) throw new Error('the focus is lost');`, agent)
}

// awaitEnd waits until a watch has ended.
func awaitEnd(ctx context.Context, t *testing.T, w watch.Interface) {
	t.Helper()
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
		case <-ctx.Done():
			t.Fatal("the watch has not ended")
		}
	}
}

// lost checks that the figures are marked as old while the gateway is down and update again
// afterwards.
func (c *console) lost(ctx context.Context, g *realkube.Gateway) {
	c.do(`await openPage('overview');`)
	g.Kill()
	c.do(`await until('that figures are old', () => document.querySelector('#banner').textContent.includes('lost'));`)
	c.look("lost-1280")
	must(c.t, g.Start(ctx))
	c.do(`[...document.querySelectorAll('#banner button')].find(b => b.textContent === 'Try now').click();
		await until('the end of that', () => !document.querySelector('#banner').textContent);
		await changes('requests', 2, () => figure('CPU').textContent);`)
	c.content("net::ERR_")
}

// chosen checks that rows name their cluster while all clusters are shown and do not while one is
// selected, and that other pages keep the selection.
func (c *console) chosen() {
	c.do(`await openPage('upstreams');
		await until('who does not answer', () => /down\s*Unreachable/.test(document.querySelector('#page').textContent));
		await openPage('collections');
		const columns = () => [...document.querySelectorAll('thead th')].map(th => th.textContent);
		await until('the column of clusters', () => columns().includes('Cluster') && document.querySelector('tbody tr'));
		const choice = document.querySelector('#cluster-choice');
		choice.focus();
		choice.value = 'main';
		choice.dispatchEvent(new Event('change'));
		await until('rows of one cluster', () => document.querySelector('tbody tr') && !columns().includes('Cluster'));
		if (!document.title.includes('main') || document.activeElement !== choice) throw new Error(document.title);
		if (!document.querySelector('nav a[href="#/watches?cluster=main"]')) throw new Error('other pages are of all clusters');`)
	c.look("one-1280")
}

// logsIn enters a wrong token and then the right one.
func (c *console) logsIn(wrong, right string) {
	c.do(`await until('the form', () => document.activeElement.type === 'password');`)
	c.look("form-1280")
	c.write(wrong)
	c.press("Enter")
	c.do(`await until('a word of it', () => document.querySelector('#page .bad-text') && document.activeElement.type === 'password');`)
	c.look("refused-1280")
	c.write(right)
	c.press("Enter")
	c.do(`await until('the pages', () => document.querySelectorAll('nav a').length);`)
	c.content("status of 401")
}
