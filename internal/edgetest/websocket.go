//go:build unix

package edgetest

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net"

	"github.com/kubeweir/kubeweir/internal/api"
)

// AcceptKey returns the Sec-WebSocket-Accept of a key (RFC 6455, 4.2.2).
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// WebSocketEcho echoes every text frame of a client.
func WebSocketEcho(key string) *api.Response {
	return &api.Response{Status: 101, Header: SwitchTo(AcceptKey(key)), Upgrade: func(nc net.Conn) {
		br := bufio.NewReader(nc)
		for {
			head := make([]byte, 6) // short masked frames only
			if _, err := io.ReadFull(br, head); err != nil {
				return
			}
			payload := make([]byte, head[1]&0x7f)
			if _, err := io.ReadFull(br, payload); err != nil {
				return
			}
			for i := range payload {
				payload[i] ^= head[2+i%4]
			}
			if _, err := nc.Write(append([]byte{head[0], byte(len(payload))}, payload...)); err != nil || head[0] == 0x88 {
				return
			}
		}
	}}
}

// MaskedFrame returns a client's frame.
func MaskedFrame(opcode byte, payload string) string {
	mask := make([]byte, 4)
	_, _ = rand.Read(mask)
	b := append([]byte{0x80 | opcode, 0x80 | byte(len(payload))}, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}
