package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestWithoutAKeyPluginsAreThisMachinesAlone(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]int{"127.0.0.1:4000": http.StatusOK, "[::1]:4000": http.StatusOK, "10.0.0.7:4000": http.StatusForbidden} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8080"+pluginsPath, http.NoBody)
		r.RemoteAddr = from
		pluginDoor{plugins: newPlugins(pluginRunFlags{}, nil, nil, nil, nil), local: true}.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d", from, w.Code)
		}
	}
}

// TestWithoutAKeyPagesOfBrowsersAreNotAnswered: also one whose domain was made to mean
// this machine, for which it is of one origin with the server.
func TestWithoutAKeyPagesOfBrowsersAreNotAnswered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		host   string
		header http.Header
		want   int
	}{
		"a program":        {"127.0.0.1:8080", nil, http.StatusOK},
		"another domain":   {"evil.example:8080", http.Header{"Origin": {"http://evil.example:8080"}, "Sec-Fetch-Site": {"same-origin"}}, http.StatusForbidden},
		"without a header": {"evil.example:8080", nil, http.StatusForbidden},
		"another origin":   {"localhost:8080", http.Header{"Origin": {"http://evil.example"}}, http.StatusForbidden},
		"another site":     {"localhost:8080", http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := httptest.NewRequestWithContext(t.Context(), method, "http://"+test.host+pluginsPath, http.NoBody)
			r.RemoteAddr = "127.0.0.1:4000"
			for key, values := range test.header {
				r.Header[key] = values
			}
			r.Header.Set("Content-Type", jsonType)
			p := newPlugins(pluginRunFlags{}, nil, nil, nil, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var loading sync.WaitGroup
			loading.Go(func() {
				select {
				case done := <-p.reloads:
					done <- nil
				case <-ctx.Done():
				}
			})
			w := httptest.NewRecorder()
			pluginDoor{plugins: p, local: true}.ServeHTTP(w, r)
			cancel()
			loading.Wait()
			if w.Code != test.want {
				t.Errorf("%s of %s: %d, want %d", method, name, w.Code, test.want)
			}
		}
	}
}

// TestAReloadDoesNotHoldUpAProcessThatStops: nobody is left to load the plugins.
func TestAReloadDoesNotHoldUpAProcessThatStops(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	close(stopping)
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, pluginsPath, http.NoBody)
	r.Header.Set("Content-Type", jsonType)
	pluginDoor{plugins: newPlugins(pluginRunFlags{}, nil, nil, nil, nil), stopping: stopping}.ServeHTTP(w, r)
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), errStopping.Error()) {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}
