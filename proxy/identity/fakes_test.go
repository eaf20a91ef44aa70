package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client-go's typed clients are reviewers.
var (
	_ TokenReviewer  = authenticationv1client.TokenReviewInterface(nil)
	_ AccessReviewer = authorizationv1client.SubjectAccessReviewInterface(nil)
)

var errDown = errors.New("connection refused")

// fakeTokens answers TokenReviews. It is safe for concurrent use.
type fakeTokens struct {
	mu      sync.Mutex
	users   map[string]authenticationv1.UserInfo
	err     error
	reviews int
	wait    chan struct{} // reviews wait for it to be closed, when set
}

func (f *fakeTokens) Create(ctx context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	f.mu.Lock()
	f.reviews++
	wait := f.wait
	f.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	out := r.DeepCopy()
	if u, ok := f.users[r.Spec.Token]; ok {
		out.Status.Authenticated, out.Status.User = true, u
	} else {
		out.Status.Error = "invalid bearer token"
	}
	return out, nil
}

func (f *fakeTokens) set(token string, u authenticationv1.UserInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == nil {
		f.users = make(map[string]authenticationv1.UserInfo)
	}
	f.users[token] = u
}

func (f *fakeTokens) drop(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, token)
}

func (f *fakeTokens) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeTokens) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reviews
}

// fakeAccess answers SubjectAccessReviews by a function. It is safe for
// concurrent use.
type fakeAccess struct {
	mu      sync.Mutex
	allow   func(spec *authorizationv1.SubjectAccessReviewSpec) bool
	err     error
	reviews []authorizationv1.SubjectAccessReviewSpec
	latency time.Duration
	begun   func() // called when a review begins, without the lock
}

func (f *fakeAccess) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	f.mu.Lock()
	f.reviews = append(f.reviews, r.Spec)
	// Decided at the beginning: what changes while the answer travels is not in it.
	allowed, err, latency, begun := f.allow != nil && f.allow(&r.Spec), f.err, f.latency, f.begun
	f.mu.Unlock()
	if begun != nil {
		begun()
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	out := r.DeepCopy()
	out.Status.Allowed = allowed
	if allowed {
		out.Status.Reason = "RBAC: allowed"
	}
	return out, nil
}

func (f *fakeAccess) set(allow func(spec *authorizationv1.SubjectAccessReviewSpec) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allow = allow
}

func (f *fakeAccess) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeAccess) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reviews)
}

func (f *fakeAccess) specs() []authorizationv1.SubjectAccessReviewSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reviews)
}

func everything(*authorizationv1.SubjectAccessReviewSpec) bool { return true }
func nothing(*authorizationv1.SubjectAccessReviewSpec) bool    { return false }

// testCA issues client certificates.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t testing.TB, name string) *testCA {
	t.Helper()
	ca := &testCA{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert = sign(t, template, template, ca.key, ca.key)
	return ca
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client issues a certificate of one hour.
func (ca *testCA) client(subject pkix.Name) []*x509.Certificate {
	ca.t.Helper()
	return []*x509.Certificate{sign(ca.t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.cert, newKey(ca.t), ca.key)}
}

func (ca *testCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// file writes the CA to a file of its own.
func (ca *testCA) file() string {
	ca.t.Helper()
	path := filepath.Join(ca.t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, ca.pem(), 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return path
}
