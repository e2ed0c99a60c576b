package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/seed-2ca4966b/agentd/api"
)

// pluginsPath is where a process tells of its plugins, and with POST loads them again.
const pluginsPath = "/plugins"

const jsonType = "application/json"

// pluginDoor serves it.
type pluginDoor struct {
	plugins *plugins
	// local says that it answers this machine alone: there is no key.
	local bool
	// stopping is closed when nothing is loaded any more; nil never is.
	stopping <-chan struct{}
}

// ServeHTTP implements http.Handler.
func (d pluginDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.local && !loopback(r.RemoteAddr) {
		http.Error(w, "without an API key only programs on this machine are answered", http.StatusForbidden)
		return
	}
	if d.local {
		// A page whose domain means this machine can send whatever it likes, and read the
		// answer.
		if err := api.Local(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
	}
	switch r.Method {
	case http.MethodGet:
		writeJSON(w, http.StatusOK, d.plugins.report())
	case http.MethodPost:
		// A page in somebody's browser cannot send this without asking.
		if r.Header.Get("Content-Type") != jsonType {
			http.Error(w, "the content type has to be "+jsonType, http.StatusUnsupportedMediaType)
			return
		}
		if err := d.reload(r.Context()); err != nil {
			out := d.plugins.report()
			out.Error = err.Error()
			writeJSON(w, http.StatusConflict, out)
			return
		}
		writeJSON(w, http.StatusOK, d.plugins.report())
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
	}
}

var errStopping = errors.New("the process is about to end")

// reload waits until the plugins are loaded, or why they are not.
func (d pluginDoor) reload(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case d.plugins.reloads <- done:
	case <-d.stopping:
		return errStopping // who would have loaded them is gone
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may have gone
}
