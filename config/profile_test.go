package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestProfile: a profile changes defaults, and nothing that somebody has said.
func TestProfile(t *testing.T) {
	inPod(t)
	d := Default()
	for _, test := range []struct {
		name, file string
		args       []string
		mode       Mode
		idle       time.Duration
	}{
		{"none", "", nil, Strict, d.Limits.IdleCollectionTimeout},
		{"by a flag", "", []string{"--profile=dashboard"}, Session, time.Hour},
		{"by the file", "profile: dashboard\n", nil, Session, time.Hour},
		{"a flag says otherwise", "profile: dashboard\n", []string{"--consistency=strict"}, Strict, time.Hour},
		{"the file says otherwise", "limits: {idleCollectionTimeout: 5m}\n", []string{"--profile=dashboard"}, Session, 5 * time.Minute},
		{"a flag takes it back", "profile: dashboard\n", []string{"--profile=none"}, Strict, d.Limits.IdleCollectionTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				file := filepath.Join(t.TempDir(), "gateway.yaml")
				if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config="+file)
			}
			g, err := Parse(args)
			if err != nil {
				t.Fatal(err)
			}
			if dashboard := test.idle != d.Limits.IdleCollectionTimeout; (g.Coalesce == 500*time.Millisecond) != dashboard {
				t.Errorf("coalesce %v", g.Coalesce)
			} else if (g.WatchBytesPerSecond == 1<<20) != dashboard {
				t.Errorf("watchBytesPerSecond %v", g.WatchBytesPerSecond)
			} else if (g.Authorization.AllowedTTL == time.Minute) != dashboard {
				t.Errorf("authorization.allowedTTL %v", g.Authorization.AllowedTTL)
			}
			if g.Consistency.Default != test.mode || g.Limits.IdleCollectionTimeout != test.idle {
				t.Errorf("%s, %v", g.Consistency.Default, g.Limits.IdleCollectionTimeout)
			}
		})
	}
}

// TestProfileOfCluster: a cluster may have another than the rest, and what is said at the top
// level is said of it, too.
func TestProfileOfCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	const content = `
profile: dashboard
limits: {idleCollectionTimeout: 2m}
clusters:
- {name: a}
- {name: b, profile: none}
- {name: c, consistency: {default: strict}}
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := GatewayFlags().elsewhere("--config=" + file)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Mode{Session, Strict, Strict} {
		c := &g.Clusters[i]
		if c.Consistency.Default != want || c.Limits.IdleCollectionTimeout != 2*time.Minute {
			t.Errorf("%s: %s, %v", c.Name, c.Consistency.Default, c.Limits.IdleCollectionTimeout)
		}
	}
}

// elsewhere is what args make on another machine.
func (f *Flags[C]) elsewhere(args ...string) (C, error) {
	if err := f.set.Parse(args); err != nil {
		var none C
		return none, err
	}
	return f.LoadElsewhere()
}

func TestCompleteRule(t *testing.T) {
	for _, test := range []struct {
		rule     Rule
		want     Mode
		coalesce Window
	}{
		{Rule{}, "", 0},
		{Rule{Profile: NoProfile}, "", 0},
		{Rule{Profile: Dashboard}, Session, Window(500 * time.Millisecond)},
		{Rule{Profile: Dashboard, Consistency: Strict}, Strict, Window(500 * time.Millisecond)},
		{Rule{Profile: Dashboard, Coalesce: NoWindow}, Session, NoWindow},
	} {
		if got := test.rule.Complete(); got.Consistency != test.want || got.Coalesce != test.coalesce {
			t.Errorf("%+v: %q, %v", test.rule, got.Consistency, got.Coalesce)
		}
	}
	for isSet, want := range map[Bytes]Bytes{0: 1 << 20, 5000: 5000} {
		if got := (Rule{Profile: Dashboard, WatchBytesPerSecond: isSet}).Complete().WatchBytesPerSecond; got != want {
			t.Errorf("watchBytesPerSecond %v: %v", isSet, got)
		}
	}
}
