package app

import (
	"log/slog"
	"testing"

	"github.com/kubeweir/kubeweir/config"
)

// TestServiceAccountsExcluded checks that names of controllers exclude the one that runs by default.
func TestServiceAccountsExcluded(t *testing.T) {
	for _, tt := range []struct {
		controllers []string
		want        bool
	}{
		{nil, true},
		{[]string{"namespace"}, true},
		{[]string{"*"}, true},
		{[]string{"*", "-serviceaccount"}, false},
	} {
		c := config.DefaultStandalone()
		c.Listen, c.AdminListen, c.Controllers = "127.0.0.1:0", "", tt.controllers
		s, err := NewStandalone(t.Context(), c, StandaloneOptions{NoDataDir: true, UserAgent: "kubeweir/test", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.origin.accounts != nil; got != tt.want {
			t.Errorf("%v: %v", tt.controllers, got)
		}
		s.Close()
	}
}
