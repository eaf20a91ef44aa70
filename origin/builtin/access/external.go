package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/pkg/util/filesystem"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// Authentication configures authenticators that kube-apiserver has with the flags in the comments.
type Authentication struct {
	// ConfigFile is the path of an AuthenticationConfiguration, which is read again when it changes
	// (--authentication-config). "" for none.
	ConfigFile string
	// OIDC accepts the tokens of an issuer. It excludes ConfigFile.
	OIDC OIDC
	// Webhook reviews tokens that no other authenticator accepts.
	Webhook TokenWebhook
}

// OIDC accepts the tokens of an OpenID Connect issuer (--oidc-*). Without an IssuerURL it is off.
type OIDC struct {
	IssuerURL, ClientID, CAFile   string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	SigningAlgs                   []string
	// RequiredClaims are claims that a token must have, with their values.
	RequiredClaims map[string]string
}

// TokenWebhook reviews tokens by a TokenReview (--authentication-token-webhook-*). Without a
// ConfigFile, a kubeconfig, it is off.
type TokenWebhook struct {
	ConfigFile, Version string
	CacheTTL            time.Duration
}

// Authorization configures authorizers as kube-apiserver's flags in the comments do.
type Authorization struct {
	// Modes in their order (--authorization-mode).
	Modes []string
	// ConfigFile is the path of an AuthorizationConfiguration, which is read again when it changes
	// (--authorization-config). It replaces Modes and Webhook.
	ConfigFile string
	// Webhook is that of the mode Webhook (--authorization-webhook-*).
	Webhook AccessWebhook
}

// AccessWebhook reviews access by a SubjectAccessReview. ConfigFile is a kubeconfig.
type AccessWebhook struct {
	ConfigFile, Version            string
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// build returns the authorizer of kube-apiserver. anonymous says whether there are anonymous requests.
func (c *Authorization) build(ctx context.Context, f informers.SharedInformerFactory, anonymous bool) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	o := kubeoptions.NewBuiltInAuthorizationOptions()
	o.Modes, o.AuthorizationConfigurationFile = c.Modes, c.ConfigFile
	o.WebhookConfigFile, o.WebhookVersion = c.Webhook.ConfigFile, c.Webhook.Version
	o.WebhookCacheAuthorizedTTL, o.WebhookCacheUnauthorizedTTL = c.Webhook.AuthorizedTTL, c.Webhook.UnauthorizedTTL
	name := func(err error) error {
		switch {
		case c.ConfigFile != "":
			return flagError("authorization-config", c.ConfigFile, err)
		case c.Webhook.ConfigFile != "":
			return flagError("authorization-webhook-config-file", c.Webhook.ConfigFile, err)
		}
		return flagError("authorization-mode", strings.Join(c.Modes, ","), err)
	}
	built, err := o.ToAuthorizationConfig(f)
	if err != nil {
		return nil, nil, name(err)
	}
	// kube-apiserver rejects this only with --authorization-mode. The types of a file cannot change later.
	for _, a := range built.AuthorizationConfiguration.Authorizers {
		if anonymous && a.Type == "AlwaysAllow" {
			return nil, nil, name(errors.New("AlwaysAllow would allow everything to everybody; set --anonymous-auth=false"))
		}
	}
	all, rules, err := built.New(ctx, serverID)
	if err != nil {
		return nil, nil, name(err)
	}
	return all, rules, nil
}

// options returns the options of kube-apiserver.
func (c *Config) options() *kubeoptions.BuiltInAuthenticationOptions {
	a, o := &c.Authentication, kubeoptions.NewBuiltInAuthenticationOptions().WithAnonymous().WithOIDC().WithWebHook()
	o.Anonymous.Allow, o.Anonymous.FlagsSet = c.Anonymous, c.AnonymousIsSet
	o.AuthenticationConfigFile = a.ConfigFile
	if a.OIDC.IssuerURL != "" {
		*o.OIDC = kubeoptions.OIDCAuthenticationOptions{
			IssuerURL: a.OIDC.IssuerURL, ClientID: a.OIDC.ClientID, CAFile: a.OIDC.CAFile,
			UsernameClaim: a.OIDC.UsernameClaim, UsernamePrefix: a.OIDC.UsernamePrefix,
			GroupsClaim: a.OIDC.GroupsClaim, GroupsPrefix: a.OIDC.GroupsPrefix,
			SigningAlgs: a.OIDC.SigningAlgs, RequiredClaims: a.OIDC.RequiredClaims, FlagsSet: true,
		}
	}
	o.WebHook.ConfigFile, o.WebHook.Version, o.WebHook.CacheTTL = a.Webhook.ConfigFile, a.Webhook.Version, a.Webhook.CacheTTL
	o.WebHook.RetryBackoff = genericoptions.DefaultAuthWebhookRetryBackoff()
	return o
}

// FlagError says that the value of a flag, or the file that it names, is at fault.
type FlagError struct {
	Flag, Value string
	Err         error
}

// Error implements error. The library's errors have several lines or prefixes if there are several.
func (e *FlagError) Error() string {
	return fmt.Sprintf("--%s=%s: %s", e.Flag, e.Value, strings.Join(strings.Fields(e.Err.Error()), " "))
}

