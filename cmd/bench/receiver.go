package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

// receiver is an endpoint of webhooks that has no objection, on loopback and in
// this process. It looks at nothing but the id.
type receiver struct {
	server *http.Server
	url    string
	served chan error
}

func startReceiver(ctx context.Context) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	r := &receiver{
		server: &http.Server{Handler: http.HandlerFunc(goOn), ReadHeaderTimeout: time.Minute},
		url:    "http://" + listener.Addr().String() + "/gate", served: make(chan error, 1),
	}
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

func goOn(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%q,"action":"continue"}`, r.Header.Get("Webhook-Id"))
}

// webhook asks the receiver at a gate. It is as signed and as strict as any.
func (r *receiver) webhook(g hooks.Gate, concurrency int) (*webhook.Webhook, error) {
	secret, err := webhook.ParseSecret("whsec_c2VjcmV0IHRoYXQgb25seSBhIGJlbmNobWFyayBoYXM=")
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{
		ID: "bench", URL: r.url, Gates: []hooks.Gate{g}, Secrets: []webhook.Secret{secret},
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Concurrency: concurrency,
	})
}

// stop ends the receiver at once.
func (r *receiver) stop() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
