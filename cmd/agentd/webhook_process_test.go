package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// receiver is one of the examples as a process of its own.
func receiver(t *testing.T, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+webhookSecret)
	return launch(t, "the receiver", cmd)
}

// TestTheReceiversOfTheExamplesDecide for a server, and nobody does once they are
// gone.
func TestTheReceiversOfTheExamplesDecide(t *testing.T) {
	t.Parallel()
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "receiver")
		if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/webhook-go").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		p := receiver(t, binary, "127.0.0.1:0")
		decides(t, p, p.await(t, &p.err, `listening on (\S+)`))
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		python := findPython(t)
		if python == "" {
			return
		}
		p := receiver(t, python, "../../examples/webhook-python/receiver.py", "0")
		decides(t, p, p.await(t, &p.out, `listening on (\S+)`))
	})
}

func decides(t *testing.T, p *process, url string) {
	t.Helper()
	judgesSignatures(t, url)
	db := storetest.New(t)
	dir := configFiles(t, map[string]string{"agentd.yaml": `hooks:
  - webhook: {url: "` + url + `", gates: [BeforeInput, BeforeToolCall, AfterToolCall], secret_env: POLICY_SECRET, allow: 127.0.0.1/32}
    id: policy
    timeout: 20s
`})
	s := startServe(t, db, []string{
		"AGENTD_CONFIG=" + filepath.Join(dir, "agentd.yaml"), "POLICY_SECRET=" + webhookSecret,
		"AGENTD_TOOL_PERMISSIONS=*=allow", "HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "AGENTD_SCRIPT=" + script(t,
			`{"tool": {"name": "memory_write", "arguments": {"key": "name", "content": "Ada"}}}, {"tool": {"name": "memory_clear", "arguments": {}}}`,
			`{"text": "Done."}`),
	})
	const decisions = `SELECT coalesce(string_agg(gate || ' ' || hook_kind || ' ' || action || ' ' || outcome || ' ' || coalesce(reason_code, '-'), ', ' ORDER BY ledger_seq), '')
		FROM agentd.hook_decisions WHERE session_id = (SELECT session_id FROM agentd.hook_decisions ORDER BY at DESC LIMIT 1)`
	say := func(want string) {
		t.Helper()
		c := chat(t, s.url, strings.NewReader("go\n"))
		c.wait(t)
		if got := awaitRow(t, db, decisions); got != want {
			t.Errorf("decided\n%s\nand not\n%s\nprinted %s%s", got, want, c.out.String(), c.err.String())
		}
	}
	say("BeforeInput webhook continue ok -, BeforeToolCall webhook continue ok -, BeforeToolCall webhook block ok no_clearing, AfterToolCall webhook continue ok -")
	if n := awaitRow(t, db, `SELECT count(*)::text FROM agentd.hook_payloads WHERE reason = 'Nobody clears the memory here.'`); n != "1" {
		t.Errorf("%s reasons are stored", n)
	}
	p.kill(t)
	say("BeforeInput webhook block unavailable connect")
	for what, text := range map[string]string{"the log": s.out.String() + s.err.String(), "the tables": everyTable(t, db)} {
		if strings.Contains(text, webhookSecret[7:]) {
			t.Errorf("%s have the secret", what)
		}
	}
}

// judgesSignatures: what is not signed, not with the secret, or not now is
// refused, and the same question gets the same answer.
func judgesSignatures(t *testing.T, url string) {
	t.Helper()
	const question = `{"type":"agentd.gate.BeforeToolCall","id":"d","input":{"call":{"name":"ping","arguments":"{}"}}}`
	post := func(at time.Time, secret, signature string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		key, _ := base64.StdEncoding.DecodeString(secret)
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "d.%d.%s", at.Unix(), question)
		r.Header.Set("webhook-id", "d")
		r.Header.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
		r.Header.Set("webhook-signature", signature+"v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(bytes.TrimSpace(body))
	}
	now := time.Now()
	for name, test := range map[string]struct {
		at        time.Time
		secret    string
		signature string
		code      int
	}{
		"signed":               {now, webhookSecret[6:], "", http.StatusOK},
		"signed twice":         {now, webhookSecret[6:], "v1,bm90IHRoaXMgb25l ", http.StatusOK},
		"with another secret":  {now, "bm90IHRoaXMgb25lLCBidXQgYW5vdGhlciBvbmU=", "", http.StatusUnauthorized},
		"long ago":             {now.Add(-time.Hour), webhookSecret[6:], "", http.StatusUnauthorized},
		"in the future":        {now.Add(time.Hour), webhookSecret[6:], "", http.StatusUnauthorized},
		"in another scheme":    {now, webhookSecret[6:], "x", http.StatusUnauthorized},
		"with more than ASCII": {now, "bm90IHRoaXMgb25lLCBidXQgYW5vdGhlciBvbmU=", "v1,é ", http.StatusUnauthorized},
	} {
		code, said := post(test.at, test.secret, test.signature)
		if ok := strings.Contains(strings.ReplaceAll(said, " ", ""), `"id":"d","action":"continue"`); code != test.code || ok != (code == http.StatusOK) {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
}

// TestWhatAnEndpointSaysUnaskedIsNowhere: behind an answer, and instead of one.
func TestWhatAnEndpointSaysUnaskedIsNowhere(t *testing.T) {
	t.Parallel()
	const canary = "canary-5f2c"
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		answer := `{"id":"` + r.Header.Get("webhook-id") + `","action":"block","reason":{"text":"Not today."}}`
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s%s", len(answer), answer, canary)
		_ = conn.Close()
	}))
	t.Cleanup(endpoint.Close)
	db := storetest.New(t)
	dir := configFiles(t, map[string]string{"agentd.yaml": `hooks:
  - webhook: {url: "` + endpoint.URL + `", gates: BeforeInput, secret_env: POLICY_SECRET, allow: 127.0.0.1/32}
    timeout: 20s
`})
	s := startServe(t, db, []string{
		"AGENTD_CONFIG=" + filepath.Join(dir, "agentd.yaml"), "POLICY_SECRET=" + webhookSecret, "AGENTD_SCRIPT=" + script(t, `{"text": "Done."}`),
	})
	c := chat(t, s.url, strings.NewReader("go\n"))
	c.wait(t)
	if said := c.out.String() + c.err.String(); !strings.Contains(said, "Not today.") {
		t.Errorf("the chat says %s", said)
	}
	s.signal(t, syscall.SIGTERM)
	s.wait(t)
	for what, text := range map[string]string{"the log": s.out.String() + s.err.String(), "the chat": c.err.String(), "the tables": everyTable(t, db)} {
		if strings.Contains(text, canary) {
			t.Errorf("%s tells what nobody asked for", what)
		}
	}
}
