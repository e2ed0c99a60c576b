package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// marker is what nobody may find: the part of the key by which a search for it
// finds every form of it.
const marker = "AAAA1111"

// What a message lets the hook that knows the key do at BeforeProviderHeaders.
const (
	spendNot      = "spend nothing"
	spendCustom   = "put it into a header of its own"
	spendReserved = "put it into Authorization"
	spendHostile  = "put it into two headers at once"
	spendLong     = "put it into a header that is too long"
	spendPanic    = "panic with it"
	spendError    = "fail with it"
	spendTimeout  = "hold it for too long"
)

// spender is a hook that knows the key.
func spender() hooks.Hooks {
	var mu sync.Mutex
	wants := map[string]string{} // what each session has asked for last
	return hooks.Hooks{
		BeforeInput: hooks.Named("listener", "1", func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			mu.Lock()
			defer mu.Unlock()
			wants[in.SessionID] = in.Text
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		}),
		BeforeProviderHeaders: hooks.Named("spender", "1", func(ctx context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			mu.Lock()
			want := wants[in.SessionID]
			mu.Unlock()
			if _, also, ok := strings.Cut(want, tellAnd); ok {
				want = also
			}
			return spend(ctx, want)
		}),
	}
}

func spend(ctx context.Context, want string) (out hooks.BeforeProviderHeadersResult, err error) {
	out.Action = hooks.ActionTransform
	switch want {
	case spendCustom:
		out.Set = []hooks.Header{{Name: "X-Gateway", Value: "Bearer " + providerKey}}
	case spendReserved:
		out.Set = []hooks.Header{{Name: "Authorization", Value: "Bearer " + providerKey}}
	case spendHostile:
		out.Set = []hooks.Header{{Name: "X-Gateway", Value: providerKey + "\r\nX-Too: " + providerKey}}
	case spendLong:
		out.Set = []hooks.Header{{Name: "X-Gateway", Value: strings.Repeat(providerKey, 1000)}}
	case spendPanic:
		panic("cannot set " + providerKey)
	case spendError:
		return out, errors.New("cannot set " + providerKey)
	case spendTimeout:
		<-ctx.Done()
		return out, fmt.Errorf("cannot set %s: %w", providerKey, ctx.Err())
	default:
		out.Action = hooks.ActionContinue
	}
	return out, nil
}

// everyTable is all that is in all tables, a row per line.
func everyTable(t *testing.T, db *storetest.DB) string {
	t.Helper()
	tables := lines(t, db, `
		SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`)
	var all strings.Builder
	for _, table := range tables {
		rows, err := db.Pool.Query(t.Context(), `SELECT row_to_json(t)::text FROM `+table+` AS t`)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range list {
			all.WriteString(table + ": " + row + "\n")
		}
	}
	return all.String()
}

// apiTells has the bodies that the API gives to whoever asks about a run, errors
// among them, and the stream of its events.
func apiTells(t *testing.T, base, session, run string) string {
	t.Helper()
	var all strings.Builder
	ask := func(method, path, body string) {
		req, err := http.NewRequestWithContext(patient(t), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s: %d %v %s\n", path, res.StatusCode, res.Header, text)
	}
	for _, id := range []string{session, newID()} {
		ask(http.MethodGet, "/v1/sessions/"+id+"/events?until=idle", "")
		for _, procedure := range []string{
			agentdv1connect.SessionServiceListEventsProcedure, agentdv1connect.SessionServiceListMessagesProcedure,
			agentdv1connect.LedgerServiceListDecisionsProcedure, agentdv1connect.RunServiceListRunsProcedure,
		} {
			ask(http.MethodPost, procedure, fmt.Sprintf(`{"sessionId":%q}`, id))
		}
	}
	ask(http.MethodGet, "/v1/runs/"+run+"/events", "")
	ask(http.MethodPost, agentdv1connect.RunServiceGetRunProcedure, fmt.Sprintf(`{"runId":%q}`, run))
	ask(http.MethodPost, agentdv1connect.RunServiceStartRunProcedure, `{"sessionId":"`+session+`"}`)
	return all.String()
}

// holdsNothing fails if the key is in text, in any form that is searched for,
// and if what has to be in it is not.
func holdsNothing(t *testing.T, what, text string, has ...string) {
	t.Helper()
	for _, form := range []string{marker, hex.EncodeToString([]byte(marker))} {
		if i := strings.Index(text, form); i >= 0 {
			t.Errorf("the key is in %s: …%s…", what, text[max(i-200, 0):min(i+100, len(text))])
		}
	}
	for _, part := range has {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s: the search finds nothing because it looks at nothing", part, what)
		}
	}
}

// deafDNS is a transport whose names are looked up where nobody answers.
func deafDNS(t *testing.T) *http.Transport {
	t.Helper()
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.LocalAddr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", addr)
	}}}
	return &http.Transport{DialContext: dialer.DialContext}
}

