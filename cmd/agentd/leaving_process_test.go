package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// sayOverHTTP makes a session and starts a run on a connection of its own, which
// is closed with the answer. It returns their ids.
func sayOverHTTP(t *testing.T, url, text string) (session, run string) {
	t.Helper()
	var said struct{ SessionID, RunID string }
	for _, ask := range []struct{ call, body string }{
		{"SessionService/CreateSession", "{}"}, {"RunService/StartRun", `{"sessionId":"%s","text":"` + text + `"}`},
	} {
		body := ask.body
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, said.SessionID)
		}
		req, err := http.NewRequestWithContext(patient(t), http.MethodPost, url+"/agentd.v1."+ask.call, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(res.Body).Decode(&said)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d, %v", ask.call, res.StatusCode, err)
		}
	}
	return said.SessionID, said.RunID
}

// tab is a page that shows a session.
type tab struct {
	*sseReader
	close func()
}

func openTab(t *testing.T, url, session string) tab {
	t.Helper()
	ctx, cancel := context.WithCancel(patient(t))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/sessions/"+session+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	shut := func() {
		cancel()
		_ = res.Body.Close()
	}
	t.Cleanup(shut)
	return tab{newSSEReader(res.Body), shut}
}

// answered is what is stored of a session's answer.
func answered(t *testing.T, url, session string) (text string, partial bool) {
	t.Helper()
	for m, err := range dial(t, url).Messages(patient(t), &agentdv1.ListMessagesRequest{SessionId: session}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetRole() == agentdv1.Role_ROLE_ASSISTANT {
			text, partial = text+m.GetParts()[0].GetText(), m.GetPartial()
		}
	}
	return text, partial
}

func TestAClosedTabCancelsNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	hold, open := gate(t)
	t.Cleanup(open)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "what is shown, ", "split": "words", "every": "5ms"}, `+hold+`, {"text": "and what is not"}`)})
	session, run := sayOverHTTP(t, s.url, "go")
	page := openTab(t, s.url, session)
	page.facts(t, 3)
	page.close()
	// The model is in the middle of its answer, and stays there until the server
	// has seen the page go: another one reads as far as it got.
	other := openTab(t, s.url, session)
	for {
		if f := other.facts(t, 1)[0]; f.Type == event.TypeAssistantDelta {
			break
		}
	}
	other.close()
	open()
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'completed' AND id = '`+run+`'`)
	if text, partial := answered(t, s.url, session); text != "what is shown, and what is not" || partial {
		t.Errorf("stored is %q, partial %t", text, partial)
	}
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.events WHERE type IN ('run.cancel_requested', 'run.cancelled', 'assistant.stopped')`); n != 0 {
		t.Errorf("%d events of a cancel", n)
	}
}

func TestACancelStopsARunThatIsBeingWatched(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	hold, open := gate(t)
	t.Cleanup(open)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "what is shown"}, `+hold+`, {"text": " and what is not"}`)})
	session, run := sayOverHTTP(t, s.url, "go")
	page := openTab(t, s.url, session)
	var seen []fact
	for len(seen) == 0 || seen[len(seen)-1].Type != event.TypeAssistantDelta {
		seen = append(seen, page.facts(t, 1)...)
	}
	if err := dial(t, s.url).CancelRun(patient(t), run, "enough"); err != nil {
		t.Fatal(err)
	}
	for seen[len(seen)-1].Type != event.TypeRunCancelled {
		seen = append(seen, page.facts(t, 1)...)
	}
	if e := only[event.RunCancelled](t, seen); e.Reason != "enough" {
		t.Errorf("got %+v", e)
	}
	only[event.AssistantStopped](t, seen)
	if text, partial := answered(t, s.url, session); text != "what is shown" || !partial {
		t.Errorf("stored is %q, partial %t", text, partial)
	}
	sameStory(t, "the page", seen, stored(t, db, session))
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.events WHERE type ~ '^run\.(completed|failed|cancelled)$'`); n != 1 {
		t.Errorf("%d ends", n)
	}
}
