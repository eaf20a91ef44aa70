package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// A scripted peer is one of the programs in testdata, which exchanges orders and responses as lines
// of JSON.
type scripted struct {
	say           func(line any) error // sends an order
	reportsGoAway bool                 // whether it reports GOAWAY

	mu        sync.Mutex
	exchanges map[int]*exchange
	goneAway  []string // the GOAWAY frames received
	err       error    // why the program ended
}

// A scriptLine is a line from the program: a part of a response.
type scriptLine struct {
	ID            int    `json:"id"`
	Status        int    `json:"status"`
	Informational []int  `json:"informational"`
	Protocol      string `json:"protocol"`

	Data  string `json:"data"`
	End   bool   `json:"end"`
	Error string `json:"error"`
	// GoAway is about the connection, not a response.
	GoAway bool `json:"goaway"`
}

func (s *scripted) start(x *exchange, r request) {
	order := func(line any) {
		if err := s.say(line); err != nil {
			x.end(err)
		}
	}
	type sign struct {
		ID     int  `json:"id"`
		Resume bool `json:"resume,omitempty"`
		Cancel bool `json:"cancel,omitempty"`
	}
	x.resume = func() { order(sign{ID: r.ID, Resume: true}) }
	x.cancel = func() { order(sign{ID: r.ID, Cancel: true}) }
	s.mu.Lock()
	s.exchanges[r.ID] = x
	err := s.err
	s.mu.Unlock()
	if err != nil {
		x.end(err)
		return
	}
	order(r)
}

// hear handles a line from the program.
func (s *scripted) hear(line []byte) error {
	var l scriptLine
	if err := json.Unmarshal(line, &l); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.GoAway {
		s.goneAway = append(s.goneAway, string(line))
		return nil
	}
	x := s.exchanges[l.ID]
	if x == nil {
		return fmt.Errorf("%q", line)
	}
	switch {
	case l.Status != 0:
		x.begin(head{Status: l.Status, Informational: l.Informational, Protocol: l.Protocol})
	case l.Protocol != "": // a page knows it only at the end
		x.spoke(l.Protocol)
	}
	if l.Data != "" {
		x.data(l.Data)
	}
	if l.End || l.Error != "" {
		var err error
		if l.Error != "" {
			err = errors.New(l.Error)
		}
		x.end(err)
	}
	return nil
}

// lost ends the exchanges that are still open.
func (s *scripted) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = fmt.Errorf("the client ended: %w", err)
	for _, x := range s.exchanges {
		x.end(s.err)
	}
}

// runScript starts a scripted peer, which ends with the test.
func runScript(t *testing.T, program string, args ...string) *scripted {
	t.Helper()
	s := &scripted{exchanges: map[int]*exchange{}, reportsGoAway: true}
	s.say = runLines(t, s.hear, s.lost, program, args...)
	return s
}

// runLines starts a program that reads and writes lines of JSON and ends with the test. It calls
// lost when the program ends.
func runLines(t *testing.T, hear func([]byte) error, lost func(error), program string, args ...string) (say func(any) error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err == nil {
				err = hear(line)
			}
			if err != nil {
				lost(err)
				break
			}
		}
		_, _ = io.Copy(io.Discard, lines) // lines remain if hear failed
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		<-done
	})
	var mu sync.Mutex
	orders := json.NewEncoder(in)
	return func(line any) error {
		mu.Lock()
		defer mu.Unlock()
		return orders.Encode(line)
	}
}
