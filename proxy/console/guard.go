package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authn"
)

// guard authorizes requests: by bearer token if one is configured, otherwise only from programs and
// browsers on this machine. It trusts nothing that a browser sends by itself, such as a cookie, so
// that a foreign web page cannot act through a user's browser. Without a token, headers that a page
// cannot change identify such a page.
type guard struct {
	file string // "" without a token
	log  *slog.Logger

	mu struct {
		sync.Mutex
		token       [sha256.Size]byte
		err         error       // why there is no valid token
		checkedAt   time.Time   // when the file was last checked for changes
		file        os.FileInfo // of the file that the token was read from, nil for none
		wrongTokens window
		actions     window
	}
}

const (
	// minToken is the minimum length of a token, so that nobody can guess it.
	minToken = 16
	maxToken = 4 << 10
	// tokenCheckPeriod is the minimum time between two checks of the token file.
	tokenCheckPeriod = time.Second
	// limitPeriod is the time in which clients may send maxWrongTokens wrong tokens, and perform
	// maxActions actions.
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

// open reads the token.
func (g *guard) open(file string, log *slog.Logger) error {
	if g.file, g.log = file, log; file == "" {
		return nil
	}
	g.mu.err = g.reload(time.Now())
	return g.mu.err
}

// check returns why a request is rejected, nil if it is allowed.
func (g *guard) check(r *http.Request) error {
	if g.file == "" {
		return checkLocal(r)
	}
	if isForeign(r) {
		return errForeignPage
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errNoToken
	}
	given, now := sha256.Sum256([]byte(strings.TrimSpace(token))), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.mu.checkedAt) >= tokenCheckPeriod {
		g.refresh(now)
	}
	switch {
	case g.mu.err != nil:
		return errInvalidFile
	case subtle.ConstantTimeCompare(given[:], g.mu.token[:]) == 1:
		return nil
	case g.mu.wrongTokens.isFull(now, maxWrongTokens):
		return errManyTokens
	}
	return errWrongToken
}

// checkAction counts an action, and rejects it if there were too many.
func (g *guard) checkAction() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.actions.isFull(time.Now(), maxActions) {
		return errManyActions
	}
	return nil
}

// refresh reads the token again if the file has changed. While the file is missing or invalid, no
// token is valid: an operator who removes the file wants to lock the console. The caller holds mu.
func (g *guard) refresh(now time.Time) {
	before := g.mu.err
	g.mu.err = g.reload(now)
	switch {
	case g.mu.err != nil && before == nil:
		g.log.Warn("console token unavailable, all clients are rejected", "error", g.mu.err)
	case g.mu.err == nil && before != nil:
		g.log.Info("console token available again")
	}
}

// reload reads the token if the file has changed since it was last read without an error.
func (g *guard) reload(now time.Time) error {
	before := g.mu.file
	g.mu.checkedAt, g.mu.file = now, nil
	info, err := os.Stat(g.file)
	if err != nil {
		return err
	}
	// Modification time and size do not suffice: another file in its place may have both, where all
	// files get one time, or a copy keeps the time.
	if before != nil && os.SameFile(info, before) && info.ModTime().Equal(before.ModTime()) && info.Size() == before.Size() {
		g.mu.file = before
		return nil
	}
	if info.Size() > maxToken {
		return fmt.Errorf("%s is too large for a token: the limit is %d bytes", g.file, maxToken)
	}
	content, err := os.ReadFile(g.file)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(content))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("%s must contain one token of at least %d characters", g.file, minToken)
	}
	g.mu.token, g.mu.file = sha256.Sum256([]byte(token)), info
	return nil
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

// window counts events in a period of limitPeriod.
type window struct {
	began time.Time
	n     int
}

// isFull reports whether there were limit events in the period, and counts one more if not.
func (w *window) isFull(now time.Time, limit int) bool {
	if now.Sub(w.began) >= limitPeriod {
		w.began, w.n = now, 0
	}
	if w.n >= limit {
		return true
	}
	w.n++
	return false
}
