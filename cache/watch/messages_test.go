package watch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestWatchInMessages checks that an event in a message equals the one in a stream, after its
// header.
func TestWatchInMessages(t *testing.T) {
	for name, rep := range map[string]api.Representation{
		"json": {}, "protobuf": {Encoding: api.Protobuf},
		"dropped": {DropManagedFields: true}, "protobuf dropped": {Encoding: api.Protobuf, DropManagedFields: true},
		"table":    {Transform: api.Table, IncludeObject: api.IncludeObjectFull},
		"metadata": {Transform: api.PartialMetadata}, "protobuf metadata": {Encoding: api.Protobuf, Transform: api.PartialMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newWatchBench(t, cache.Limits{})
				c := cachetest.Collection(t, b.manager, b.c.Resource(), rep.Encoding)
				b.c = c
				b.pod("default/a", "app", "a")
				stream := b.watch(initial+"&labelSelector=app", rep)
				messages := &watchClient{}
				b.message = func(dst []byte, size int) []byte { return fmt.Appendf(dst, "<%d>", size) }
				w := b.watchWith(initial+"&labelSelector=app", rep, messages)
				b.pod("default/b", "app", "b")
				b.update("default/a") // leaves the selection
				b.update("default/b", "app", "c")
				synctest.Wait()
				want, got := events(t, rep, stream.data), messagesOf(t, messages.data)
				if len(want) != 5 || !slices.Equal(got, want) {
					t.Errorf("got\n%q\nwant\n%q", got, want)
				}
				w.stop()
				stream.stop()
			})
		})
	}
}

// TestWatchEndIsAMessage checks that the end of a watch is a message as well.
func TestWatchEndIsAMessage(t *testing.T) {
	for _, encoding := range []api.Encoding{api.JSON, api.Protobuf} {
		bubble.Test(t, func(t *testing.T) {
			b := newWatchBench(t, cache.Limits{HistoryEvents: 1})
			c := cachetest.Collection(t, b.manager, b.c.Resource(), encoding)
			b.c = c
			for i := range 4 {
				b.pod(fmt.Sprint("default/", i))
			}
			b.message = func(dst []byte, size int) []byte { return fmt.Appendf(dst, "<%d>", size) }
			messages := &watchClient{}
			w := b.watchWith("resourceVersion=1", api.Representation{Encoding: encoding}, messages)
			synctest.Wait()
			got := messagesOf(t, messages.data)
			if len(got) != 1 || !strings.Contains(got[0], "ERROR") || !strings.Contains(got[0], "Expired") || !messages.closed {
				t.Errorf("got %q, closed %v", got, messages.closed)
			}
			w.stop()
		})
	}
}

// events splits a stream into events.
func events(t *testing.T, rep api.Representation, data []byte) (all []string) {
	t.Helper()
	if rep.Encoding == api.JSON {
		for line := range bytes.Lines(data) {
			all = append(all, string(line))
		}
		return all
	}
	for len(data) > 0 {
		n := 4 + int(binary.BigEndian.Uint32(data))
		all, data = append(all, string(data[4:n])), data[n:]
	}
	return all
}

// messagesOf splits messages with the headers of TestWatchInMessages.
func messagesOf(t *testing.T, data []byte) (all []string) {
	t.Helper()
	for rest := string(data); rest != ""; {
		var n int
		if _, err := fmt.Sscanf(rest, "<%d>", &n); err != nil {
			t.Fatalf("%v: %.100q", err, rest)
		}
		_, rest, _ = strings.Cut(rest, ">")
		all, rest = append(all, rest[:n]), rest[n:]
	}
	return all
}