// shouting is a transport that panics with the request that it was given.
type shouting struct{}

func (shouting) RoundTrip(r *http.Request) (*http.Response, error) {
	panic(fmt.Sprintf("no way to send %v", r.Header))
}

// repeating is a provider that refuses some messages, and repeats what it was
// sent.
func repeating(t *testing.T) *openaitest.Provider {
	t.Helper()
	const echo = "Incorrect API key provided: " + providerKey + " (Bearer " + providerKey + ")"
	p := openaitest.Config{Key: providerKey}.New(t)
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		if last := r.Chat.Messages[len(r.Chat.Messages)-1].Text(); last == spendNot || last == spendCustom {
			return openaitest.Error(401, "invalid_request_error", "bad_"+providerKey, echo).With("Www-Authenticate", `Bearer realm="`+providerKey+`"`)
		}
		return openaitest.Text("Hello.").With("X-Echo", r.Get("Authorization"))
	})
	return p
}

// speakingOdd is a provider whose answers are no HTTP.
func speakingOdd(t *testing.T) *openaitest.Provider {
	t.Helper()
	p := openaitest.New(t)
	p.Respond(func(openaitest.Request) openaitest.Answer {
		return openaitest.Text("Hello.").With("X-Bell\x07", providerKey)
	})
	return p
}

// untrusted is the URL of a server whose certificate nobody trusts.
func untrusted(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// TestTheKeyIsNowhereWhateverFails: in no log line, table, answer of the API or
// event, however a model call ends, and whatever a hook that knows the key does
// with it.
func TestTheKeyIsNowhereWhateverFails(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	logged := &output{}
	debug := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	heard := confidant{}
	const query, model, unusable = "/v1?key=" + providerKey, "model_error ", "blocked The check spender gave no usable answer "
	repeats := openai.Config{BaseURL: repeating(t).URL}
	for _, c := range []struct {
		cfg  openai.Config
		say  string
		want string // of the run: reason and error
	}{
		{repeats, spendNot, model + "Incorrect API key provided: [API key] (Bearer [API key])"},
		{repeats, spendCustom, model + "Incorrect API key provided:"},
		{repeats, "hi", "stop "},
		{openai.Config{BaseURL: speakingOdd(t).URL}, "an answer that is no HTTP", model + "call the provider: net/http: "},
		{openai.Config{BaseURL: "http://provider.invalid" + query, HTTPClient: &http.Client{Transport: deafDNS(t)}}, "no name", model + "call the provider: "},
		{openai.Config{BaseURL: untrusted(t) + query}, "no trust", model + "call the provider: tls: "},
		{openai.Config{BaseURL: repeats.BaseURL, HTTPClient: &http.Client{Transport: shouting{}}}, "a panic", model + "the HTTP client broke off"},
		{repeats, spendReserved, unusable + "(unappliable)"},
		{repeats, spendHostile, unusable + "(unappliable)"},
		{repeats, spendLong, unusable + "(unappliable)"},
		{repeats, spendPanic, unusable + "(panic)"},
		{repeats, spendError, unusable + "(error)"},
		{repeats, spendTimeout, unusable + "(timeout)"},
	} {
		c.cfg.APIKey, c.cfg.Logger = providerKey, debug
		m, err := openai.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := newStack(t, db, playing(m), func(p *stackParts) { p.store.Logger, p.api.Log = debug, debug })
		s.Engine.Logger, s.Commands.Logger = debug, debug
		s.checked(t, spender().Then(heard.hooks()))
		j := s.Start(t, s.Session(t), c.say)
		s.Advance(t, j)
		got := scalar[string](t, db, `SELECT concat_ws(' ', reason, coalesce(error, '')) FROM agentd.runs WHERE id = $1`, j.RunID)
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: the run ended with %q, want %q", c.say, got, c.want)
		}
		var said bytes.Buffer
		if err := run(t.Context(), []string{"explain", j.RunID, "--url", s.url}, nil, &said, &said); err != nil {
			t.Error(err)
		}
		holdsNothing(t, c.say+": explain", said.String(), "? BeforeProviderHeaders")
		holdsNothing(t, c.say+": the API", apiTells(t, s.url, j.SessionID, j.RunID), j.RunID, `"gate":"BeforeProviderHeaders"`, `"code":"not_found"`)
		s.stop()
		m.Close()
	}
	holdsNothing(t, "the log", logged.String(), "level=DEBUG", "model call failed", "the HTTP client panicked")
	holdsNothing(t, "the tables", everyTable(t, db), "agentd.hook_payloads: ", "/headers/X-Gateway", "agentd.events: ", "header Authorization belongs to the transport")
	// It was told of the header that another hook has set, as hooks are.
	told := strings.ReplaceAll(strings.Join(heard.told, "\n"), "{Name:X-Gateway Value:Bearer "+providerKey+"}", "")
	holdsNothing(t, "what hooks were told", told, "X-Echo", "Www-Authenticate", "Body:{")
}
