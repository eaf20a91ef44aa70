package etcd

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// A fake is a server that speaks etcd's protocol and responds as tests direct. test/etcd tests
// against a real etcd.
type fake struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer

	url     string
	version string
	streams chan *fakeStream // watches as they are opened

	mu       sync.Mutex
	revision int64                                            // guarded by mu
	rangeErr error                                            // guarded by mu
	rangeOf  func(*pb.RangeRequest) *pb.RangeResponse         // guarded by mu; called without it
	txn      func(*pb.TxnRequest) (*pb.TxnResponse, error)    // guarded by mu
	ranges   []*pb.RangeRequest                               // guarded by mu
	streamed int                                              // RangeStreams; guarded by mu
	stream   func(pb.KV_RangeStreamServer) error              // guarded by mu; called without it; nil for none
	grant    func(*pb.LeaseGrantRequest) (clientLease, error) // guarded by mu
}

type clientLease = int64

// A fakeStream is a watch as the server has it.
type fakeStream struct {
	pb.Watch_WatchServer
	create   *pb.WatchCreateRequest
	progress chan struct{} // requests for progress
	end      chan error    // what the call returns
}

func startFake(t *testing.T, tlsConfig *tls.Config) *fake {
	t.Helper()
	// Closing and waiting comes last, when the engine is closed.
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(ignore); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{url: "http://" + l.Addr().String(), version: "3.6.8", streams: make(chan *fakeStream, 16), revision: 100}
	var opts []grpc.ServerOption
	if tlsConfig != nil {
		f.url = "https://" + l.Addr().String()
		opts = append(opts, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	server := grpc.NewServer(opts...)
	pb.RegisterKVServer(server, f)
	pb.RegisterWatchServer(server, f)
	pb.RegisterLeaseServer(server, f)
	pb.RegisterMaintenanceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fake) open(t *testing.T, change func(*Options)) *Engine {
	t.Helper()
	opts := Options{Endpoints: []string{f.url}, CompactionInterval: -1}
	if change != nil {
		change(&opts)
	}
	e, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 7, MemberId: 1, Revision: revision}
}

func (f *fake) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	f.mu.Lock()
	f.ranges = append(f.ranges, r)
	rangeOf := f.rangeOf
	f.mu.Unlock()
	if rangeOf != nil && !r.CountOnly {
		return rangeOf(r), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rangeErr != nil {
		return nil, f.rangeErr
	}
	if r.Revision > f.revision {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	return &pb.RangeResponse{Header: header(f.revision)}, nil
}

func (f *fake) RangeStream(r *pb.RangeRequest, s pb.KV_RangeStreamServer) error {
	f.mu.Lock()
	f.streamed++
	stream := f.stream
	f.mu.Unlock()
	if stream == nil {
		return f.UnimplementedKVServer.RangeStream(r, s)
	}
	return stream(s)
}

func (f *fake) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.txn != nil {
		return f.txn(r)
	}
	f.revision++
	return &pb.TxnResponse{Header: header(f.revision), Succeeded: true}, nil
}

func (f *fake) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, err := f.grant(r)
	return &pb.LeaseGrantResponse{Header: header(f.revision), ID: id, TTL: r.TTL}, err
}

func (f *fake) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: header(1), Version: f.version}, nil
}

func (f *fake) Watch(stream pb.Watch_WatchServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &fakeStream{Watch_WatchServer: stream, create: first.GetCreateRequest(), progress: make(chan struct{}, 64), end: make(chan error, 1)}
	received := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			if r.GetProgressRequest() != nil {
				s.progress <- struct{}{}
			}
		}
	}()
	f.streams <- s
	select {
	case err := <-s.end:
		return err
	case err := <-received:
		if err == io.EOF {
			return nil
		}
		return err
	}
}

// next waits for the next watch to be opened.
func (f *fake) next(t *testing.T) *fakeStream {
	t.Helper()
	select {
	case s := <-f.streams:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("no watch was opened")
		return nil
	}
}

func (s *fakeStream) send(t *testing.T, r *pb.WatchResponse) {
	t.Helper()
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
}

func (s *fakeStream) created(t *testing.T, revision int64) {
	t.Helper()
	s.send(t, &pb.WatchResponse{Header: header(revision), Created: true})
}

// update is an event of a key that existed.
func update(key string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{
		Type:   mvccpb.PUT,
		Kv:     &mvccpb.KeyValue{Key: []byte(key), Value: []byte("new"), CreateRevision: 1, ModRevision: rev},
		PrevKv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte("old"), CreateRevision: 1, ModRevision: rev - 1},
	}
}

func watchOf(t *testing.T, e *Engine, after uint64) storage.Watcher {
	t.Helper()
	w, err := e.Watch(t.Context(), storage.WatchOptions{Prefix: "/a/", After: after})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}
