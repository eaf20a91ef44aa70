package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
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

// guard tells who may look: who has the token or, where there is none, programs and browsers
// of this machine. Nothing is believed that a browser sends by itself, such as a cookie, so
// a page of elsewhere can make nobody's browser ask in their name; where there is no token,
// the headers tell of such a page.
type guard struct {
	file string // "" for no token
	log  *slog.Logger

	mu struct {
		sync.Mutex
		// token is what counts, unless there is none: bad says then what is wrong with the file.
		token   [sha256.Size]byte
		bad     error
		looked  time.Time   // when it was last looked whether the file has changed
		file    os.FileInfo // that the token is of, nil for none
		wrong   window      // tokens
		actions window
	}
}

const (
	// leastToken is how long a token must be: one that nobody guesses.
	leastToken = 16
	maxToken   = 4 << 10
	// tokenFresh is for how long the file is not looked at again.
	tokenFresh = time.Second
	// maxWrong is how many wrong tokens, and maxActions how many actions, are looked at in
	// boundedTime.
	maxWrong    = 20
	maxActions  = 10
	boundedTime = 10 * time.Second
)

// window counts what happens in boundedTime.
type window struct {
	began time.Time
	n     int
}

// full reports whether there were as many as max, and counts one more if not.
func (w *window) full(now time.Time, most int) bool {
	if now.Sub(w.began) >= boundedTime {
		w.began, w.n = now, 0
	}
	if w.n >= most {
		return true
	}
	w.n++
	return false
}

// open reads the token.
func (g *guard) open(file string, log *slog.Logger) error {
	if g.file, g.log = file, log; file == "" {
		return nil
	}
	g.refresh(time.Now())
	return g.mu.bad
}

// refresh reads the token if the file has changed. A file that has none, or is gone, means that no token is good: who takes
// it away wants nobody in. The caller holds mu, or nothing runs yet.
func (g *guard) refresh(now time.Time) {
	before, began := g.mu.bad, g.mu.looked.IsZero()
	g.mu.looked, g.mu.bad = now, g.read()
	switch {
	case g.mu.bad != nil:
		g.mu.file = nil // so that the same file counts when it is back
		if before == nil && !began {
			g.log.Warn("the console lets nobody in: its token cannot be read", "error", g.mu.bad)
		}
	case before != nil:
		g.log.Info("the console's token is read again")
	}
}

// read is refresh's.
func (g *guard) read() error {
	info, err := os.Stat(g.file)
	if err != nil {
		return err
	}
	// Another file in its place may be as old: where all files are given one time, or a copy keeps it.
	if is := g.mu.file; is != nil && os.SameFile(info, is) && info.ModTime().Equal(is.ModTime()) && info.Size() == is.Size() {
		return nil
	}
	if info.Size() > maxToken {
		return fmt.Errorf("%s is larger than %d bytes, which no token is", g.file, maxToken)
	}
	content, err := os.ReadFile(g.file)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(content))
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("%s must have one token, of at least %d characters", g.file, leastToken)
	}
	g.mu.token = sha256.Sum256([]byte(token))
	g.mu.file = info
	return nil
}

var (
	errNoToken = errors.New("the console wants the token of --console-token-file")
	errWrong   = errors.New("this is not the token of --console-token-file")
	errNobody  = errors.New("the console lets nobody in: --console-token-file has no token now; the log says why")
	errTooMany = errors.New("too many wrong tokens, try again in some seconds")
)

// check tells why a request is refused.
func (g *guard) check(r *http.Request) (status int, err error) {
	if g.file == "" {
		if why := elsewhere(r); why != "" {
			return http.StatusForbidden, errors.New(why)
		}
		return 0, nil
	}
	if why := foreign(r); why != "" {
		return http.StatusForbidden, errors.New(why)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, errNoToken
	}
	given, now := sha256.Sum256([]byte(strings.TrimSpace(token))), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.mu.looked) >= tokenFresh {
		g.refresh(now)
	}
	switch {
	case g.mu.bad != nil:
		return http.StatusUnauthorized, errNobody
	case subtle.ConstantTimeCompare(given[:], g.mu.token[:]) == 1:
		return 0, nil
	case g.mu.wrong.full(now, maxWrong):
		return http.StatusTooManyRequests, errTooMany
	}
	return http.StatusUnauthorized, errWrong
}

// mayAct counts an action, and reports whether there were few of late.
func (g *guard) mayAct() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.mu.actions.full(time.Now(), maxActions)
}

// elsewhere tells why a request is not of somebody on this machine, "" when it is.
func elsewhere(r *http.Request) string {
	const advice = "; others than programs and browsers of the gateway's machine, or pod, need --console-token-file"
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return "the request comes from another machine" + advice
	}
	// The proxy of a service mesh is in the same pod, and calls from its loopback interface in
	// the name of any other pod.
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Envoy-") {
			return "the request came through a proxy" + advice
		}
	}
	return authn.CheckLocal(r.Host, r.Header.Values)
}

// foreign tells why a request is of a web page of another address, "" when it is not.
func foreign(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return "the request comes from a web page of another address"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return "the request comes from a web page of another address"
		}
	}
	return ""
}

// guarded lets those to next who may look.
func (c *Console) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := c.guard.check(r)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		switch status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "10")
		}
		fail(w, status, err.Error())
	})
}
