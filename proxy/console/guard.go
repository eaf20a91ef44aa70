package console

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/proxy/authn"
)

// guard authorizes requests: by bearer token if one is configured, otherwise only from programs and
// browsers on this machine. It trusts nothing that a browser sends by itself, such as a cookie, so
// that a foreign web page cannot act through a user's browser. Without a token, headers that a page
// cannot change identify such a page. It is safe for concurrent use.
type guard struct {
	file                 string // "" without a token
	log                  *slog.Logger
	invalid              atomic.Bool // the file held no token when it was last read
	wrongTokens, actions *rate.Limiter
}

const (
	// minToken is the minimum length of a token, so that nobody can guess it.
	minToken = 16
	maxToken = 4 << 10
	// Clients may send maxWrongTokens wrong tokens and perform maxActions actions at once, and as many
	// more in each limitPeriod.
	limitPeriod    = 10 * time.Second
	maxWrongTokens = 20
	maxActions     = 10
)

var (
	errNoToken      = &httpError{status: http.StatusUnauthorized, text: "the console requires the token in --console-token-file"}
	errWrongToken   = &httpError{status: http.StatusUnauthorized, text: "this is not the token in --console-token-file"}
	errInvalidFile  = &httpError{status: http.StatusUnauthorized, text: "the console rejects all clients: --console-token-file holds no valid token, see the log of kubeweir"}
	errManyTokens   = &httpError{http.StatusTooManyRequests, "too many wrong tokens, try again in some seconds", "10"}
	errManyActions  = &httpError{http.StatusTooManyRequests, fmt.Sprintf("too many actions: at most %d are allowed in %v", maxActions, limitPeriod), "10"}
	errForeignPage  = forbidden("the request comes from a web page of another address")
	errOtherMachine = forbidden("the request comes from another machine" + tokenHint)
	errProxied      = forbidden("the request came through a proxy" + tokenHint)
)

const tokenHint = "; only programs and browsers on the gateway's machine, or in its pod, are allowed without --console-token-file"

// open makes sure that there is a token.
func (g *guard) open(file string, log *slog.Logger) (err error) {
	g.file, g.log = file, log
	g.wrongTokens = rate.NewLimiter(rate.Every(limitPeriod/maxWrongTokens), maxWrongTokens)
	g.actions = rate.NewLimiter(rate.Every(limitPeriod/maxActions), maxActions)
	if file != "" {
		_, err = readToken(file)
	}
	return err
}

// check returns why a request is rejected, nil if it is allowed.
func (g *guard) check(r *http.Request) error {
	if g.file == "" {
		return checkLocal(r)
	}
	if isForeign(r) {
		return errForeignPage
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || given == "" {
		return errNoToken
	}
	// While the file is missing or invalid, no token is valid: an operator who removes the file wants
	// to lock the console.
	token, err := readToken(g.file)
	switch wasInvalid := g.invalid.Swap(err != nil); {
	case err != nil && !wasInvalid:
		g.log.Warn("console token unavailable, all clients are rejected", "error", err)
	case err == nil && wasInvalid:
		g.log.Info("console token available again")
	}
	switch {
	case err != nil:
		return errInvalidFile
	case isSame([]byte(strings.TrimSpace(given)), token):
		return nil // not limited, so that wrong tokens of others do not lock the operator out
	case !g.wrongTokens.Allow():
		return errManyTokens
	}
	return errWrongToken
}

// isSame compares tokens in a time that does not depend on them, not even on their length.
func isSame(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// readToken reads the token in a file.
func readToken(file string) ([]byte, error) {
	// A pipe has its content once, and opening one without a writer blocks.
	switch info, err := os.Stat(file); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s must be a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	switch token := bytes.TrimSpace(content); {
	case err != nil:
		return nil, err
	case len(content) > maxToken:
		return nil, fmt.Errorf("%s is too large for a token: the limit is %d bytes", file, maxToken)
	case len(token) < minToken || bytes.ContainsAny(token, " \t\r\n"):
		return nil, fmt.Errorf("%s must contain one token of at least %d characters", file, minToken)
	default:
		return token, nil
	}
}

// checkLocal rejects requests that are not from a program or browser on this machine.
func checkLocal(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return errOtherMachine
	}
	// The proxy of a service mesh is in the same pod, and connects over loopback on behalf of any
	// other pod.
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Envoy-") {
			return errProxied
		}
	}
	if why := authn.CheckLocal(r.Host, r.Header.Values); why != "" {
		return forbidden(why)
	}
	return nil
}

// isForeign reports whether a request is from a web page of another address.
func isForeign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	u, err := url.Parse(origin)
	return origin != "" && (err != nil || !strings.EqualFold(u.Host, r.Host))
}
