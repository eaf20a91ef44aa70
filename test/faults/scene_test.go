package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// A scene is a gateway behind a link of its own. A writer writes to a namespace directly at
// kube-apiserver, probes send requests through the gateway, and watches stay open.
type scene struct {
	name      string // of the namespace
	kube      *realkube.Cluster
	link      *link.Link
	gateway   *realkube.Gateway
	client    *http.Client
	writer    *writer
	watches   []*openWatch
	probes    []probe
	log       log
	before    uint64 // from before the fault
	requested atomic.Int64
	begin     time.Time
	end       time.Time
	well      uint64 // the newest version when everything had recovered
}

// steady is the ConfigMap that always exists.
const steady = "steady"

// newScene builds a scene and returns once all its probes succeed.
func newScene(ctx context.Context, t *testing.T, kube *realkube.Cluster, name string) *scene {
	t.Helper()
	s := &scene{name: name, kube: kube, link: startLink(t, kube), probes: probes(), client: trusting(t, kube)}
	s.writer = &writer{kube: kube, client: trusting(t, kube), maps: s.maps()}
	for _, namespace := range []string{name, name + "-writes"} {
		must(t, s.writer.send(ctx, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`))
	}
	must(t, s.writer.send(ctx, http.MethodPost, s.maps(), `{"metadata":{"name":"`+steady+`"}}`))
	b := *bed
	b.Kube = kube
	s.gateway = b.StartGateway(t, realkube.GatewayOptions{Upstream: s.link.URL(), ExtraArgs: []string{
		"--config", consistencyFile(t), "--offline=allow", "--offline-ttl=10m",
	}})
	for _, accept := range []string{typeJSON, typeProto} { // fill the cache
		first := &probe{name: "the first list", good: 200}
		must(t, testbed.Poll(ctx, time.Minute, func() error {
			if a := s.send(ctx, first, request{path: s.maps() + "?resourceVersion=0", accept: accept}); !a.good() {
				return fmt.Errorf("before the fault: %s", a)
			}
			return nil
		}))
	}
	must(t, s.writer.send(ctx, http.MethodPut, s.maps()+"/"+steady, `{"metadata":{"name":"`+steady+`"},"data":{"it":"begins"}}`))
	s.before = s.writer.last()
	for i := range s.probes {
		p := &s.probes[i]
		must(t, testbed.Poll(ctx, time.Minute, func() error {
			if a := s.send(ctx, p, p.request(s, -1-i)); !a.good() {
				return fmt.Errorf("before the fault: %s", a)
			}
			return nil
		}))
	}
	s.watches = []*openWatch{
		s.openWatch(ctx, t, "JSON", typeJSON, s.before),
		s.openWatch(ctx, t, "protobuf", typeProto, s.before),
	}
	return s
}

// startLink starts a link to kube-apiserver that is closed at the end of the test.
func startLink(t *testing.T, kube *realkube.Cluster) *link.Link {
	t.Helper()
	l, err := link.Start(strings.TrimPrefix(kube.URL(), "https://"))
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// trusting returns a client with its own connections that trusts the cluster's CA.
func trusting(t *testing.T, kube *realkube.Cluster) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: kube.ServingCAs()}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// maps returns the path of the scene's ConfigMaps.
func (s *scene) maps() string { return "/api/v1/namespaces/" + s.name + "/configmaps" }

// unseenUser returns a user that the gateway has not seen. Scenes of one cluster do not share
// users.
func (s *scene) unseenUser() string {
	return unseenUser(int(s.requested.Add(1)) % unseenUsers)
}

const (
	probePeriod = 500 * time.Millisecond
	// maxUnderWay is how many requests of one probe may be in flight.
	maxUnderWay = 32
	writePeriod = 100 * time.Millisecond
	// quietTime is the time without a fault before it begins.
	quietTime = 1500 * time.Millisecond
	// recoveryLimit is the maximum time from the end of a fault to full recovery on an idle machine,
	// as docs/faults.md promises; busyLimit is the limit under load. After giveUp the test stops
	// waiting.
	recoveryLimit = 3 * time.Second
	busyLimit     = 12 * time.Second
	giveUp        = 45 * time.Second
	// staleLimit is the maximum unmarked staleness of a response on an idle machine; busyStale is the
	// limit under load.
	staleLimit = 3 * time.Second
	busyStale  = 8 * time.Second
	// enough is how many good responses in a row count as recovery.
	enough = 3
)

// play injects a fault and returns the outcome.
func (s *scene) play(ctx context.Context, t *testing.T, f *fault) *outcome {
	t.Helper()
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { s.writer.run(running) })
	for i := range s.probes {
		all.Go(func() { s.repeat(running, &all, &s.probes[i]) })
	}
	testbed.Wait(ctx, quietTime)
	s.begin = time.Now()
	must(t, f.begin(ctx, s))
	testbed.Wait(ctx, f.lasts-time.Since(s.begin))
	if f.end != nil {
		must(t, f.end(ctx, s))
	}
	s.end = time.Now()
	return s.recover(ctx, f)
}

// repeat sends a request of the probe each period, without waiting for earlier responses.
func (s *scene) repeat(ctx context.Context, all *sync.WaitGroup, p *probe) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	underWay := make(chan struct{}, maxUnderWay)
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case underWay <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer func() { <-underWay }()
			// The end of the test does not cancel a request in flight: every request must get a response.
			if a := s.send(context.WithoutCancel(ctx), p, p.request(s, n)); a.err == nil || ctx.Err() == nil {
				s.log.add(a)
			}
		})
	}
}

// recover waits until everything has recovered and returns how long that took.
func (s *scene) recover(ctx context.Context, f *fault) *outcome {
	out := &outcome{fault: f, scene: s}
	var all sync.WaitGroup
	out.probes = make([]recovery, len(s.probes))
	for i := range s.probes {
		all.Go(func() {
			out.probes[i].err = testbed.Poll(ctx, giveUp, func() (err error) {
				out.probes[i].took, err = s.recovered(&s.probes[i])
				return err
			})
		})
	}
	out.watches = make([]recovery, len(s.watches))
	for i, w := range s.watches {
		all.Go(func() {
			out.watches[i].err = testbed.Poll(ctx, giveUp, func() error {
				out.watches[i].took = time.Since(s.end)
				first := s.writer.after(s.end)
				if last := w.last(); first == 0 || last < first {
					return fmt.Errorf("the %s watch is at version %d, the first write after the fault has version %d: %v", w.name, last, first, w.ended())
				}
				return nil
			})
		})
	}
	all.Wait()
	s.well = s.writer.last()
	return out
}

// recovered returns when, after the end of the fault, the responses to a probe became good again.
func (s *scene) recovered(p *probe) (time.Duration, error) {
	good, first := 0, time.Duration(0)
	var last *sample
	for _, a := range s.log.of(p, s.end, time.Now()) {
		last = a
		if !a.good() || a.marked || s.staleness(a) > staleLimit {
			good = 0
			continue
		}
		if good++; good == 1 {
			first = a.ended().Sub(s.end)
		}
	}
	if good < enough {
		return 0, fmt.Errorf("not recovered: %v", last)
	}
	return first, nil
}

// staleness returns a lower bound of how stale a response is: the age of the oldest write that it
// misses. Responses that may come from kube-apiserver can take long, so their staleness is measured
// at the start of the request.
func (s *scene) staleness(a *sample) time.Duration {
	if a.version == 0 || a.probe.serves == written || a.probe.serves == watched {
		return 0
	}
	at := a.ended()
	if a.probe.serves == fromUpstream || a.probe.serves == fromSession {
		at = a.began
	}
	missed := s.writer.first(func(w ack) bool { return w.version > a.version }).at
	if missed.IsZero() {
		return 0
	}
	return max(0, at.Sub(missed))
}

// A writer writes directly to kube-apiserver, bypassing the gateway and the link.
type writer struct {
	kube   *realkube.Cluster
	client *http.Client
	maps   string

	mu   sync.Mutex
	acks []ack
}

// An ack is an acknowledged write.
type ack struct {
	version   uint64
	began, at time.Time
}

// run writes until ctx is done and ignores errors.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(writePeriod)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		data := `"data":{"n":"` + strconv.Itoa(n) + `","text":"` + strings.Repeat("x", 500) + `"}}`
		_ = w.send(ctx, http.MethodPut, w.maps+"/"+steady, `{"metadata":{"name":"`+steady+`"},`+data)
		if n%3 == 0 {
			_ = w.send(ctx, http.MethodPost, w.maps, `{"metadata":{"name":"c`+strconv.Itoa(n)+`"},`+data)
			_ = w.send(ctx, http.MethodDelete, w.maps+"/c"+strconv.Itoa(n-9), "")
		}
	}
}

// send sends one request.
func (w *writer) send(ctx context.Context, method, path, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, w.kube.URL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.kube.AdminToken())
	req.Header.Set("Content-Type", typeJSON)
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, b)
	}
	var object struct {
		Kind     string
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&object); err != nil || object.Kind != "ConfigMap" || method == http.MethodDelete {
		return err
	}
	version, err := strconv.ParseUint(object.Metadata.ResourceVersion, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, ack{version, began, time.Now()})
	return err
}

// ready waits until kube-apiserver accepts a write.
func (w *writer) ready(ctx context.Context) error {
	return testbed.Poll(ctx, giveUp, func() error {
		return w.send(ctx, http.MethodPut, w.maps+"/"+steady, `{"metadata":{"name":"`+steady+`"}}`)
	})
}

// first returns the first write, in the order of versions, for which is returns true.
func (w *writer) first(is func(ack) bool) ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acks {
		if is(a) {
			return a
		}
	}
	return ack{}
}

// after returns the version of the first write that began after the given time, or 0.
func (w *writer) after(at time.Time) uint64 {
	return w.first(func(a ack) bool { return a.began.After(at) }).version
}

// upTo returns the newest version that was acknowledged before the given time.
func (w *writer) upTo(at time.Time) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := uint64(0)
	for _, a := range w.acks {
		if a.at.Before(at) {
			newest = a.version
		}
	}
	return newest
}

func (w *writer) last() uint64 { return w.upTo(time.Now().Add(time.Hour)) }
