package api_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestKey(t *testing.T) {
	t.Parallel()
	const key = "s3cret-key"
	b := setup(t, withKey(key))
	tests := []struct {
		authorization string
		allowed       bool
	}{
		{"Bearer " + key, true},
		{"bearer " + key, true},
		{"BEARER   " + key, true},
		{"", false},
		{"Bearer", false},
		{"Bearer ", false},
		{"Bearer wrong", false},
		{"Bearer " + key + "x", false},
		{"Bearer " + key[1:], false},
		{"Bearer " + strings.ToUpper(key), false},
		{"Basic " + key, false},
		{key, false},
		{"Bearer " + key + " " + key, false},
	}
	for _, tt := range tests {
		t.Run(tt.authorization, func(t *testing.T) {
			t.Parallel()
			req := connect.NewRequest(&agentdv1.ListSessionsRequest{})
			if tt.authorization != "" {
				req.Header().Set("Authorization", tt.authorization)
			}
			_, err := b.sessions.ListSessions(t.Context(), req)
			header := http.Header{"Authorization": {tt.authorization}}
			res := b.get(t, "/v1/sessions/"+uuid.NewString()+"/events", header)
			if tt.allowed {
				if err != nil {
					t.Errorf("RPC: %v, want an answer", err)
				}
				wantJSONError(t, res, http.StatusNotFound, "not_found", "not_found")
				return
			}
			wantError(t, err, connect.CodeUnauthenticated, "unauthenticated")
			wantJSONError(t, res, http.StatusUnauthorized, "unauthenticated", "unauthenticated")
			if got := res.header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("WWW-Authenticate %q, want Bearer", got)
			}
		})
	}
}

func TestKeyGuardsEveryRouteButHealth(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("k"))
	if res := b.get(t, "/healthz", nil); res.status != http.StatusOK {
		t.Errorf("/healthz: %d, want 200", res.status)
	}
	for _, path := range []string{"/", "/v1/nothing", "/healthz/x"} {
		if res := b.get(t, path, nil); res.status != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", path, res.status)
		}
	}
	d, _ := setup(t).documented(t)
	d.routes(func(method, path string, call protoreflect.MethodDescriptor) {
		// A stream of Connect has its error in the body.
		res := b.tryOut(t, method, path, call)
		if streams := call != nil && call.IsStreamingServer(); !streams && res.status != http.StatusUnauthorized {
			t.Errorf("%s %s: %d, want 401", method, path, res.status)
		}
	})
	for _, option := range []connect.ClientOption{connect.WithClientOptions(), connect.WithHTTPGet(), connect.WithGRPCWeb()} {
		sessions := agentdv1connect.NewSessionServiceClient(b.client, b.url, option)
		runs := agentdv1connect.NewRunServiceClient(b.client, b.url, option)
		_, err := sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{}))
		wantError(t, err, connect.CodeUnauthenticated, "unauthenticated")
		_, err = runs.GetRun(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{}))
		wantError(t, err, connect.CodeUnauthenticated, "unauthenticated")
		err = b.watch(t.Context(), t, sessions, &agentdv1.WatchEventsRequest{}).end()
		wantError(t, err, connect.CodeUnauthenticated, "unauthenticated")
	}
}

func TestKeyIsTheActor(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("k"))
	req := connect.NewRequest(&agentdv1.CreateSessionRequest{})
	req.Header().Set("Authorization", "Bearer k")
	res, err := b.sessions.CreateSession(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.events(t, res.Msg.GetSessionId())[0].Actor; got != (event.Actor{Kind: event.ActorKey, ID: "default"}) {
		t.Errorf("actor %v, want key default", got)
	}
}

func TestKeylessServerServesNoOtherOrigin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	host := strings.TrimPrefix(b.url, "http://")
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	h := func(kv ...string) http.Header {
		out := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			out.Set(kv[i], kv[i+1])
		}
		return out
	}
	tests := map[string]struct {
		header http.Header
		reason string // "" means that the request passes
	}{
		"no browser":                {h(), ""},
		"same origin":               {h("Sec-Fetch-Site", "same-origin", "Origin", b.url), ""},
		"typed into the address":    {h("Sec-Fetch-Site", "none"), ""},
		"origin of this host":       {h("Origin", b.url), ""},
		"cross-site":                {h("Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"), "cross_origin"},
		"another port of localhost": {h("Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"), "cross_origin"},
		"old browser":               {h("Origin", "https://evil.example"), "cross_origin"},
		"null origin":               {h("Origin", "null"), "cross_origin"},
		"localhost":                 {h("Host", "localhost:"+port), ""},
		"LOCALHOST":                 {h("Host", "LOCALHOST"), ""},
		"IPv6":                      {h("Host", "[::1]:"+port), ""},
		"IPv6 without port":         {h("Host", "[::1]"), ""},
		"another loopback address":  {h("Host", "127.9.9.9"), ""},
		"rebound name":              {h("Host", "evil.example:"+port), "host_not_allowed"},
		"name that starts alike":    {h("Host", "localhost.evil.example"), "host_not_allowed"},
		"address that starts alike": {h("Host", "127.0.0.1.evil.example"), "host_not_allowed"},
		"public address":            {h("Host", "192.0.2.1"), "host_not_allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := b.get(t, "/v1/sessions/"+uuid.NewString()+"/events", tt.header)
			post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+agentdv1connect.SessionServiceCreateSessionProcedure, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			post.Header = tt.header.Clone()
			post.Header.Set("Content-Type", "application/json")
			created := b.do(t, post)
			if tt.reason == "" {
				wantJSONError(t, res, http.StatusNotFound, "not_found", "not_found")
				if created.status != http.StatusOK {
					t.Errorf("POST: %d, want 200", created.status)
				}
				return
			}
			wantJSONError(t, res, http.StatusForbidden, "permission_denied", tt.reason)
			if created.status != http.StatusForbidden || created.header.Get("Agentd-Reason") != tt.reason {
				t.Errorf("POST: %d, %v, want 403 with %s", created.status, created.header, tt.reason)
			}
		})
	}
}

func TestKeyIsEnoughForAnyOriginAndHost(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("k"))
	res := b.get(t, "/v1/sessions/"+uuid.NewString()+"/events", http.Header{
		"Authorization": {"Bearer k"}, "Origin": {"https://app.example"}, "Sec-Fetch-Site": {"cross-site"}, "Host": {"chat.example"},
	})
	wantJSONError(t, res, http.StatusNotFound, "not_found", "not_found")
}
