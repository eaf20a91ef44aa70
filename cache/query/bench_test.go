package query_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

// benchQueries are the queries of a dashboard with five columns to sort by.
var benchQueries = []struct{ name, query string }{
	{"name", "sortBy=.metadata.name&limit=50"},
	{"age", "sortBy=-.metadata.creationTimestamp&limit=50"},
	{"node", "sortBy=.spec.nodeName,.metadata.name&limit=50"},
	{"phase", "sortBy=.status.phase&limit=50"},
	{"restarts", "sortBy=-.status.containerStatuses[0].restartCount,.metadata.namespace&limit=50"},
	{"where", "where=.status.phase!=Running,.spec.nodeName~12&sortBy=.metadata.name&limit=50"},
	{"page 100", "sortBy=.metadata.name&limit=50&offset=5000"},
	{"fields", "sortBy=.metadata.name&limit=50&fields=.metadata.name,.status.phase"},
	{"count", "limit=0&countBy=.status.phase,.metadata.namespace"},
}

// benchCollection returns a collection of n pods of about size bytes.
func benchCollection(b *testing.B, n, size int) (*queryBench, *cache.Collection) {
	b.Helper()
	r := newQueryBench(b)
	for i := range n {
		r.source.Create(cachetest.Pods, benchPod(i, size, 0))
	}
	return r, r.collection(cachetest.Pods, api.JSON)
}

func benchPod(i, size, restarts int) *corev1.Pod {
	pod := cachetest.BigPod(fmt.Sprintf("ns-%03d/web-%06d", i%200, i*7919%1_000_003), fmt.Sprintf("node-%04d", i*31%2000), size, "app=web", fmt.Sprintf("part=%d", i%50))
	pod.CreationTimestamp = metav1.NewTime(time.Unix(1_760_000_000+int64(i)*13%10_000_000, 0))
	pod.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[i%5]
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: int32(i%17 + restarts)}}
	return pod
}

// BenchmarkQuery repeats queries on an unchanged collection, and after one change each. The first
// response is timed separately.
func BenchmarkQuery(b *testing.B) {
	for _, size := range []struct{ n, bytes int }{{5000, 6000}, {150_000, 1500}} {
		r, c := benchCollection(b, size.n, size.bytes)
		request := func(b *testing.B, query string) {
			resp, err := r.reader.List(b.Context(), c, listRequest(b, "?resourceVersion=0&"+query, api.Representation{}))
			if err != nil {
				b.Fatal(err)
			}
			drain(b, resp)
		}
		for _, q := range append(benchQueries, struct{ name, query string }{"100 by name", "sortBy=.metadata.name&limit=100"}) {
			began := time.Now()
			request(b, q.query)
			first := time.Since(began)
			b.Run(fmt.Sprintf("%d/%s", size.n, q.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					request(b, q.query)
				}
				b.ReportMetric(float64(first.Microseconds()), "first-us")
			})
			b.Run(fmt.Sprintf("%d/%s/after a change", size.n, q.name), func(b *testing.B) {
				b.ReportAllocs()
				var took []time.Duration
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					pod := r.source.Update(cachetest.Pods, benchPod(i*777%size.n, size.bytes, i))
					rv, _ := api.ParseResourceVersion(pod.GetResourceVersion())
					if err := c.WaitFor(b.Context(), rv, time.Minute); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					began := time.Now()
					request(b, q.query)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			})
		}
	}
}

// discard counts writes and drops them.
type discard struct{ writes int }

func (d *discard) Write(p []byte) (int, error) {
	d.writes++
	return len(p), nil
}

func drain(b *testing.B, resp *api.Response) int64 {
	if resp.BodyTo == nil {
		return int64(len(resp.Body))
	}
	n, err := resp.BodyTo.WriteTo(io.Writer(&discard{}))
	if err != nil {
		b.Fatal(err)
	}
	return n
}
