package webhook_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// BenchmarkAsk is what one decision costs on loopback, with all that is checked
// and a receiver that reads nothing.
func BenchmarkAsk(b *testing.B) {
	s := serve(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":%q,"action":"continue"}`, r.Header.Get("Webhook-Id"))
	})
	gate := open(b, config(b, s.URL)).Hooks().BeforeToolCall
	in := calling("refund")
	b.ReportAllocs()
	for b.Loop() {
		if v, d := ask(b, gate, in); v.Action != hooks.ActionContinue {
			b.Fatal(d.Payload.Reason)
		}
	}
}
