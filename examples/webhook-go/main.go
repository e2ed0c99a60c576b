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
	"sync"
	"time"
)

// question is what is asked, as far as this policy looks at it.
type question struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Input struct {
		Call struct{ Name, Arguments string }
	} `json:"input"`
}

type reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// answer has to repeat the id of the question.
type answer struct {
	ID     string  `json:"id"`
	Action string  `json:"action"`
	Reason *reason `json:"reason,omitempty"`
}

// decide is the policy.
func decide(q question) answer {
	if q.Type == "agentd.gate.BeforeToolCall" && q.Input.Call.Name == "memory_clear" {
		return answer{q.ID, "block", &reason{"no_clearing", "Nobody clears the memory here."}}
	}
	return answer{ID: q.ID, Action: "continue"}
}

// signed reports whether one of the signatures is made with key, not long ago.
func signed(key []byte, h http.Header, body []byte) bool {
	at, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	ok := false
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
	// The same question may come again if agentd does not hear the answer. Who
	// has effects of their own, such as a count, keeps answers where all see them.
	var answers sync.Map
	http.HandleFunc("POST /gate", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
		if err != nil || !signed(key, r.Header, body) {
			http.Error(w, "not signed", http.StatusUnauthorized)
			return
		}
		var q question
		if err := json.Unmarshal(body, &q); err != nil || q.ID != r.Header.Get("webhook-id") {
			http.Error(w, "no question", http.StatusBadRequest)
			return
		}
		a, repeated := answers.LoadOrStore(sha256.Sum256(body), decide(q))
		log.Printf("%s %s: %s (repeated: %t)", q.ID, q.Input.Call.Name, a.(answer).Action, repeated)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // who asked has gone
	})
	l, err := net.Listen("tcp", append(os.Args[1:], "127.0.0.1:8787")[0])
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s/gate", l.Addr())
	log.Fatal(http.Serve(l, nil))
}
