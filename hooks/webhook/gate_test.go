package webhook_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

var everyGate = []hooks.Gate{
	hooks.GateBeforeInput, hooks.GateBeforeRunStart, hooks.GateTransformContext,
	hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse,
	hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall,
}

// exchange is a question as it arrived.
type exchange struct {
	header http.Header
	body   []byte
}

// member is a part of the question, as bytes.
func (x exchange) member(t testing.TB, name string) string {
	t.Helper()
	var q map[string]json.RawMessage
	if err := json.Unmarshal(x.body, &q); err != nil {
		t.Fatal(err)
	}
	return string(q[name])
}

// answering answers what change makes, and tells what it was asked.
func answering(t testing.TB, changes string) (gate hooks.Hooks, asked func() exchange) {
	t.Helper()
	questions := make(chan exchange, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the question: %v", err)
		}
		questions <- exchange{r.Header.Clone(), raw}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_, _ = fmt.Fprintf(w, `{"id":%q,%s}`, r.Header.Get("Webhook-Id"), changes)
	})
	cfg := config(t, s.URL+"/gate")
	cfg.Gates = everyGate
	return open(t, cfg).Hooks(), func() exchange { return <-questions }
}

const canaryValue = "header-value-canary"

var (
	ref      = hooks.RunRef{TenantID: "acme", SessionID: "s", RunID: "r", Agent: "support"}
	headers  = []hooks.Header{{Name: "X-Run", Value: canaryValue}, {Name: "X-Trace", Value: canaryValue}}
	messages = []hooks.Message{{
		ID: "m", Role: hooks.RoleAssistant, Position: 7,
		Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: "c", Name: "refund", Arguments: "{}"}}},
	}}
)

// atGate asks one gate, and expects the verdict, the question and the way in
// which the ledger names it.
func atGate[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, g hooks.Gate, f func(hooks.Hooks) hooks.Func[In, Out], in In, changes string, action hooks.Action, changed In, top string) {
	t.Helper()
	t.Run(string(g)+" "+string(action), func(t *testing.T) {
		t.Parallel()
		h, asked := answering(t, changes)
		v, d := ask(t, f(h), in)
		if v.Action != action || !reflect.DeepEqual(v.Value, changed) || d.Outcome != hooks.OutcomeOK {
			t.Errorf("%s %s (%s) of\n%+v; want %s of\n%+v", v.Action, d.Outcome, d.Payload.Reason, v.Value, action, changed)
		}
		x := asked()
		expect(t, "id", x.header.Get("Webhook-Id"), d.ID)
		expect(t, "id", x.member(t, "id"), `"`+d.ID+`"`)
		if want := `{"type":"agentd.gate.` + string(g) + `","id":"` + d.ID + `",` + top + `,"input":`; !bytes.HasPrefix(x.body, []byte(want)) {
			t.Errorf("asked\n%s; want\n%s", x.body, want)
		}
		if strings.Contains(string(x.body), canaryValue) {
			t.Errorf("it tells the value of a header: %s", x.body)
		}
		sum := sha256.Sum256([]byte(x.member(t, "input")))
		digested := hex.EncodeToString(sum[:]) == hex.EncodeToString(d.InputSHA256[:])
		if names := g == hooks.GateBeforeProviderHeaders || g == hooks.GateAfterProviderResponse; digested == names {
			t.Errorf("the input is as the ledger digests it: %t: %s", digested, x.member(t, "input"))
		}
	})
}

func TestEveryGateIsAskedAndAnswered(t *testing.T) {
	t.Parallel()
	const (
		run  = `"tenant_id":"acme","agent":"support","session_id":"s","run_id":"r"`
		turn = run + `,"turn":2,"attempt":3`
	)
	input := hooks.BeforeInput{TenantID: "acme", SessionID: "s", InputID: "i", Agent: "support", Text: "hé <b>"}
	said := input
	said.Text = "hi"
	atInput := func(h hooks.Hooks) hooks.BeforeInputFunc { return h.BeforeInput }
	inSession := `"tenant_id":"acme","agent":"support","session_id":"s"`
	atGate(t, hooks.GateBeforeInput, atInput, input, `"action":"continue"`, hooks.ActionContinue, input, inSession)
	atGate(t, hooks.GateBeforeInput, atInput, input, `"action":"transform","text":"hi"`, hooks.ActionTransform, said, inSession)
	atGate(t, hooks.GateBeforeInput, atInput, input, `"action":"handled","reply":"Bye."`, hooks.ActionHandled, input, inSession)

	start := hooks.BeforeRunStart{RunRef: ref, System: "a", Messages: messages, Hidden: []hooks.HiddenMessage{}, Tools: []string{"x", "y"}}
	narrowed := start
	narrowed.System, narrowed.Tools, narrowed.Hidden = "b", []string{"y"}, []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "psst"}}
	atGate(t, hooks.GateBeforeRunStart, func(h hooks.Hooks) hooks.BeforeRunStartFunc { return h.BeforeRunStart }, start,
		`"action":"transform","system":"b","tools":["y"],"append":[{"role":"user","text":"psst"}]`, hooks.ActionTransform, narrowed, run)

	context := hooks.TransformContext{RunRef: ref, Turn: 2, Attempt: 3, System: "a", Messages: messages}
	emptied, same := context, context
	emptied.Messages = []hooks.Message{}
	same.Messages = slices.Clone(messages)
	same.Messages[0].Position = 8
	atContext := func(h hooks.Hooks) hooks.TransformContextFunc { return h.TransformContext }
	atGate(t, hooks.GateTransformContext, atContext, context, `"action":"transform","messages":[]`, hooks.ActionTransform, emptied, turn)
	atGate(t, hooks.GateTransformContext, atContext, context, `"action":"transform","messages":[{"id":"m","role":"assistant","position":8,
		"parts":[{"type":"tool_call","tool_call":{"id":"c","name":"refund","arguments":"{}"}}]}]`, hooks.ActionTransform, same, turn)

	request := hooks.BeforeProviderHeaders{RunRef: ref, Turn: 2, Attempt: 3, Model: "tiny", Headers: headers}
	tagged := request
	tagged.Headers = []hooks.Header{{Name: "X-Run", Value: "1"}}
	atGate(t, hooks.GateBeforeProviderHeaders, func(h hooks.Hooks) hooks.BeforeProviderHeadersFunc { return h.BeforeProviderHeaders }, request,
		`"action":"transform","set":[{"name":"x-run","value":"1"}],"remove":["x-trace"]`, hooks.ActionTransform, tagged, turn)

	body := hooks.BeforeProviderRequest{RunRef: ref, Turn: 2, Attempt: 3, Model: "tiny", Body: `{"a":1}`}
	other := body
	other.Body = `{"a": 2}`
	atGate(t, hooks.GateBeforeProviderRequest, func(h hooks.Hooks) hooks.BeforeProviderRequestFunc { return h.BeforeProviderRequest }, body,
		`"action":"transform","body":"{\"a\": 2}"`, hooks.ActionTransform, other, turn)

	response := hooks.AfterProviderResponse{RunRef: ref, Turn: 2, Attempt: 3, Model: "tiny", Status: 200, Headers: headers}
	atGate(t, hooks.GateAfterProviderResponse, func(h hooks.Hooks) hooks.AfterProviderResponseFunc { return h.AfterProviderResponse }, response,
		`"action":"block","reason":{"code":"no","text":"No.","rule":"r"},"annotations":{"a":"b"}`, hooks.ActionBlock, response, turn)

	call := calling("refund")
	edited := call
	edited.Call.Arguments = "{}"
	atCall := func(h hooks.Hooks) hooks.BeforeToolCallFunc { return h.BeforeToolCall }
	inCall := run + `,"turn":2,"revision":1`
	atGate(t, hooks.GateBeforeToolCall, atCall, call, `"action":"ask"`, hooks.ActionAsk, call, inCall)
	atGate(t, hooks.GateBeforeToolCall, atCall, call, `"action":"terminate"`, hooks.ActionTerminate, call, inCall)
	atGate(t, hooks.GateBeforeToolCall, atCall, call, `"action":"transform","arguments":"{}"`, hooks.ActionTransform, edited, inCall)

	execute := hooks.BeforeExecute{RunRef: ref, Turn: 2, Attempt: 3, Call: call.Call}
	atGate(t, hooks.GateBeforeExecute, func(h hooks.Hooks) hooks.BeforeExecuteFunc { return h.BeforeExecute }, execute,
		`"action":"block"`, hooks.ActionBlock, execute, turn)

	output := hooks.AfterToolCall{RunRef: ref, Turn: 2, Attempt: 3, Call: call.Call, Content: "secret"}
	redacted, withheld := output, output
	redacted.Content, redacted.IsError = "-", true
	withheld.Content = hooks.WithheldText
	atOutput := func(h hooks.Hooks) hooks.AfterToolCallFunc { return h.AfterToolCall }
	atGate(t, hooks.GateAfterToolCall, atOutput, output, `"action":"transform","content":"-","is_error":true`, hooks.ActionTransform, redacted, turn)
	atGate(t, hooks.GateAfterToolCall, atOutput, output, `"action":"withhold"`, hooks.ActionWithhold, withheld, turn)
}

