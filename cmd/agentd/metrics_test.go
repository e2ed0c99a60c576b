package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/observe/providermetrics"
)

// scraped is what /metrics answers to a request with this header.
func scraped(t *testing.T, handler http.Handler, authorization string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// refuses is a plugin that fails in the middle.
type refuses struct{}

func (refuses) AfterEvent(observe.Event) error { return errors.New("a secret of somebody") }

func TestAFailingPluginIsCountedAndLogged(t *testing.T) {
	t.Parallel()
	logged := &output{}
	m, err := newMetrics([]namedPlugin{{"refuses", refuses{}}}, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s := m.plugins.Begin(observe.MethodWrite, 1)
		for range 5 {
			s.Event(observe.EventText, 1, time.Now())
		}
		s.Complete(observe.CompletionStop, observe.RawUsage{})
	}
	_, body := scraped(t, m.handler(), "")
	for _, want := range []string{
		`agentd_lifecycle_plugin_failures_total{hook="AfterEvent",reason="error"} 3`, "agentd_lifecycle_hung_goroutines 0",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	log := logged.String()
	if strings.Count(log, "\n") != 1 || !strings.Contains(log, "plugin=refuses hook=AfterEvent reason=error\n") || strings.Contains(log, "secret") {
		t.Errorf("log: %s", log)
	}
}

func TestMetricsAreThoseOfTheProcessUnlessMoreIsAskedFor(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	for _, f := range []metricsFlags{{}, {ProviderMetrics: true}} {
		m, err := newMetrics(f.plugins(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		code, body := scraped(t, m.handler(), "")
		for _, want := range []string{"go_goroutines ", "process_start_time_seconds ", `agentd_build_info{`} {
			if code != http.StatusOK || !strings.Contains(body, "\n"+want) {
				t.Errorf("%d, no %s in\n%s", code, want, body)
			}
		}
		for _, name := range []string{"agentd_provider_", "agentd_lifecycle_"} {
			if strings.Contains(body, name) != f.ProviderMetrics {
				t.Errorf("%+v: %s in\n%s", f, name, body)
			}
		}
	}
}

func TestMetricsNeedTheKeyIfThereIsOne(t *testing.T) {
	t.Parallel()
	fine := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") })
	for _, tt := range []struct {
		key, authorization string
		code               int
	}{
		{"", "", 200}, {"", "Bearer x", 200}, {"sesame", "", 401}, {"sesame", "Bearer", 401}, {"sesame", "Bearer sesam", 401},
		{"sesame", "Basic sesame", 401}, {"sesame", "sesame", 401}, {"sesame", "Bearer sesame", 200}, {"sesame", "bearer sesame", 200},
	} {
		code, body := scraped(t, withKey(tt.key, fine), tt.authorization)
		if code != tt.code || strings.Contains(body, "figures") != (code == 200) {
			t.Errorf("key %q, %q: %d %s", tt.key, tt.authorization, code, body)
		}
	}
}

func TestWhatCannotBeMeasuredIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	p := providermetrics.New()
	if _, err := newMetrics([]namedPlugin{{"a", p}, {"a", p}}, quiet); !errors.Is(err, observe.ErrDuplicate) {
		t.Errorf("one id twice: %v", err)
	}
	if _, err := newMetrics([]namedPlugin{{"a", p}, {"b", p}}, quiet); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("one collector twice: %v", err)
	}
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for address, want := range map[string]string{taken.Addr().String(): "choose another port with --metrics-listen", "nowhere": "listen on nowhere"} {
		if _, err := (metricsFlags{MetricsListen: address}).scrapes(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAProcessOutlivesItsMetrics(t *testing.T) {
	t.Parallel()
	said := make(logLines, 8)
	log := slog.New(slog.NewTextHandler(said, nil))
	m, err := newMetrics(nil, log)
	if err != nil {
		t.Fatal(err)
	}
	serve := func() (net.Listener, func()) {
		listener, err := (metricsFlags{MetricsListen: "127.0.0.1:0"}).scrapes(t.Context(), log)
		if err != nil {
			t.Fatal(err)
		}
		if line := <-said; !strings.Contains(line, "url="+localURL(listener)+"/metrics") {
			t.Errorf("log: %s", line)
		}
		return listener, m.serveMetrics(listener, log)
	}
	listener, stop := serve()
	if code, _ := get(t, localURL(listener)+"/metrics"); code != http.StatusOK {
		t.Errorf("scrape: %d", code)
	}
	if code, _ := get(t, localURL(listener)+"/healthz"); code != http.StatusNotFound {
		t.Errorf("something else: %d", code)
	}
	stop()
	if len(said) > 0 {
		t.Errorf("log: %s", <-said)
	}
	listener, stop = serve()
	_ = listener.Close()
	if line := <-said; !strings.Contains(line, "metrics are not served any more") {
		t.Errorf("log: %s", line)
	}
	stop()
}

// logLines are what is written, one by one.
type logLines chan string

func (l logLines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }
