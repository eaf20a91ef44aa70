//go:build linux

package cri

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A criLog is a container's log in the format that kubelets read: time, stream, full or partial
// line, text.
type criLog struct {
	mu   sync.Mutex
	file *os.File
}

// copy writes the output of a stream to the log, line by line, until it ends.
func (l *criLog) copy(stream string, from *os.File) {
	defer func() { _ = from.Close() }()
	lines := bufio.NewReaderSize(from, 16<<10)
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.write(stream, "F", []byte(err.Error()))
			}
			return
		}
		tag := "F"
		if more {
			tag = "P"
		}
		l.write(stream, tag, line)
	}
}

func (l *criLog) write(stream, tag string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, text)
}

// pipes closes its files together, except those that are kept.
type pipes struct {
	files map[*os.File]struct{}
	err   error
}

func (p *pipes) open() (from, to *os.File) {
	if p.err != nil {
		return nil, nil
	}
	if p.files == nil {
		p.files = make(map[*os.File]struct{})
	}
	if from, to, p.err = os.Pipe(); p.err != nil {
		return nil, nil
	}
	p.files[from], p.files[to] = struct{}{}, struct{}{}
	return from, to
}

func (p *pipes) keep(files ...*os.File) {
	for _, f := range files {
		delete(p.files, f)
	}
}

func (p *pipes) close() {
	for f := range p.files {
		_ = f.Close() // it may be closed already
	}
}
