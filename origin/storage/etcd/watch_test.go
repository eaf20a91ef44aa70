package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func next(t *testing.T, w storage.Watcher) storage.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantBatch(t *testing.T, w storage.Watcher, revision uint64, events ...string) {
	t.Helper()
	b := next(t, w)
	var got []string
	for _, ev := range b.Events {
		got = append(got, fmt.Sprintf("%s@%d", ev.KV.Key, ev.KV.Revision))
	}
	if b.Revision != revision || !slices.Equal(got, events) {
		t.Fatalf("batch of %d: %v, want %d: %v", b.Revision, got, revision, events)
	}
}

func wantEnd(t *testing.T, w storage.Watcher, want error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		b, err := w.Next(ctx)
		if err == nil && len(b.Events) == 0 {
			continue
		}
		if !errors.Is(err, want) {
			t.Fatalf("Next: %v, want %v", err, want)
		}
		return
	}
}

// TestFragments checks that a revision split across messages is delivered only when it is complete,
// even if the stream ends in between.
func TestFragments(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	if c := s.create; c.StartRevision != 101 || !c.Fragment || !c.PrevKv || !c.ProgressNotify || string(c.Key) != "/a/" || string(c.RangeEnd) != "/a0" {
		t.Errorf("asked for %+v", c)
	}
	s.created(t, 100)
	s.send(t, &pb.WatchResponse{Header: header(105), Fragment: true, Events: []*mvccpb.Event{update("/a/1", 101), update("/a/1", 102), update("/a/2", 102)}})
	wantBatch(t, w, 101, "/a/1@101")
	s.send(t, &pb.WatchResponse{Header: header(105), Fragment: true, Events: []*mvccpb.Event{update("/a/3", 102)}})
	s.send(t, &pb.WatchResponse{Header: header(105), Events: []*mvccpb.Event{update("/a/4", 102), update("/a/1", 103)}})
	wantBatch(t, w, 103, "/a/1@102", "/a/2@102", "/a/3@102", "/a/4@102", "/a/1@103")
	s.send(t, &pb.WatchResponse{Header: header(105), Fragment: true, Events: []*mvccpb.Event{update("/a/1", 104), update("/a/2", 104)}})
	s.end <- status.Error(codes.Unavailable, "gone")
	s = f.next(t)
	if s.create.StartRevision != 104 {
		t.Errorf("resumed from %d, want 104", s.create.StartRevision)
	}
	s.created(t, 105)
	s.send(t, &pb.WatchResponse{Header: header(104), Events: []*mvccpb.Event{update("/a/1", 104), update("/a/2", 104), update("/a/3", 104)}})
	wantBatch(t, w, 104, "/a/1@104", "/a/2@104", "/a/3@104")
}

// TestHeaderBeyondEvents checks that the header revision of a message with events does not count as
// progress: etcd sends a long history in parts.
func TestHeaderBeyondEvents(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 900)
	s.send(t, &pb.WatchResponse{Header: header(900), Events: []*mvccpb.Event{update("/a/1", 101)}})
	wantBatch(t, w, 101, "/a/1@101")
	s.send(t, &pb.WatchResponse{Header: header(900), Events: []*mvccpb.Event{update("/a/1", 102)}})
	wantBatch(t, w, 102, "/a/1@102")
}

// TestUselessProgress checks that progress without new information is not passed on.
func TestUselessProgress(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 100)
	s.send(t, &pb.WatchResponse{Header: header(0), WatchId: -1})
	s.send(t, &pb.WatchResponse{Header: header(99), WatchId: -1})
	s.send(t, &pb.WatchResponse{Header: header(110), WatchId: -1})
	wantBatch(t, w, 110)
}

// TestProgressPersists checks that the watcher repeats a progress request until the response is
// recent enough: after a response from a lagging member, after a lost response and after the end of
// a stream.
func TestProgressPersists(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 100)
	f.set(func() { f.revision = 120 })
	w.RequestProgress()
	<-s.progress // lost
	<-s.progress
	s.send(t, &pb.WatchResponse{Header: header(110), WatchId: -1})
	wantBatch(t, w, 110)
	<-s.progress
	s.end <- rpctypes.ErrGRPCNoLeader
	s = f.next(t)
	if s.create.StartRevision != 111 {
		t.Errorf("resumed from %d, want 111", s.create.StartRevision)
	}
	select {
	case <-s.progress:
		t.Error("asked before etcd confirmed the watch")
	default:
	}
	s.created(t, 120)
	<-s.progress
	s.send(t, &pb.WatchResponse{Header: header(120), WatchId: -1})
	wantBatch(t, w, 120)
}

// TestProgressIdle checks that progress is reported if nothing has changed since the start of the
// watch. etcd would stay silent.
func TestProgressIdle(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 100)
	for range 3 {
		w.RequestProgress()
		wantBatch(t, w, 100)
	}
}

// TestPreviousCompacted checks that a watch ends if an event lacks its previous value, because the
// engine guarantees that value.
func TestPreviousCompacted(t *testing.T) {
	for _, kind := range []mvccpb.Event_EventType{mvccpb.PUT, mvccpb.DELETE} {
		f := startFake(t, nil)
		w := watchOf(t, f.open(t, nil), 100)
		s := f.next(t)
		s.created(t, 100)
		ev := update("/a/1", 101)
		ev.PrevKv, ev.Type = nil, kind
		s.send(t, &pb.WatchResponse{Header: header(101), Events: []*mvccpb.Event{ev}})
		wantEnd(t, w, storage.ErrCompacted)
	}
}

func TestWatchEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		resp *pb.WatchResponse
		err  error
		want error
	}{
		"compacted":              {resp: &pb.WatchResponse{Header: header(200), Canceled: true, CompactRevision: 150}, want: storage.ErrCompacted},
		"compacted at once":      {resp: &pb.WatchResponse{Header: header(200), Created: true, Canceled: true, CancelReason: rpctypes.ErrCompacted.Error()}, want: storage.ErrCompacted},
		"not permitted":          {resp: &pb.WatchResponse{Header: header(200), Created: true, Canceled: true, CancelReason: rpctypes.ErrGRPCPermissionDenied.Error()}, want: rpctypes.ErrPermissionDenied},
		"not permitted to speak": {err: rpctypes.ErrGRPCPermissionDenied, want: rpctypes.ErrPermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			w := watchOf(t, f.open(t, nil), 100)
			s := f.next(t)
			if tc.resp != nil {
				s.send(t, tc.resp)
			} else {
				s.end <- tc.err
			}
			wantEnd(t, w, tc.want)
			wantEnd(t, w, tc.want)
		})
	}
}

// TestWatchRetries checks that an expired token does not end the watch: the next stream has a new
// token.
func TestWatchRetries(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.send(t, &pb.WatchResponse{Header: header(100), WatchId: -1, Created: true, Canceled: true, CancelReason: rpctypes.ErrGRPCInvalidAuthToken.Error()})
	s = f.next(t)
	s.end <- nil
	s = f.next(t)
	s.created(t, 100)
	s.send(t, &pb.WatchResponse{Header: header(101), Events: []*mvccpb.Event{update("/a/1", 101)}})
	wantBatch(t, w, 101, "/a/1@101")
}

// TestRewound checks that a watch ends if the store was rewound or replaced, because the store then
// assigns the coming revisions to other changes.
func TestRewound(t *testing.T) {
	for name, h := range map[string]*pb.ResponseHeader{
		"went back":       header(50),
		"another cluster": {ClusterId: 8, Revision: 500},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			w := watchOf(t, f.open(t, nil), 100)
			s := f.next(t)
			s.created(t, 120)
			f.set(func() { f.revision = h.Revision })
			s.end <- status.Error(codes.Unavailable, "restored")
			s = f.next(t)
			s.send(t, &pb.WatchResponse{Header: h, Created: true})
			wantEnd(t, w, storage.ErrCompacted)
		})
	}
}

// TestMemberBehind checks that a lagging member is not mistaken for a rewound store.
func TestMemberBehind(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 120)
	f.set(func() { f.revision = 121 })
	s.end <- status.Error(codes.Unavailable, "another member takes over")
	s = f.next(t)
	s.created(t, 110)
	s.send(t, &pb.WatchResponse{Header: header(121), Events: []*mvccpb.Event{update("/a/1", 121)}})
	wantBatch(t, w, 121, "/a/1@121")
}

// TestBackpressure checks that unread events stay in etcd.
func TestBackpressure(t *testing.T) {
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 100)
	s := f.next(t)
	s.created(t, 100)
	const most = 200
	sent := make(chan int, 1)
	stuck := make(chan struct{})
	go func() {
		n := 0
		defer func() { sent <- n }()
		for ; n < most; n++ {
			ev := update("/a/1", 101+int64(n))
			ev.Kv.Value = make([]byte, 1<<20)
			done := make(chan error, 1)
			go func() { done <- s.Send(&pb.WatchResponse{Header: header(101 + int64(n)), Events: []*mvccpb.Event{ev}}) }()
			select {
			case err := <-done:
				if err != nil {
					return
				}
			case <-time.After(2 * time.Second): // blocked: as it should be
				close(stuck)
				if <-done != nil {
					return
				}
			}
		}
	}()
	select {
	case <-stuck:
	case n := <-sent:
		t.Fatalf("%d MiB were sent to a watch that nobody reads", n)
	}
	for n := range most {
		if b := next(t, w); b.Revision != 101+uint64(n) {
			t.Fatalf("revision %d, want %d", b.Revision, 101+n)
		}
	}
	<-sent
}

// TestProgressAheadOfTheStore checks that a watch that starts ahead of the store does not send ten
// requests per second to etcd until the store catches up.
func TestProgressAheadOfTheStore(t *testing.T) {
	requested := func(ahead bool) (requests int) {
		wait := firstRepeat
		for at := time.Duration(0); at < time.Minute; at += wait {
			requests++
			wait = repeatAfter(wait, ahead)
		}
		return requests
	}
	if n := requested(true); n > 30 {
		t.Errorf("%d requests in a minute, ahead of the store", n)
	}
	if n := requested(false); n < 500 {
		t.Errorf("%d requests in a minute, behind it", n)
	}
	f := startFake(t, nil)
	w := watchOf(t, f.open(t, nil), 200)
	s := f.next(t)
	s.created(t, 100)
	w.RequestProgress()
	<-s.progress
	s.send(t, &pb.WatchResponse{Header: header(100)}) // tells nothing
	s.send(t, &pb.WatchResponse{Header: header(201), Events: []*mvccpb.Event{update("/a/1", 201)}})
	wantBatch(t, w, 201, "/a/1@201")
}
