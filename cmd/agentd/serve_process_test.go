package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	empty := storetest.New(t, storetest.Empty)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })
	const nowhere = "AGENTD_DATABASE_URL=postgres://127.0.0.1:1/x"
	withDB := "AGENTD_DATABASE_URL=" + db.URL
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		env  []string
		args string
		code int
		want []string
	}{
		"AnOldSchema":     {env: []string{"AGENTD_DATABASE_URL=" + empty.URL, "AGENTD_LISTEN=127.0.0.1:0"}, args: "serve", code: 1, want: []string{"agentd migrate"}},
		"NoDatabase":      {args: "serve", code: 1, want: []string{"AGENTD_DATABASE_URL"}},
		"NoSuchDatabase":  {env: []string{"AGENTD_DATABASE_URL=postgres://127.0.0.1:1/x", "AGENTD_LISTEN=127.0.0.1:0"}, args: "serve", code: 1, want: []string{"127.0.0.1:1"}},
		"NoURL":           {env: []string{"AGENTD_DATABASE_URL=::", "AGENTD_LISTEN=127.0.0.1:0"}, args: "serve", code: 1, want: []string{"agentd:"}},
		"AnOpenDoor":      {env: []string{withDB, "AGENTD_LISTEN=0.0.0.0:0"}, args: "serve", code: 1, want: []string{"AGENTD_API_KEY", "loopback"}},
		"AnOpenDevDoor":   {env: []string{withDB}, args: "dev --listen :0", code: 1, want: []string{"AGENTD_API_KEY", "loopback"}},
		"ABusyPort":       {env: []string{withDB, "AGENTD_LISTEN=" + busy.Addr().String()}, args: "serve", code: 1, want: []string{busy.Addr().String() + " is in use", "--listen", "AGENTD_LISTEN"}},
		"ABusyDevPort":    {args: "dev --listen " + busy.Addr().String(), code: 1, want: []string{"is in use", "--listen 127.0.0.1:8081"}},
		"NoAddress":       {env: []string{withDB, "AGENTD_API_KEY=k"}, args: "serve --listen nowhere", code: 1, want: []string{"listen on nowhere"}},
		"AnUnknownFlag":   {args: "serve --rolls api", code: 2, want: []string{"--rolls"}},
		"AnUnknownRole":   {env: []string{withDB}, args: "serve --roles api,cook", code: 2, want: []string{`"cook"`, "api, worker"}},
		"AnUnknownLevel":  {env: []string{"AGENTD_LOG_LEVEL=loud"}, args: "serve", code: 2, want: []string{"loud"}},
		"ABrokenScript":   {env: []string{withDB, "AGENTD_LISTEN=127.0.0.1:0"}, args: "serve --script " + broken, code: 1, want: []string{broken, "scenarios"}},
		"ABrokenModelURL": {env: []string{withDB, "AGENTD_LISTEN=127.0.0.1:0", "OPENAI_BASE_URL=ftp://x"}, args: "serve", code: 1, want: []string{"OPENAI_BASE_URL", "http"}},
		"ABrokenModelKey": {env: []string{withDB, "AGENTD_LISTEN=127.0.0.1:0", "OPENAI_API_KEY=sk\n"}, args: "serve", code: 1, want: []string{"OPENAI_API_KEY", "visible ASCII"}},
		"ABrokenOtherURL": {env: []string{withDB, "AGENTD_LISTEN=127.0.0.1:0", "ANTHROPIC_BASE_URL=ftp://x"}, args: "serve", code: 1, want: []string{"ANTHROPIC_BASE_URL", "http"}},
		"ABrokenOtherKey": {env: []string{withDB, "AGENTD_LISTEN=127.0.0.1:0", "ANTHROPIC_API_KEY=sk\n"}, args: "serve", code: 1, want: []string{"ANTHROPIC_API_KEY", "visible ASCII"}},
		"NoLengthAtAll":   {env: []string{withDB, "AGENTD_ANTHROPIC_MAX_TOKENS=0"}, args: "serve", code: 2, want: []string{"--anthropic-max-tokens", "0 is not positive"}},
		"ABrokenQuirk":    {env: []string{withDB, "AGENTD_OPENAI_REASONING=sometimes"}, args: "serve", code: 2, want: []string{"--openai-reasoning", `"sometimes"`, "never, tool_calls, always"}},
		"ALostScript":     {env: []string{nowhere}, args: "serve --script /nowhere.json", code: 1, want: []string{"/nowhere.json"}},
		"ALostDevScript":  {args: "dev --script /nowhere.json", code: 1, want: []string{"/nowhere.json"}},
		"ABrokenDevURL":   {env: []string{"OPENAI_BASE_URL=ftp://x"}, args: "dev", code: 1, want: []string{"OPENAI_BASE_URL", "http"}},
		"AModelURLFirst":  {env: []string{nowhere, "OPENAI_BASE_URL=ftp://x"}, args: "serve", code: 1, want: []string{"OPENAI_BASE_URL"}},
		"NoKeyFile":       {env: []string{withDB, "AGENTD_API_KEY_FILE=/nowhere"}, args: "serve", code: 1, want: []string{"/nowhere"}},
		"NoDevKeyFile":    {env: []string{withDB, "AGENTD_API_KEY_FILE=/nowhere"}, args: "dev", code: 1, want: []string{"/nowhere"}},
		"MigrateNoWhere":  {args: "migrate", code: 1, want: []string{"AGENTD_DATABASE_URL"}},
		"NoCommand":       {args: "sing", code: 2, want: []string{"sing", "--help"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, said := runAgentd(t, options{dir: openDir(t), env: test.env}, strings.Fields(test.args)...)
			if code != test.code || out != "" {
				t.Errorf("exit code %d, want %d; printed %q", code, test.code, out)
			}
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in %q", want, said)
				}
			}
			if strings.Contains(said, "Postgres accepts connections") {
				t.Errorf("a Postgres was started for nothing: %s", said)
			}
			if strings.Count(said, "agentd: ") != 1 {
				t.Errorf("said %q", said)
			}
		})
	}
}