// TestTheLedgerHasWhatTheEndpointSaid, and who it is.
func TestTheLedgerHasWhatTheEndpointSaid(t *testing.T) {
	t.Parallel()
	h, asked := answering(t, `"action":"block","reason":{"code":"too_much","text":"No.","rule":"limits"},"annotations":{"score":"0.9"}`)
	v, d := ask(t, h.BeforeToolCall, calling("refund"))
	asked()
	expect(t, "reason", v.Reason, hooks.Reason{Code: "too_much", Text: "No.", Rule: "limits"})
	expect(t, "row", fmt.Sprint(d.HookKind, " ", d.HookID, " ", d.HookVersion, " ", d.RuleID, " ", d.ReasonCode, " ", d.Payload), "webhook policy 1 limits too_much {No.  {\"score\":\"0.9\"}}")
}

func TestTheHookSetSaysHowTheEndpointIsAsked(t *testing.T) {
	t.Parallel()
	cfg := config(t, "https://policy.example/gate")
	cfg.Gates, cfg.Options = everyGate, []hooks.Option{
		hooks.InPhase(hooks.PhaseValidate), hooks.OnFailureClosed(), hooks.Only(hooks.Scope{Tools: []string{"refund"}}), hooks.OfKind(hooks.KindGo),
	}
	other, err := webhook.ParseSecret("whsec_" + strings.Repeat("QUJD", 8))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Secrets = append(cfg.Secrets, other)
	cfg.CA = bytes.Clone(testCA(t))
	w := open(t, cfg)
	set := w.Hooks().Set()
	expect(t, "hooks", len(set.Hooks), len(everyGate))
	r := set.Hooks[0]
	sum := sha256.Sum256(cfg.CA)
	expect(t, "config", r.Config, `{"url":"https://policy.example/gate","allow":["127.0.0.0/8","::1/128"],"ca_sha256":"`+hex.EncodeToString(sum[:])+
		`","concurrency":16,"queue":64,"breaker":{"failures":5,"open":"10s"}}`)
	expect(t, "kind", r.Kind, hooks.KindWebhook)
	expect(t, "phase", r.Phase, hooks.PhaseValidate)
	if r.Only == nil || r.Pure {
		t.Errorf("%+v", r)
	}
	if all := fmt.Sprintf("%+v %#v %v %x", set, cfg, cfg.Secrets, cfg.Secrets); strings.Contains(all, "MfKQ9r8") || strings.Contains(all, "ABCABC") {
		t.Errorf("it shows a secret: %s", all)
	}
}

// testCA is some certificate.
func testCA(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
