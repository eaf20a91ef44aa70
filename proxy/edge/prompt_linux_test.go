package edge

import (
	"errors"
	"net"
	"testing"
)

// TestPromptAwait: waiting ends when there is something to read and leaves it to be read, and ends in vain.
func TestPromptAwait(t *testing.T) {
	client, server := connect(t)
	p := prompt{row: promptRow}
	p.init(socketOf(server))
	p.await()
	if p.row != 0 {
		t.Errorf("after waiting in vain %d requests in a row", p.row)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	if n, err := server.Read(buf); n != 1 || err != nil { // so that the byte is there
		t.Fatal(n, err)
	}
	go func() { _, _ = client.Write([]byte("yz")) }()
	for p.row = promptRow; ; p.row = promptRow {
		if p.await(); p.row == promptRow {
			break
		}
	}
	if n, err := server.Read(buf); n != 2 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = server.Close()
	p.row = promptRow
	if p.await(); p.row != 0 {
		t.Error("waits for a closed connection")
	}
}

// connect makes the two ends of a TCP connection.
func connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err = net.Dial("tcp", ln.Addr().String())
	server, acceptErr := ln.Accept()
	if err = errors.Join(err, acceptErr, ln.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}