func TestMigrateMakesADatabaseThatServes(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	for range 2 {
		if code, _, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, "migrate"); code != 0 {
			t.Fatalf("exit code %d, said %s", code, said)
		}
	}
	s := startServe(t, db, nil)
	c := chat(t, s.url, strings.NewReader("ping\n"))
	if code := c.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestServeLogsJSON(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := start(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0", "AGENTD_LOG_FORMAT=json", "AGENTD_LOG_LEVEL=debug"}}, "serve")
	if got := p.await(t, &p.err, `"msg":"(serving)"`); got != "serving" {
		t.Error(got)
	}
}

// get returns the status and body of a GET.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return getWithKey(t, url, "")
}

// getWithKey is get with an API key, unless that is "".
func getWithKey(t *testing.T, url, key string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServeSpeaksHTTP1AndHTTP2OnOnePort(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, nil)
	for major, set := range map[int]func(*http.Protocols){
		1: func(p *http.Protocols) { p.SetHTTP1(true) },
		2: func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		set(transport.Protocols)
		response, err := (&http.Client{Transport: transport}).Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		transport.CloseIdleConnections()
		if response.ProtoMajor != major || response.StatusCode != http.StatusOK {
			t.Errorf("HTTP/%d: got HTTP/%d and %d", major, response.ProtoMajor, response.StatusCode)
		}
	}
}

