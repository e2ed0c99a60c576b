package api

import (
	_ "embed"
	"net/http"
)

// document describes every route. The protos and tools/openapi make it.
//
//go:embed openapi/openapi.json
var document []byte

func serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache") // it changes with the binary
	// The client may have gone; there is nobody else to tell.
	_, _ = w.Write(document)
}
