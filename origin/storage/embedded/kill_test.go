package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// envKillDir tells the writer that TestKill kills its data folder.
const envKillDir = "KUBEWEIR_KILL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envKillDir); dir != "" {
		os.Exit(writeUntilKilled(dir, os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// writeUntilKilled is the writer's process: it changes keys as fast as it can, and tells on its standard output
// what it asks for, and what was acknowledged.
func writeUntilKilled(dir, seed string) int {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return 2
	}
	e, err := Open(Options{Dir: dir, HistoryAge: -1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	reporter := &teller{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			k := &killable{engine: e, reporter: reporter, name: fmt.Sprint(seed, ".", i), random: rand.New(rand.NewPCG(n, uint64(i))), known: known(nil, e)}
			for k.step() == nil {
			}
		})
	}
	wg.Wait()
	return 1 // a step failed: it never should
}

// A teller writes whole lines, in the order in which it is called.
type teller struct {
	mu   sync.Mutex
	last uint64
}

// write returns the highest revision told before.
func (t *teller) write(key, value string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(os.Stdout, "ask %s %s\n", key, value)
	return t.last
}

func (t *teller) ack(rev uint64, key, value string, after uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, rev)
	_, _ = fmt.Fprintf(os.Stdout, "ack %d %d %s %s\n", rev, after, key, value)
}

type killable struct {
	engine   *Engine
	reporter *teller
	name     string
	random   *rand.Rand
	known    map[string]uint64
	n        int
}

func (k *killable) step() error {
	k.n++
	ctx := context.Background()
	key := fmt.Sprintf("/registry/%c/%d", 'a'+k.random.IntN(4), k.random.IntN(20))
	value := fmt.Sprintf("%s-%d-%s", k.name, k.n, strings.Repeat("x", k.random.IntN(5000)))
	if k.n%100 == 0 {
		rev, err := k.engine.CurrentRevision(ctx)
		if err == nil {
			err = k.engine.Compact(ctx, rev-min(rev/20, 500))
		}
		if err != nil {
			return err
		}
	}
	var rev, after uint64
	var err error
	if k.known[key] != 0 && k.random.IntN(4) == 0 {
		value = "-"
		after = k.reporter.write(key, value)
		rev, err = k.engine.Delete(ctx, key, storage.Precondition{Revision: k.known[key]})
		k.known[key] = 0
	} else {
		after = k.reporter.write(key, value)
		rev, err = k.engine.Put(ctx, key, []byte(value), storage.Precondition{Revision: k.known[key]}, 0)
		k.known[key] = rev
	}
	var conflict *storage.ConflictError
	switch {
	case errors.As(err, &conflict):
		k.known[key] = 0
		if conflict.Current != nil {
			k.known[key] = conflict.Current.Revision
		}
		return nil
	case err != nil:
		return err
	}
	k.reporter.ack(rev, key, value, after)
	return nil
}

// TestKill kills a writing process at random moments, again and again on the same folder. Each time everything that it
// said was acknowledged is there, at its revision and in an order that the clients could have seen, nothing else
// is but what was asked for, and no change is there by half.
func TestKill(t *testing.T) {
	kills := soak.Cases(5, 200)
	dir := t.TempDir()
	r := newRecord()
	random := rand.New(rand.NewPCG(soak.Seed(t), 6))
	acked := 0
	for i := range kills {
		acked += killOne(t, dir, r, i, time.Duration(random.IntN(300))*time.Millisecond)
		e := openAt(t, Options{Dir: dir, HistoryAge: -1})
		if err := errors.Join(verify(e), r.check(e, r.acked)); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		r.forgetCompacted(e)
		mustClose(t, e)
	}
	t.Logf("%d kills, %d changes acknowledged", kills, acked)
	if acked < 10*kills {
		t.Errorf("only %d changes were acknowledged", acked)
	}
}

// killOne runs the writer until some time after its first acknowledgement, and returns how many there were.
func killOne(t *testing.T, dir string, r *record, seed int, after time.Duration) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$", fmt.Sprint(seed))
	cmd.Env = append(os.Environ(), envKillDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	var timer *time.Timer
	acked := 0
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // the last line may be cut off: nobody was told
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		ack, err := r.parseLine(strings.Fields(line))
		if err != nil {
			t.Error(err)
		}
		if ack {
			acked++
			once.Do(func() {
				if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
					t.Errorf("opened beside another process: %v", err)
				}
				timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			})
		}
	}
	if timer == nil || timer.Stop() {
		t.Errorf("the writer ended by itself")
	}
	_ = cmd.Wait()
	return acked
}

// parseLine records a line of the writer and reports whether it is an acknowledgement.
func (r *record) parseLine(f []string) (bool, error) {
	value := f[len(f)-1]
	if value == "-" {
		value = ""
	}
	switch {
	case len(f) == 3 && f[0] == "ask":
		r.write(f[1], value)
		return false, nil
	case len(f) == 5 && f[0] == "ack":
		rev, err1 := strconv.ParseUint(f[1], 10, 64)
		after, err2 := strconv.ParseUint(f[2], 10, 64)
		l := logged{kind: storage.Updated, key: f[3], value: value}
		if value == "" {
			l.kind = storage.Deleted
		}
		return true, errors.Join(err1, err2, r.ack(rev, l, after))
	}
	return false, fmt.Errorf("line %q", f)
}

// forgetCompacted keeps a record small: of what was checked and compacted, only that which is still there.
func (r *record) forgetCompacted(e *Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rev, l := range r.acked {
		if rev < e.mu.compacted && e.mu.index.get(l.key) != rev {
			delete(r.acked, rev)
		}
	}
}
