package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// oneEvent is a server whose streams have one event.
type oneEvent struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	event *agentdv1.Event
}

func (s oneEvent) WatchEvents(_ context.Context, _ *connect.Request[agentdv1.WatchEventsRequest], stream *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
	return stream.Send(&agentdv1.WatchEventsResponse{Event: s.event})
}

func TestFollowEndsWithAnEventThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, handler := agentdv1connect.NewSessionServiceHandler(oneEvent{event: &agentdv1.Event{
		Seq: 5, RunId: "r", Type: string(event.TypeAssistantDelta), DataJson: "{",
	}})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := clientFlags{URL: server.URL, Patience: time.Minute}.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	talk := &conversation{client: c, sessionID: "s"}
	if _, err := talk.follow(t.Context(), "r", 4, func(event.Payload) {}); err == nil || !strings.Contains(err.Error(), "decode assistant.delta") {
		t.Errorf("error %v", err)
	}
}

func TestURLFileIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeURLFile(dir+"/missing/pg", "postgres://x"); err == nil {
		t.Error("wrote into a directory that is not there")
	}
	if err := os.Mkdir(dir+"/pg.url", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeURLFile(dir+"/pg", "postgres://x"); err == nil {
		t.Error("replaced a directory")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestOnlyATerminalIsMuted(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	if _, err := muteEcho(null); err == nil {
		t.Error("muted /dev/null")
	}
	if asTerminal(&std{in: null, out: null}) != nil || asTerminal(&std{in: strings.NewReader("")}) != nil {
		t.Error("took something else for a terminal")
	}
	if w, h := (&terminal{out: null}).size(); w != 80 || h != 24 {
		t.Errorf("size %d×%d", w, h)
	}
}
