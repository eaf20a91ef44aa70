package app

import (
	"log/slog"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/config"
)

// TestAlwaysAllow checks that a user without roles may do everything with AlwaysAllow.
func TestAlwaysAllow(t *testing.T) {
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen, c.Shutdown.Drain = "127.0.0.1:0", "", 0
	c.Authorization.Mode, c.Authentication.Anonymous = config.AuthorizeAlways, false
	s, err := NewStandalone(t.Context(), c, StandaloneOptions{NoDataDir: true, UserAgent: "kubeweir/test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Cut()
	jane, err := s.Material().IssueClient("jane")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.Material().RESTConfig(s.URL(), jane))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"", "0"} {
		if _, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
			t.Error(err)
		}
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil || len(rules.Status.ResourceRules) != 1 || rules.Status.ResourceRules[0].Verbs[0] != "*" {
		t.Errorf("%v, %v", rules, err)
	}
}
