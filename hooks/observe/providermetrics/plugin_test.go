package providermetrics_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/observe/providermetrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registered is a plugin where agentd puts it.
func registered(t *testing.T) (*observe.Registry, *prometheus.Registry) {
	t.Helper()
	p := providermetrics.New()
	plugins, metrics := observe.NewRegistry(func(r observe.Report) { t.Errorf("left out: %+v", r) }), prometheus.NewPedanticRegistry()
	if err := plugins.Register(providermetrics.ID, p); err != nil {
		t.Fatal(err)
	}
	if err := metrics.Register(p); err != nil {
		t.Fatal(err)
	}
	return plugins, metrics
}

func TestRequestsAreCountedByClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plugins, metrics := registered(t)
		usage := observe.RawUsage{Input: observe.Int(100), Output: observe.Int(20)}
		for _, first := range []time.Duration{200 * time.Millisecond, 3 * time.Second} {
			s := plugins.Begin(observe.MethodWrite, 1)
			s.Event(observe.EventText, 4, time.Now().Add(first))
			s.Event(observe.EventText, 4, time.Now().Add(time.Hour))
			<-time.After(4 * time.Second)
			s.Complete(observe.CompletionStop, usage)
		}
		plugins.Begin(observe.MethodWrite, 1).Fail(observe.ErrorRateLimit, observe.RawUsage{Input: observe.Int(-5), Output: observe.Int(1)})
		want := `
# HELP agentd_provider_first_event_seconds How long it took until the first event of an answer was there.
# TYPE agentd_provider_first_event_seconds histogram
agentd_provider_first_event_seconds_bucket{le="0.05"} 0
agentd_provider_first_event_seconds_bucket{le="0.1"} 0
agentd_provider_first_event_seconds_bucket{le="0.25"} 1
agentd_provider_first_event_seconds_bucket{le="0.5"} 1
agentd_provider_first_event_seconds_bucket{le="1"} 1
agentd_provider_first_event_seconds_bucket{le="2.5"} 1
agentd_provider_first_event_seconds_bucket{le="5"} 2
agentd_provider_first_event_seconds_bucket{le="10"} 2
agentd_provider_first_event_seconds_bucket{le="20"} 2
agentd_provider_first_event_seconds_bucket{le="30"} 2
agentd_provider_first_event_seconds_bucket{le="60"} 2
agentd_provider_first_event_seconds_bucket{le="+Inf"} 2
agentd_provider_first_event_seconds_sum 3.2
agentd_provider_first_event_seconds_count 2
# HELP agentd_provider_tokens_total Tokens that model providers have reported.
# TYPE agentd_provider_tokens_total counter
agentd_provider_tokens_total{class="input"} 200
agentd_provider_tokens_total{class="output"} 41
`
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "agentd_provider_first_event_seconds", "agentd_provider_tokens_total"); err != nil {
			t.Error(err)
		}
		samples := gathered(t, metrics)
		for name, want := range map[string]float64{
			"completions_total stop": 2, "completions_total length": 0, "errors_total rate_limit": 1, "errors_total cancelled": 0,
			"request_duration_seconds completed": 2, "request_duration_seconds failed": 1,
		} {
			if got, ok := samples["agentd_provider_"+name]; !ok || got != want {
				t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
			}
		}
	})
}

// gathered are all samples by name and label; of histograms the number of values.
func gathered(t *testing.T, metrics prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			out[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// TestSeriesDoNotGrow: each is there from the beginning, under a word of a closed set,
// and whatever a request comes to there are no more.
func TestSeriesDoNotGrow(t *testing.T) {
	t.Parallel()
	plugins, metrics := registered(t)
	before := gathered(t, metrics)
	for _, c := range append(observe.Completions(), "secret") {
		plugins.Begin("secret", 1).Complete(c, observe.RawUsage{})
	}
	for _, e := range append(observe.Errors(), "secret") {
		s := plugins.Begin("secret", 1)
		s.Event("secret", 1, time.Now())
		s.Fail(e, observe.RawUsage{})
	}
	after := gathered(t, metrics)
	if want := 2 + 1 + 2 + len(observe.Completions()) + len(observe.Errors()); len(before) != want || len(after) != want {
		t.Errorf("%d series before, %d after, want %d", len(before), len(after), want)
	}
	for name := range after {
		if strings.Contains(name, "secret") {
			t.Error(name)
		}
	}
}

func TestManyRequestsAreCountedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plugins, metrics := registered(t)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { plugins.Begin(observe.MethodWrite, 1).Complete(observe.CompletionStop, observe.RawUsage{}) })
		}
		all.Wait()
		if n := gathered(t, metrics)["agentd_provider_completions_total stop"]; n != 100 {
			t.Errorf("%v", n)
		}
	})
}

func TestItsMetricsKeepToTheConventions(t *testing.T) {
	t.Parallel()
	problems, err := testutil.CollectAndLint(providermetrics.New())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestTheDocumentNamesItsMetrics(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, metrics := registered(t)
	for series := range gathered(t, metrics) {
		name, _, _ := strings.Cut(series, " ")
		if !strings.Contains(string(doc), "| `"+name+"` |") {
			t.Errorf("no %s", name)
		}
	}
}
