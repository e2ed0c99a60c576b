package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	env := []string{"AGENTD_SCRIPT=" + script(t, `{"fail": {"status": 400, "message": "not\ntoday"}}`)}
	s := startServe(t, db, env, "--roles", "api")
	working := startServe(t, db, env, "--roles", "worker")
	chat(t, s.url, strings.NewReader("one\ntwo\nthree\n"), "--session", "mine").wait(t)
	working.signal(t, syscall.SIGTERM)
	working.wait(t)
	chat(t, s.url, strings.NewReader("four\n"))
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'queued'`)
	last := awaitRow(t, db, `SELECT id::text FROM agentd.runs WHERE status = 'failed' ORDER BY id DESC LIMIT 1`)

	for _, test := range []struct {
		args []string
		code int
		rows int // with the header
		want []string
	}{
		{args: nil, rows: 5, want: []string{"RUN ", "STATUS", "queued  -", "failed  model_error  demo"}},
		{args: []string{"--limit", "2"}, rows: 3},
		{args: []string{"--session", "mine"}, rows: 4, want: []string{last + "  failed  "}},
		{args: []string{last}, rows: 17, want: []string{"status:", "failed", "error:", "not today"}},
		{args: []string{"--session", "nobody's"}, code: 1, want: []string{`there is no session "nobody's"`}},
		{args: []string{newID()}, code: 1, want: []string{"there is no such session, run or approval"}},
		{args: []string{"--limit", "0"}, code: 2, want: []string{"--limit 0"}},
		{args: []string{"--url", "nowhere"}, code: 1, want: []string{"no server to talk to"}},
	} {
		code, out, said := ofServer(s.url, "1m")(t, append([]string{"runs"}, test.args...)...)
		if code != test.code || test.rows > 0 && strings.Count(out, "\n") != test.rows {
			t.Errorf("runs %v: exit code %d, printed\n%s", test.args, code, out)
		}
		for _, want := range test.want {
			if !strings.Contains(out+said, want) {
				t.Errorf("runs %v: no %q in\n%s%s", test.args, want, out, said)
			}
		}
	}
}

func TestVerifySaysWhatDiffers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startServe(t, db, nil)
	if code := chat(t, s.url, strings.NewReader("ping\n")).wait(t); code != 0 {
		t.Fatal(code)
	}
	code, out, _ := ofDatabase(db.URL)(t, "verify")
	if code != 0 || !strings.HasPrefix(out, "1 session, 1 run, 1 tool call, ") || !strings.HasSuffix(out, ": 0 differences\n") {
		t.Errorf("exit code %d, printed %q", code, out)
	}
	if _, err := db.Pool.Exec(t.Context(), `UPDATE agentd.runs SET reason = 'forged'`); err != nil {
		t.Fatal(err)
	}
	code, out, _ = ofDatabase(db.URL)(t, "verify")
	if code != 1 || !strings.Contains(out, "forged") || !strings.HasSuffix(out, ": 1 difference\n") {
		t.Errorf("exit code %d, printed %q", code, out)
	}
}

func TestVerifyNeedsASchema(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	for url, want := range map[string]string{db.URL: "agentd migrate", "::": "not the address of a Postgres"} {
		code, _, said := ofDatabase(url)(t, "verify")
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("exit code %d, said %q", code, said)
		}
	}
}