func TestServeWithAKey(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Unspecified, since with a key it may listen everywhere.
	s := startServe(t, db, []string{"AGENTD_API_KEY_FILE=" + file, "AGENTD_LISTEN=0.0.0.0:0"})
	if code, _ := get(t, s.url+"/v1/sessions/x/events"); code != http.StatusUnauthorized {
		t.Errorf("without a key: %d", code)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, s.url+path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	code, _, said := runAgentd(t, options{env: []string{"AGENTD_URL=" + s.url, "AGENTD_API_KEY_FILE=" + file}, stdin: strings.NewReader("ping\n")}, "chat")
	if code != 0 {
		t.Errorf("with the key: exit code %d, said %s", code, said)
	}
	if strings.Contains(s.err.String(), "sesame") || strings.Contains(s.err.String(), "no API key") {
		t.Errorf("log: %s", s.err.String())
	}
}

func TestReadyzNeedsTheDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, nil, "--roles", "api")
	// From another database, since none may close itself.
	conn, err := pgx.Connect(t.Context(), strings.Replace(db.URL, "/"+db.Name, "/postgres", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	allow := func(connections string) {
		t.Helper()
		for _, statement := range []string{
			`ALTER DATABASE "` + db.Name + `" ALLOW_CONNECTIONS ` + connections,
			`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '` + db.Name + `' AND application_name = 'agentd'`,
		} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	allow("true")
	if code, _ := get(t, s.url+"/readyz"); code != http.StatusOK {
		t.Errorf("after the connections were lost: %d", code)
	}
	allow("false")
	if code, body := get(t, s.url+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "database") {
		t.Errorf("without the database: %d %q", code, body)
	}
	allow("true")
	if code, _ := get(t, s.url+"/readyz"); code != http.StatusOK {
		t.Errorf("with the database again: %d", code)
	}
}

func TestWorkerAloneServesNoAPI(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_LISTEN=0.0.0.0:0"}, "--roles", "worker")
	if code, _ := get(t, s.url+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	if code, _ := get(t, s.url+"/v1/sessions/x/events"); code != http.StatusNotFound {
		t.Errorf("API: %d", code)
	}
}

func TestSIGTERM(t *testing.T) {
	t.Parallel()

	t.Run("LetsTheStepFinish", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "first "}, `+wait+`, {"text": "last"}`)})
		c := chat(t, s.url, strings.NewReader("go\n"), "--patience", "1s", "--log-level", "debug")
		// On a stream that is open by now: once the run is over nobody is here to open one.
		c.await(t, &c.err, `msg=event .*type=(assistant\.delta)`)
		session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)
		events := followSSE(t, s.url+"/v1/sessions/"+session+"/events")
		s.signal(t, syscall.SIGTERM)
		s.await(t, &s.err, `msg="stopping`)
		awaitStatus(t, s.url+"/readyz", http.StatusServiceUnavailable)
		if code, _ := get(t, s.url+"/healthz"); code != http.StatusOK {
			t.Errorf("/healthz: %d", code)
		}
		open()
		if code := s.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if got := <-events; !strings.Contains(got, "run.completed") {
			t.Errorf("the stream ended before the run: %s", got)
		}
		if strings.Contains(s.err.String(), "cut off") {
			t.Error("the streams were not ended in time")
		}
		if code := c.wait(t); code != 0 || c.out.String() != "first last\n" {
			t.Errorf("chat: exit code %d, printed %q", code, c.out.String())
		}
	})

	t.Run("HandsTheRunToAnotherProcess", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		env := []string{"AGENTD_SCRIPT=" + script(t, `{"text": "first "}, `+wait+`, {"text": "last"}`), "AGENTD_GRACE=0s"}
		front := startServe(t, db, env, "--roles", "api")
		leaving := startServe(t, db, env, "--roles", "worker")
		c := chat(t, front.url, strings.NewReader("go\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
		startServe(t, db, env, "--roles", "worker")
		leaving.signal(t, syscall.SIGTERM)
		if code := leaving.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		open()
		if code := c.wait(t); code != 0 || c.out.String() != "first last\n" {
			t.Errorf("chat: exit code %d, printed %q", code, c.out.String())
		}
		if cause := awaitRow(t, db, `SELECT payload ->> 'cause' FROM agentd.events WHERE type = 'run.released'`); cause != "shutdown" {
			t.Errorf("released: %s", cause)
		}
	})

	t.Run("ASecondOneEndsItAtOnce", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "x"}, {"stall": true}`), "AGENTD_GRACE=1h"})
		chat(t, s.url, strings.NewReader("go\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
		s.signal(t, syscall.SIGTERM)
		s.await(t, &s.err, `msg="stopping`)
		s.signal(t, syscall.SIGHUP) // would have hooks loaded again, and ends nothing
		s.signal(t, syscall.SIGINT)
		if code := s.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("DuringTheStartIsNoFailure", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { silent.Close() })
		p := start(t, options{env: []string{"AGENTD_DATABASE_URL=postgres://" + silent.Addr().String() + "/x?sslmode=disable", "AGENTD_LISTEN=127.0.0.1:0"}}, "serve")
		conn, err := silent.Accept() // it is connecting now, and gets no answer
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		p.signal(t, syscall.SIGHUP)
		p.signal(t, syscall.SIGTERM)
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// followSSE returns a channel that gets all of a stream once it has ended. It
// returns when the first line is there.
func followSSE(t *testing.T, url string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request) //nolint:bodyclose // closed by the reader below
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(response.Body)
	first, err := body.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		rest, _ := io.ReadAll(body)
		_ = response.Body.Close()
		all <- first + string(rest)
	}()
	return all
}

// awaitStatus polls: nothing tells when a process has changed its mind.
func awaitStatus(t *testing.T, url string, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		code, _ := get(t, url)
		if code == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %d, want %d", url, code, want)
		}
	}
}