// Unwrap returns Err.
func (e *FlagError) Unwrap() error { return e.Err }

func flagError(flag, value string, err error) error { return &FlagError{flag, value, err} }

// external adds the authenticators of Config.Authentication to kube. It returns the options with
// which they are configured again, or nil if there is no file to be followed.
func (c *Config) external(kube *kubeauthenticator.Config) (*kubeoptions.BuiltInAuthenticationOptions, error) {
	a := &c.Authentication
	if reflect.DeepEqual(*a, Authentication{}) {
		return nil, nil
	}
	o := c.options()
	from, err := o.ToAuthenticationConfig()
	switch {
	case err == nil:
	case a.ConfigFile != "":
		return nil, flagError("authentication-config", a.ConfigFile, err)
	default:
		return nil, flagError("oidc-issuer-url", a.OIDC.IssuerURL, err)
	}
	kube.Anonymous = from.Anonymous
	kube.OIDCSigningAlgs, kube.AuthenticationConfigData = from.OIDCSigningAlgs, from.AuthenticationConfigData
	if a.ConfigFile != "" || a.OIDC.IssuerURL != "" {
		kube.AuthenticationConfig = from.AuthenticationConfig
	}
	kube.WebhookTokenAuthnConfigFile, kube.WebhookTokenAuthnVersion = from.WebhookTokenAuthnConfigFile, from.WebhookTokenAuthnVersion
	kube.WebhookTokenAuthnCacheTTL, kube.WebhookRetryBackoff = from.WebhookTokenAuthnCacheTTL, from.WebhookRetryBackoff
	kube.APIServerID = serverID
	if a.ConfigFile == "" {
		return nil, nil
	}
	return o, nil
}

// serverID identifies the server in the metrics of the library.
const serverID = "apiserver"

// authenticatorError returns the error of kubeauthenticator.Config.New with the flag that is its cause: the
// library does not say which authenticator failed.
func (c *Config) authenticatorError(err error) error {
	a := &c.Authentication
	if path := (*fs.PathError)(nil); errors.As(err, &path) && path.Path == c.TokenFile {
		return fmt.Errorf("authenticators: %w", err)
	}
	if file := a.Webhook.ConfigFile; file != "" {
		if _, wrong := webhookutil.LoadKubeconfig(file, nil); wrong != nil {
			return flagError("authentication-token-webhook-config-file", file, wrong)
		}
	}
	switch {
	case a.ConfigFile != "":
		return flagError("authentication-config", a.ConfigFile, err)
	case a.OIDC.IssuerURL != "":
		return flagError("oidc-issuer-url", a.OIDC.IssuerURL, err)
	}
	return fmt.Errorf("authenticators: %w", err)
}

// A follower configures the JWT authenticators again when the file of --authentication-config changes, as
// BuiltInAuthenticationOptions.ApplyTo does.
type follower struct {
	options *kubeoptions.BuiltInAuthenticationOptions
	update  func(context.Context, *apiserver.AuthenticationConfiguration) error
	// anonymous is the section of the file at the start, which must not change.
	anonymous *apiserver.AnonymousAuthConfig

	mu sync.Mutex
	// data is the content of the file that is in force, or that can never be. Guarded by mu.
	data string
}

// run follows the file until ctx ends.
func (f *follower) run(ctx context.Context) {
	metrics.RegisterMetrics()
	metrics.RecordAuthenticationConfigLastConfigInfo(serverID, f.data)
	filesystem.WatchUntil(ctx, time.Minute, f.options.AuthenticationConfigFile, func() { f.reload(ctx) },
		func(err error) { klog.ErrorS(err, "watching authentication config file") })
}

func (f *follower) reload(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.apply(ctx); err != nil {
		klog.ErrorS(err, "authentication config not reloaded", "file", f.options.AuthenticationConfigFile)
		metrics.RecordAuthenticationConfigAutomaticReloadFailure(serverID)
	}
}

func (f *follower) apply(ctx context.Context) error {
	content, err := os.ReadFile(f.options.AuthenticationConfigFile)
	if err != nil {
		return err
	}
	data := string(content)
	if data == f.data {
		return nil
	}
	next, err := f.options.ToAuthenticationConfig()
	switch {
	case err != nil:
		if path := (*fs.PathError)(nil); !errors.As(err, &path) {
			f.data = data // it never becomes valid
		}
		return err
	case !reflect.DeepEqual(f.anonymous, next.AuthenticationConfig.Anonymous):
		f.data = data
		return errors.New("its section anonymous has changed, which needs a restart")
	}
	limited, cancel := context.WithTimeout(ctx, kubeoptions.UpdateAuthenticationConfigTimeout)
	defer cancel()
	if err := f.update(limited, next.AuthenticationConfig); err != nil {
		return err // the issuer may respond later
	}
	f.data = next.AuthenticationConfigData
	klog.InfoS("reloaded authentication config", "file", f.options.AuthenticationConfigFile)
	metrics.RecordAuthenticationConfigAutomaticReloadSuccess(serverID, f.data)
	return nil
}
