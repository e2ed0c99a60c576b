package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWithoutAKeyPluginsAreThisMachinesAlone(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]int{"127.0.0.1:4000": http.StatusOK, "[::1]:4000": http.StatusOK, "10.0.0.7:4000": http.StatusForbidden} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, pluginsPath, http.NoBody)
		r.RemoteAddr = from
		pluginDoor{plugins: newPlugins(pluginRunFlags{}, nil, nil, nil, nil), local: true}.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d", from, w.Code)
		}
	}
}
