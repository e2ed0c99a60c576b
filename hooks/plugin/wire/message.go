package wire

import (
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// Text makes s what a message takes: what is not UTF-8 becomes U+FFFD, as it does
// in the ledger.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// each converts a list. None is nil, since messages cannot tell it from an empty
// one.
func each[A, B any](list []A, f func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, f(a))
	}
	return out
}

// texts makes each what a message takes.
func texts(list []string) []string { return each(list, Text) }

func optional(s *string) *string {
	if s == nil {
		return nil
	}
	t := Text(*s)
	return &t
}

func run(r hooks.RunRef) *pluginv1.RunRef {
	return &pluginv1.RunRef{TenantId: Text(r.TenantID), SessionId: Text(r.SessionID), RunId: Text(r.RunID), Agent: Text(r.Agent)}
}

func runOf(r *pluginv1.RunRef) hooks.RunRef {
	return hooks.RunRef{TenantID: r.GetTenantId(), SessionID: r.GetSessionId(), RunID: r.GetRunId(), Agent: r.GetAgent()}
}

func message(m hooks.Message) *pluginv1.Message {
	return &pluginv1.Message{
		Id: Text(m.ID), RunId: Text(m.RunID), Role: Text(string(m.Role)), Parts: each(m.Parts, part),
		Partial: m.Partial, Hidden: m.Hidden, Position: m.Position,
	}
}

func messageOf(m *pluginv1.Message) hooks.Message {
	return hooks.Message{
		ID: m.GetId(), RunID: m.GetRunId(), Role: hooks.Role(m.GetRole()), Parts: each(m.GetParts(), partOf),
		Partial: m.GetPartial(), Hidden: m.GetHidden(), Position: m.GetPosition(),
	}
}

func part(p hooks.Part) *pluginv1.Part {
	out := &pluginv1.Part{Type: Text(string(p.Type)), Text: Text(p.Text)}
	if p.ToolCall != nil {
		out.ToolCall = call(*p.ToolCall)
	}
	if r := p.ToolResult; r != nil {
		out.ToolResult = &pluginv1.ToolResult{
			CallId: Text(r.CallID), Content: Text(r.Content), IsError: r.IsError, Reason: Text(string(r.Reason)),
		}
	}
	return out
}

func partOf(p *pluginv1.Part) hooks.Part {
	out := hooks.Part{Type: hooks.PartType(p.GetType()), Text: p.GetText()}
	if p.GetToolCall() != nil {
		c := callOf(p.GetToolCall())
		out.ToolCall = &c
	}
	if r := p.GetToolResult(); r != nil {
		out.ToolResult = &hooks.ToolResult{
			CallID: r.GetCallId(), Content: r.GetContent(), IsError: r.GetIsError(), Reason: hooks.ResultReason(r.GetReason()),
		}
	}
	return out
}

func call(c hooks.ToolCall) *pluginv1.ToolCall {
	return &pluginv1.ToolCall{Id: Text(c.ID), ProviderId: Text(c.ProviderID), Name: Text(c.Name), Arguments: Text(c.Arguments)}
}

func callOf(c *pluginv1.ToolCall) hooks.ToolCall {
	return hooks.ToolCall{ID: c.GetId(), ProviderID: c.GetProviderId(), Name: c.GetName(), Arguments: c.GetArguments()}
}

func hiddenMessage(m hooks.HiddenMessage) *pluginv1.HiddenMessage {
	return &pluginv1.HiddenMessage{Role: Text(string(m.Role)), Text: Text(m.Text)}
}

func hiddenMessageOf(m *pluginv1.HiddenMessage) hooks.HiddenMessage {
	return hooks.HiddenMessage{Role: hooks.Role(m.GetRole()), Text: m.GetText()}
}

func header(h hooks.Header) *pluginv1.Header {
	return &pluginv1.Header{Name: Text(h.Name), Value: Text(h.Value)}
}

func headerOf(h *pluginv1.Header) hooks.Header {
	return hooks.Header{Name: h.GetName(), Value: h.GetValue()}
}
