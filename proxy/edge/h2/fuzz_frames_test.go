package h2

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// FuzzHTTP2 sends any frames to a server, which answers or not but goes on.
func FuzzHTTP2(f *testing.F) {
	frames := func(write func(fr *http2.Framer)) []byte {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		return b.Bytes()
	}
	get := []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}
	post := []byte{0x83, 0x87, 0x84, 0x41, 1, 'x'}
	connect := append([]byte{2, 7}, "CONNECT\x00\x09:protocol\x09websocket\x87\x41\x01x\x04\x02/"...) // the last byte of the path is missing
	for _, write := range []func(fr *http2.Framer){
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndHeaders: true, EndStream: true})
			_ = fr.WriteWindowUpdate(0, 100)
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post, EndHeaders: true, PadLength: 3})
			_ = fr.WriteDataPadded(1, false, []byte("body"), make([]byte, 5))
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'a', 1, 'b'}, EndHeaders: true, EndStream: true})
		},
		func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: get[:2], EndStream: true})
			_ = fr.WriteContinuation(3, true, get[2:])
			_ = fr.WritePing(false, [8]byte{})
			_ = fr.WritePriority(5, http2.PriorityParam{StreamDep: 3})
			_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		},
		func(fr *http2.Framer) {
			for id, path := range map[uint32]byte{1: 'u', 3: 'd'} {
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(connect, path), EndHeaders: true})
				_ = fr.WriteData(id, false, []byte("hello"))
				_ = fr.WriteDataPadded(id, id == 3, []byte("enough"), make([]byte, 5))
			}
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(get[:2:2], 4, 2, '/', 'b'), EndHeaders: true, EndStream: true})
			_ = fr.WriteWindowUpdate(1, 100_000)
			_ = fr.WriteWindowUpdate(0, 1)
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			_ = fr.WriteWindowUpdate(0, 1<<30)
		},
	} {
		f.Add(frames(write))
	}
	ts := edgetest.Start(f, edgetest.Fuzzed, func(o *edge.Options) { o.WriteTimeout, o.BodyIdleTimeout = 100*time.Millisecond, 100*time.Millisecond })
	settings := frames(func(fr *http2.Framer) { _ = fr.WriteSettings() })
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := net.Dial("tcp", ts.Sidecar)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(append(append([]byte(http2.ClientPreface), settings...), data...))
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c)
		if log := ts.Log.String(); log != "" {
			t.Fatalf("logged: %s", log)
		}
	})
}
