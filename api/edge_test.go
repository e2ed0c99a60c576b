package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
)

const (
	startRun  = "/agentd.v1.RunService/StartRun"
	cancelRun = "/agentd.v1.RunService/CancelRun"
	getRun    = "/agentd.v1.RunService/GetRun"
)

// raw sends a body as a client without a library does. Its Content-Type is JSON
// unless there is one in header.
func (b *bundle) raw(t *testing.T, method, path, body string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	return b.do(t, req)
}

func (b *bundle) post(t *testing.T, path, body string) answer {
	t.Helper()
	return b.raw(t, http.MethodPost, path, body, nil)
}

// wantConnectError checks everything that an error of a unary call promises to
// those who read it without a library, and returns its field.
func wantConnectError(t *testing.T, res answer, status int, code, reason string) (field string) {
	t.Helper()
	raw, err := io.ReadAll(res.body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%d %q: %v", res.status, raw, err)
	}
	if res.status != status || body.Code != code || body.Message == "" || res.header.Get("Agentd-Reason") != reason || res.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s, want status %d, code %s, reason %s and a message", res.status, res.header, raw, status, code, reason)
	}
	if strings.Contains(body.Message, "v1.") || strings.Contains(body.Message, "proto:") {
		t.Errorf("the message tells what is inside: %s", body.Message)
	}
	if len(body.Details) != 1 || body.Details[0].Type != "agentd.v1.ErrorReason" {
		t.Fatalf("details %v, want one", body.Details)
	}
	value, err := base64.RawStdEncoding.DecodeString(body.Details[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	var detail agentdv1.ErrorReason
	if err := proto.Unmarshal(value, &detail); err != nil || detail.GetReason() != reason {
		t.Errorf("detail %v, %v, want reason %s", &detail, err, reason)
	}
	return detail.GetField()
}

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatIsWrongBeforeTheServicesSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	huge := fmt.Sprintf(`{"sessionId":%q,"text":%q}`, id, strings.Repeat("x", 1<<20))
	gzipped := http.Header{"Content-Encoding": {"gzip"}}
	binary := http.Header{"Content-Type": {"application/proto"}}
	for name, tt := range map[string]struct {
		body         string
		header       http.Header
		status       int
		code, reason string
		field        string
	}{
		"no JSON":            {`{"text":`, nil, 400, "invalid_argument", "malformed_json", ""},
		"empty":              {"", nil, 400, "invalid_argument", "malformed_json", ""},
		"two values":         {`{} {}`, nil, 400, "invalid_argument", "malformed_json", ""},
		"bytes":              {"\xff\xfe{}", nil, 400, "invalid_argument", "malformed_json", ""},
		"broken escape":      {`{"text":"\ud8"}`, nil, 400, "invalid_argument", "malformed_json", ""},
		"escape at the end":  {`{"text":"\`, nil, 400, "invalid_argument", "malformed_json", ""},
		"a list":             {`[]`, nil, 400, "invalid_argument", "malformed_json", ""},
		"null":               {`null`, nil, 400, "invalid_argument", "malformed_json", ""},
		"deep":               {strings.Repeat("[", 100_000), nil, 400, "invalid_argument", "malformed_json", ""},
		"charset":            {`{`, http.Header{"Content-Type": {"application/json; charset=utf-8"}}, 400, "invalid_argument", "malformed_json", ""},
		"another type":       {`{"sessionId":5}`, nil, 400, "invalid_argument", "invalid_argument", "session_id"},
		"another type, too":  {`{"session_id":{}}`, nil, 400, "invalid_argument", "invalid_argument", "session_id"},
		"twice":              {`{"text":"a","text":"b"}`, nil, 400, "invalid_argument", "invalid_argument", ""},
		"unknown field":      {`{"sessionId":"x","idempotencykey":"k","zzz":1}`, nil, 400, "invalid_argument", "unknown_field", "idempotencykey"},
		"too large":          {huge, nil, 413, "resource_exhausted", "too_large", ""},
		"too large, zipped":  {zipped(t, huge), gzipped, 413, "resource_exhausted", "too_large", ""},
		"broken gzip":        {"{}", gzipped, 400, "invalid_argument", "invalid_argument", ""},
		"unknown encoding":   {"{}", http.Header{"Content-Encoding": {"br"}}, 501, "unimplemented", "unsupported_encoding", ""},
		"no protobuf":        {"\xff\xff", binary, 400, "invalid_argument", "malformed_protobuf", ""},
		"protobuf, no UTF-8": {"\x1a\x01\xff", binary, 400, "invalid_argument", "malformed_protobuf", ""},
		"bad timeout":        {"{}", http.Header{"Connect-Timeout-Ms": {"soon"}}, 400, "invalid_argument", "invalid_argument", ""},
		"too large protobuf": {strings.Repeat("x", 1<<20+1), binary, 413, "resource_exhausted", "too_large", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := b.raw(t, http.MethodPost, startRun, tt.body, tt.header)
			if field := wantConnectError(t, res, tt.status, tt.code, tt.reason); field != tt.field {
				t.Errorf("field %q, want %q", field, tt.field)
			}
		})
	}
	t.Cleanup(func() { // behind the parallel ones
		if n := len(b.events(t, id)); n != 1 {
			t.Errorf("%d events, want only session.created", n)
		}
	})
}

func TestARequestOfExactlyTheLimitIsRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit = 1 << 20
	head := `{"sessionId":"` + uuid.NewString() + `","text":"hi"}`
	body := head + strings.Repeat(" ", limit-len(head))
	wantConnectError(t, b.post(t, startRun, body), 404, "not_found", "not_found")
	wantConnectError(t, b.post(t, startRun, body+" "), 413, "resource_exhausted", "too_large")
}

// endless is a body that does not end by itself.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

func TestABodyWithoutEndIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+startRun, endless{})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	c := *b
	c.client = h2c(t) // a client of HTTP/1.1 may be cut off before it reads
	wantConnectError(t, c.do(t, req), 413, "resource_exhausted", "too_large")
}

func TestCallsThatDoNotExistAndMediaThatIsNotTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/agentd.v1.RunService/Nothing", "/agentd.v1.NoService/Nothing"} {
		wantConnectError(t, b.post(t, path, "{}"), 501, "unimplemented", "no_route")
		res := b.raw(t, http.MethodPost, path, "{}", http.Header{"Content-Type": {"text/plain"}})
		wantJSONError(t, res, 501, "unimplemented", "no_route")
	}
	for _, contentType := range []string{"text/plain", "application/xml", "", "application/x-www-form-urlencoded"} {
		res := b.raw(t, http.MethodPost, startRun, "{}", http.Header{"Content-Type": {contentType}})
		if !strings.Contains(res.header.Get("Accept-Post"), "application/json") {
			t.Errorf("Accept-Post %q, want what is taken", res.header.Get("Accept-Post"))
		}
		wantJSONError(t, res, 415, "invalid_argument", "unsupported_media_type")
	}
	wantJSONError(t, b.post(t, agentdv1connect.SessionServiceWatchEventsProcedure, "{}"), 415, "invalid_argument", "unsupported_media_type")
	res := b.get(t, startRun, nil)
	if res.header.Get("Allow") != http.MethodPost {
		t.Errorf("Allow %q, want POST", res.header.Get("Allow"))
	}
	wantJSONError(t, res, 405, "unimplemented", "method_not_allowed")
}

func TestACallByGETIsCheckedAsOneByPOST(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, run := b.finishedSession(t)
	get := func(message string) answer { return b.get(t, getRun+"?connect=v1&encoding=json&message="+message, nil) }
	if res := get("%7B%22runId%22:%22" + run + "%22%7D"); res.status != http.StatusOK {
		t.Errorf("status %d, want the run", res.status)
	}
	const list = "/agentd.v1.RunService/ListRuns"
	if field := wantConnectError(t, b.post(t, list, `{"pageSize":"many"}`), 400, "invalid_argument", "invalid_argument"); field != "page_size" {
		t.Errorf("field %q, want page_size", field)
	}
	wantConnectError(t, get("%7B"), 400, "invalid_argument", "malformed_json")
	if field := wantConnectError(t, get("%7B%22id%22:%22x%22%7D"), 400, "invalid_argument", "unknown_field"); field != "id" {
		t.Errorf("field %q, want id", field)
	}
}

func TestStreamsAndGRPCRefuseTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := &agentdv1.WatchEventsRequest{SessionId: strings.Repeat("x", 2<<20)}
	broken := &agentdv1.WatchEventsRequest{SessionId: "\xff"}
	for name, options := range map[string][]connect.ClientOption{
		"connect": {connect.WithCodec(careless{})}, "gRPC-Web": {connect.WithCodec(careless{}), connect.WithGRPCWeb()},
		"gRPC": {connect.WithCodec(careless{}), connect.WithGRPC()},
	} {
		client := h2c(t)
		sessions := agentdv1connect.NewSessionServiceClient(client, b.url, options...)
		t.Log(name)
		wantError(t, b.watch(t.Context(), t, sessions, long).end(), connect.CodeResourceExhausted, "too_large")
		wantError(t, b.watch(t.Context(), t, sessions, broken).end(), connect.CodeInvalidArgument, "malformed_protobuf")
		_, err := sessions.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: "\xff"}))
		wantError(t, err, connect.CodeInvalidArgument, "malformed_protobuf")
	}
}

// careless is a codec that writes whatever text it is given.
type careless struct{}

func (careless) Name() string { return "proto" }

func (careless) Marshal(m any) ([]byte, error) {
	text := ""
	switch m := m.(type) {
	case *agentdv1.WatchEventsRequest:
		text = m.GetSessionId()
	case *agentdv1.DeleteSessionRequest:
		text = m.GetSessionId()
	}
	return wireBytes(1, text), nil
}

func (careless) Unmarshal(b []byte, m any) error { return proto.Unmarshal(b, m.(proto.Message)) }

func TestABinaryClientMayBeNewer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, run := b.finishedSession(t)
	// The field in which notes ride, and one of tomorrow.
	body := string(wireBytes(1<<29-1, `{"Reason":"forged"}`)) + string(wireBytes(1, run)) + string(wireBytes(15, "?"))
	res := b.raw(t, http.MethodPost, getRun, body, http.Header{"Content-Type": {"application/proto"}})
	raw, err := io.ReadAll(res.body)
	var got agentdv1.GetRunResponse
	if err != nil || res.status != http.StatusOK || proto.Unmarshal(raw, &got) != nil || got.GetRun().GetId() != run {
		t.Errorf("%d %q %v, want the run", res.status, raw, err)
	}
}
