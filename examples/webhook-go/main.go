// Command webhook-go is a policy for agentd as an HTTP endpoint, with nothing but
// the standard library: WEBHOOK_SECRET=whsec_… go run . [ADDRESS]
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// decide is the policy. It may be asked the same again if agentd does not hear
// the answer: who counts, or has other effects, does so once per id.
func decide(gate, tool string) answer {
	if gate == "agentd.gate.BeforeToolCall" && tool == "memory_clear" {
		return answer{Action: "block", Reason: map[string]string{"code": "no_clearing", "text": "Nobody clears the memory here."}}
	}
	return answer{Action: "continue"}
}

type answer struct {
	ID     string            `json:"id"` // that of the question
	Action string            `json:"action"`
	Reason map[string]string `json:"reason,omitempty"`
}

// signed reports whether one of the signatures is made with key, not long ago.
func signed(key []byte, h http.Header, body []byte) (ok bool) {
	at, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, one := range strings.Fields(h.Get("webhook-signature")) {
		ok = hmac.Equal([]byte(one), []byte(want)) || ok
	}
	return ok
}

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(key) < 24 {
		log.Fatal("WEBHOOK_SECRET is no secret such as whsec_…")
	}
	http.HandleFunc("POST /gate", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
		if err != nil || !signed(key, r.Header, body) {
			http.Error(w, "not signed", http.StatusUnauthorized)
			return
		}
		var q struct {
			ID, Type string
			Input    struct{ Call struct{ Name string } }
		}
		if err := json.Unmarshal(body, &q); err != nil || q.ID != r.Header.Get("webhook-id") {
			http.Error(w, "no question", http.StatusBadRequest)
			return
		}
		a := decide(q.Type, q.Input.Call.Name)
		a.ID = q.ID
		log.Println(q.ID, q.Input.Call.Name, a.Action)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // who asked may have gone
	})
	l, err := net.Listen("tcp", append(os.Args[1:], "127.0.0.1:8787")[0])
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s/gate", l.Addr())
	log.Fatal(http.Serve(l, nil))
}
