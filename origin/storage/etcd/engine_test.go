package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func TestOpenUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	_ = l.Close()
	_, err = Open(t.Context(), Options{Endpoints: []string{endpoint}, DialTimeout: 300 * time.Millisecond})
	if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("open: %v, want ErrUnavailable that names %s", err, endpoint)
	}
	if _, err := Open(t.Context(), Options{}); err == nil {
		t.Error("opened without endpoints")
	}
}

func TestOpenOldEtcd(t *testing.T) {
	for version, fine := range map[string]bool{
		"3.6.8": true, "3.6.0-rc.1": true, "3.7.0": true, "4.0.0": true, "3.5.13": true, "3.5.12": false, "3.4.31": true, "3.4.30": false, "3.3.27": false, "nonsense": false,
	} {
		t.Run(version, func(t *testing.T) {
			f := startFake(t, nil)
			f.version = version
			e, err := Open(t.Context(), Options{Endpoints: []string{f.url}})
			if (err == nil) != fine {
				t.Errorf("open: %v", err)
			}
			if err == nil {
				_ = e.Close()
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want error // nil: one that is none of the storage package's
	}{
		"compacted":         {rpctypes.ErrGRPCCompacted, storage.ErrCompacted},
		"no space":          {rpctypes.ErrGRPCNoSpace, storage.ErrUnavailable},
		"no leader":         {rpctypes.ErrGRPCNoLeader, storage.ErrUnavailable},
		"timeout":           {rpctypes.ErrGRPCTimeout, storage.ErrUnavailable},
		"too many requests": {rpctypes.ErrGRPCRequestTooManyRequests, storage.ErrUnavailable},
		"corrupt":           {rpctypes.ErrGRPCCorrupt, storage.ErrUnavailable},
		"unknown":           {status.Error(codes.Unknown, "?"), storage.ErrUnavailable},
		"not permitted":     {rpctypes.ErrGRPCPermissionDenied, nil},
		"too large":         {rpctypes.ErrGRPCRequestTooLarge, storage.ErrTooLarge},
		"too large to read": {status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3000000 vs. 2097152)"), storage.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			e := f.open(t, nil)
			f.set(func() {
				f.rangeErr = tc.err
				f.txn = func(*pb.TxnRequest) (*pb.TxnResponse, error) { return nil, tc.err }
			})
			_, rangeErr := e.Range(t.Context(), storage.RangeOptions{Prefix: "/a/"})
			_, putErr := e.Put(t.Context(), "/a/b", nil, storage.Precondition{}, 0)
			_, deleteErr := e.Delete(t.Context(), "/a/b", storage.Precondition{Revision: 1})
			for _, err := range []error{rangeErr, putErr, deleteErr} {
				if tc.want != nil && !errors.Is(err, tc.want) || err == nil || tc.want == nil && errors.Is(err, storage.ErrUnavailable) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if errors.Is(err, storage.ErrUnavailable) && !strings.Contains(err.Error(), f.url) {
					t.Errorf("%v does not name %s", err, f.url)
				}
			}
		})
	}
}

// TestCurrentRevisionIsShared checks that concurrent calls share requests, but never a request that
// started before the call.
func TestCurrentRevisionIsShared(t *testing.T) {
	f := startFake(t, nil)
	e := f.open(t, nil)
	f.mu.Lock() // requests wait
	before := len(f.ranges)
	const calls = 50
	results := make(chan uint64, calls)
	for range calls {
		go func() {
			rev, err := e.CurrentRevision(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- rev
		}()
	}
	f.revision = 200
	f.mu.Unlock()
	for range calls {
		if rev := <-results; rev != 200 {
			t.Errorf("revision %d", rev)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.ranges) - before; n > calls/2 {
		t.Errorf("%d requests for %d calls", n, calls)
	}
}

// TestSlowPages checks that the engine requests smaller pages from an etcd that is slow to return a
// page, and does not treat it as unresponsive.
func TestSlowPages(t *testing.T) {
	const keys = 500
	f := startFake(t, nil)
	e := f.open(t, nil)
	e.requestTimeout = 300 * time.Millisecond
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	f.set(func() {
		f.rangeOf = func(r *pb.RangeRequest) *pb.RangeResponse {
			if r.Limit > 100 {
				<-stop // large values over a slow link
			}
			resp := &pb.RangeResponse{Header: header(100), Count: keys}
			first := sort.Search(keys, func(i int) bool { return fmt.Sprintf("/k/%03d", i) >= string(r.Key) })
			for i := first; i < keys && int64(len(resp.Kvs)) < r.Limit; i++ {
				resp.Kvs = append(resp.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/k/%03d", i), ModRevision: 50})
			}
			resp.More = first+len(resp.Kvs) < keys
			return resp
		}
	})
	res, err := e.Range(t.Context(), storage.RangeOptions{Prefix: "/k/"})
	if err != nil || len(res.KVs) != keys {
		t.Errorf("%d keys, %v", len(res.KVs), err)
	}
}

// TestRangeStream: a range comes in parts, or in pages where etcd cannot stream it; what ends early is an error.
func TestRangeStream(t *testing.T) {
	part := func(last bool, keys ...string) *pb.RangeStreamResponse {
		r := &pb.RangeResponse{}
		for _, key := range keys {
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: []byte(key), ModRevision: 50})
		}
		if last {
			r.Header, r.Count = header(99), 3
		}
		return &pb.RangeStreamResponse{RangeResponse: r}
	}
	for name, test := range map[string]struct {
		stream  func(pb.KV_RangeStreamServer) error
		from    string // of the keys
		err     error
		streams int // for two ranges
	}{
		"streamed": {func(s pb.KV_RangeStreamServer) error {
			return errors.Join(s.Send(part(false, "stream/a", "stream/b")), s.Send(part(true, "stream/c")))
		}, "stream", nil, 2},
		"unknown": {nil, "pages", nil, 1},
		"stalled": {func(s pb.KV_RangeStreamServer) error {
			err := s.Send(part(false, "stream/a"))
			<-s.Context().Done()
			return err
		}, "pages", nil, 2},
		"compacted": {func(s pb.KV_RangeStreamServer) error {
			if err := s.Send(part(false, "stream/a")); err != nil {
				return err
			}
			return rpctypes.ErrGRPCCompacted
		}, "", storage.ErrCompacted, 2},
		"unavailable": {func(pb.KV_RangeStreamServer) error { return rpctypes.ErrGRPCNoLeader }, "pages", nil, 2},
		"cut short":   {func(s pb.KV_RangeStreamServer) error { return s.Send(part(false, "stream/a")) }, "", errCutShort, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			e := f.open(t, nil)
			e.requestTimeout = 300 * time.Millisecond
			f.set(func() {
				f.stream = test.stream
				f.rangeOf = func(*pb.RangeRequest) *pb.RangeResponse {
					r := part(true, "pages/a", "pages/b", "pages/c").RangeResponse
					return r
				}
			})
			for range 2 {
				res, err := e.Range(t.Context(), storage.RangeOptions{Prefix: "/k/", Revision: 80, Count: true})
				switch {
				case !errors.Is(err, test.err):
					t.Errorf("%v, want %v", err, test.err)
				case err == nil && (len(res.KVs) != 3 || res.KVs[2].Key != test.from+"/c" || res.Revision != 80 || res.Count != 3):
					t.Errorf("%+v", res)
				}
			}
			f.set(func() {
				if f.streamed != test.streams {
					t.Errorf("%d streams", f.streamed)
				}
			})
		})
	}
}

// TestLeaseLost checks that the engine replaces a lease that etcd no longer knows, once.
func TestLeaseLost(t *testing.T) {
	f := startFake(t, nil)
	e := f.open(t, nil)
	var granted []int64
	lost := true
	f.set(func() {
		f.grant = func(r *pb.LeaseGrantRequest) (int64, error) {
			granted = append(granted, r.TTL)
			return int64(len(granted)), nil
		}
		f.txn = func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
			if r.Success[0].GetRequestPut().Lease == 1 && lost {
				return nil, rpctypes.ErrGRPCLeaseNotFound
			}
			return &pb.TxnResponse{Header: header(101), Succeeded: true}, nil
		}
	})
	for range 3 {
		if rev, err := e.Put(t.Context(), "/a/b", nil, storage.Precondition{}, time.Hour); err != nil || rev != 101 {
			t.Errorf("put: %d, %v", rev, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(granted) != 2 || granted[0] != 3660 {
		t.Errorf("leases of %v s", granted)
	}
}

func TestMetricsAreTakenBack(t *testing.T) {
	f := startFake(t, nil)
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		e := f.open(t, func(o *Options) { o.Registerer = registry })
		if _, err := Open(t.Context(), Options{Endpoints: []string{f.url}, Registerer: registry}); err == nil {
			t.Error("two engines share metrics")
		}
		families, err := registry.Gather()
		if err != nil || len(families) == 0 {
			t.Errorf("%d families, %v", len(families), err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTLS connects with certificates of a private CA on both sides.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "server", ca, caKey)
	certificate(t, dir, "client", ca, caKey)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	f := startFake(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}})
	files := func(o *Options) {
		o.CAFile, o.CertFile, o.KeyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	}
	e := f.open(t, files)
	if _, err := e.Put(t.Context(), "/a/b", nil, storage.Precondition{}, 0); err != nil {
		t.Error(err)
	}
	for name, break_ := range map[string]func(*Options){
		"no client certificate": func(o *Options) { o.CertFile, o.KeyFile = "", "" },
		"no authority":          func(o *Options) { o.CAFile = "" },
		"missing file":          func(o *Options) { o.CAFile = filepath.Join(dir, "none") },
	} {
		o := Options{Endpoints: []string{f.url}, DialTimeout: 300 * time.Millisecond}
		files(&o)
		break_(&o)
		if e, err := Open(t.Context(), o); err == nil {
			t.Errorf("%s: opened", name)
			_ = e.Close()
		}
	}
}

// certificate writes name.crt and name.key, signed by an authority or, without one, by itself.
func certificate(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: ca == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ca == nil {
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestCancelledOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := startFake(t, nil)
	if e, err := Open(ctx, Options{Endpoints: []string{f.url}}); err == nil {
		t.Error("opened")
		_ = e.Close()
	}
}
