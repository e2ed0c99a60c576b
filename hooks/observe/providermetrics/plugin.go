// Package providermetrics is the lifecycle plugin that agentd brings along: what
// requests to providers take, cost and come to, as Prometheus metrics.
//
// It has no hook of events, so a chunk costs nothing. Its labels are words of
// closed sets: neither a tenant nor a model nor an agent is among them, and the
// number of series does not grow.
package providermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// ID is the id to register it under.
const ID = "provider-metrics"

// Plugin counts requests. It comes from [New], is safe for concurrent use, and is
// to be registered with an [observe.Registry] and with a [prometheus.Registerer].
type Plugin struct {
	duration   *prometheus.HistogramVec
	firstEvent prometheus.Histogram
	tokens     *prometheus.CounterVec
	completed  *prometheus.CounterVec
	failed     *prometheus.CounterVec
}

var (
	_ observe.CompletionHook = (*Plugin)(nil)
	_ observe.ErrorHook      = (*Plugin)(nil)
	_ prometheus.Collector   = (*Plugin)(nil)
)

// The values of the labels whose sets are not those of [observe].
const (
	resultCompleted, resultFailed = "completed", "failed"
	tokensInput, tokensOutput     = "input", "output"
)

// New returns a plugin that has counted nothing. All series are there from the
// beginning, with 0: a rate over one that appears later misses its first increase.
func New() *Plugin {
	p := &Plugin{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentd_provider_request_duration_seconds", Help: "How long requests to model providers took, until the end of the answer.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600},
		}, []string{"result"}),
		firstEvent: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentd_provider_first_event_seconds", Help: "How long it took until the first event of an answer was there.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60},
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentd_provider_tokens_total", Help: "Tokens that model providers have reported.",
		}, []string{"class"}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentd_provider_completions_total", Help: "Requests to model providers whose answer was whole, by why it ended.",
		}, []string{"class"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentd_provider_errors_total", Help: "Requests to model providers without a whole answer, by why.",
		}, []string{"class"}),
	}
	for _, result := range []string{resultCompleted, resultFailed} {
		p.duration.WithLabelValues(result)
	}
	for _, class := range []string{tokensInput, tokensOutput} {
		p.tokens.WithLabelValues(class)
	}
	for _, class := range observe.Completions() {
		p.completed.WithLabelValues(string(class))
	}
	for _, class := range observe.Errors() {
		p.failed.WithLabelValues(string(class))
	}
	return p
}

// OnComplete implements [observe.CompletionHook].
func (p *Plugin) OnComplete(c observe.Completion) error {
	p.completed.WithLabelValues(string(c.Class)).Inc()
	p.ended(resultCompleted, c.Exchange)
	return nil
}

// OnError implements [observe.ErrorHook].
func (p *Plugin) OnError(f observe.Failure) error {
	p.failed.WithLabelValues(string(f.Class)).Inc()
	p.ended(resultFailed, f.Exchange)
	return nil
}

func (p *Plugin) ended(result string, e observe.Exchange) {
	p.duration.WithLabelValues(result).Observe(e.Elapsed.Seconds())
	if e.Events > 0 {
		p.firstEvent.Observe(e.FirstEvent.Seconds())
	}
	p.tokens.WithLabelValues(tokensInput).Add(float64(e.Usage.Input))
	p.tokens.WithLabelValues(tokensOutput).Add(float64(e.Usage.Output))
}

func (p *Plugin) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.duration, p.firstEvent, p.tokens, p.completed, p.failed}
}

// Describe implements [prometheus.Collector].
func (p *Plugin) Describe(out chan<- *prometheus.Desc) {
	for _, c := range p.collectors() {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (p *Plugin) Collect(out chan<- prometheus.Metric) {
	for _, c := range p.collectors() {
		c.Collect(out)
	}
}
