package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/proxy/audit"
)

// TestActionsAreAudited: the audit log names the user, action and result, also of rejected actions,
// but not the body.
func TestActionsAreAudited(t *testing.T) {
	const token, secret = "0123456789abcdef", "hunter2"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 5000)
	for _, one := range []struct {
		name, body, user, action string
		token, actions           bool
		code                     int
		decision                 string
	}{
		{"end-watch", `{"id":"7","password":"` + secret + `"}`, "loopback", `end-watch: watch 7 of pods by "jane" ("kubectl")`, false, true, 200, "allow"},
		{"end-watch", `{"id":"9"}`, "loopback", `end-watch: watch 9`, false, true, 404, "allow"},
		{"end-watch", `{"id":"` + secret + `!"}`, "token", `end-watch`, true, true, 400, "allow"},
		{"block-user-agent", `{"userAgent":"k9s*"}`, "token", `block-user-agent: "k9s*" until it is unblocked`, true, true, 200, "allow"},
		{"block-user-agent", `{"userAgent":"a\u202eb\nc"}`, "loopback", `block-user-agent: "a\u202eb\nc" until it is unblocked`, false, true, 400, "allow"},
		{"block-user-agent", `{"userAgent":"` + long + `"}`, "loopback", `block-user-agent: "` + long[:maxShown] + `..." until it is unblocked`, false, true, 400, "allow"},
		{"unblock-user-agent", `{"userAgent":"none"}`, "loopback", `unblock-user-agent: "none"`, false, true, 404, "allow"},
		{"check", `{"resources":["pods","deployments.apps"]}`, "loopback", `check: the collections of "pods, deployments.apps"`, false, true, 200, "allow"},
		{"check", secret, "loopback", `check`, false, true, 400, "allow"},
		{"check", `{}`, "loopback", `check`, false, false, 403, "forbid"},
		{"check", "", "loopback", `check`, false, true, 403, "forbid"}, // without the header
	} {
		var out bytes.Buffer
		log, err := audit.Open(audit.Options{File: audit.File{Path: "-"}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, func(o *Options) {
			serving(clusterOf("", busy()))(o)
			o.Actions, o.Audit = one.actions, log
			if one.token {
				o.TokenFile = file
			}
		})
		w := request(c, "POST", "/console/api/actions/"+one.name, func(r *http.Request) {
			r.Body = readerOf(one.body)
			r.Header.Set("User-Agent", "curl/8")
			if one.body == "" {
				r.Header.Del(actionHeader)
			}
			if one.token {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		})
		c.Close()
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var e auditv1.Event
		if err := json.Unmarshal(out.Bytes(), &e); err != nil {
			t.Fatalf("%s %.100s: %v: %s", one.name, one.body, err, out.Bytes())
		}
		if w.Code != one.code || int(e.ResponseStatus.Code) != one.code || e.User.Username != "kubeweir:console:"+one.user || e.Annotations["kubeweir/action"] != one.action ||
			e.Annotations["authorization.k8s.io/decision"] != one.decision || e.Stage != auditv1.StageResponseComplete || e.AuditID == "" ||
			len(e.SourceIPs) != 1 || e.SourceIPs[0] != "127.0.0.1" || e.UserAgent != "curl/8" || e.RequestURI != "/console/api/actions/"+one.name || e.Verb != "post" {
			t.Errorf("%s %.100s: %d %s", one.name, one.body, w.Code, out.Bytes())
		}
		if strings.Contains(out.String(), secret) || strings.Contains(out.String(), token) {
			t.Errorf("a secret is in %s", out.Bytes())
		}
	}
}
