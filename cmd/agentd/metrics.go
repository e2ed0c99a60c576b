package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/observe/providermetrics"
)

// metricsFlags say what is measured and where it is told.
type metricsFlags struct {
	ProviderMetrics bool   `env:"AGENTD_PROVIDER_METRICS" help:"Measure requests to models: latency, tokens, how they end. /metrics has the figures."`
	MetricsListen   string `env:"AGENTD_METRICS_LISTEN" placeholder:"ADDRESS" help:"Serve /metrics here, to everybody who can connect, and no longer beside the API, where it needs the API key if there is one."`
}

// scrapes opens the port for /metrics, nil if it has none of its own.
func (f metricsFlags) scrapes(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	if f.MetricsListen == "" {
		return nil, nil
	}
	listener, err := listenAt(ctx, f.MetricsListen, "--metrics-listen", "AGENTD_METRICS_LISTEN")
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "url", localURL(listener)+"/metrics")
	return listener, nil
}

// namedPlugin is a lifecycle plugin and its id. Where it is a collector too, it is
// told on /metrics.
type namedPlugin struct {
	id     string
	plugin any
}

// plugins are the lifecycle plugins in their order. One of yours goes here:
// docs/lifecycle.md shows how.
func (f metricsFlags) plugins() []namedPlugin {
	var all []namedPlugin
	if f.ProviderMetrics {
		all = append(all, namedPlugin{providermetrics.ID, providermetrics.New()})
	}
	return all
}

// metrics is what a process measures.
type metrics struct {
	registry *prometheus.Registry
	// plugins are what models are asked through.
	plugins *observe.Registry
}

// maxScrapes is how many may be answered at once.
const maxScrapes = 4

// newMetrics registers plugins, and what there is to measure. Labels are words of
// closed sets: nothing tells tenants, sessions or models apart.
func newMetrics(plugins []namedPlugin, log *slog.Logger) (*metrics, error) {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentd_lifecycle_plugin_failures_total", Help: "How often a lifecycle plugin was left out of a request.",
	}, []string{"hook", "reason"})
	logged := observe.LogReports(log)
	m := &metrics{registry: prometheus.NewRegistry(), plugins: observe.NewRegistry(func(r observe.Report) {
		failures.WithLabelValues(string(r.Hook), string(r.Reason)).Inc()
		logged(r)
	})}
	version, commit := versionAndCommit()
	told := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "agentd_build_info", Help: "1, with what this binary is.",
			ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": runtime.Version()},
		}, func() float64 { return 1 }),
	}
	for _, p := range plugins {
		if err := m.plugins.Register(p.id, p.plugin); err != nil {
			return nil, err
		}
		if c, ok := p.plugin.(prometheus.Collector); ok {
			told = append(told, c)
		}
	}
	if m.plugins.Seal() > 0 {
		told = append(told, failures, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "agentd_lifecycle_hung_goroutines", Help: "Goroutines that wait for a lifecycle plugin which was given up.",
		}, func() float64 { return float64(m.plugins.Hung()) }))
	}
	for _, c := range told {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// handler answers scrapes.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// withKey lets those through who show the API key, everybody if there is none.
func withKey(key string, next http.Handler) http.Handler {
	if key == "" {
		return next
	}
	shows := api.ShowsKey(key)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !shows(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "an API key is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveMetrics serves /metrics alone on listener until the function is called. The
// process goes on if it breaks: runs are worth more than their figures.
func (m *metrics) serveMetrics(listener net.Listener, log *slog.Logger) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.handler())
	server := newServer(mux, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	return func() {
		_ = server.Close() // whoever scrapes comes back; it has told the listener's error already
		<-served
	}
}
