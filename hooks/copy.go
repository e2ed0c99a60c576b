package hooks

import "slices"

// copyMessages returns a deep copy of messages, each text passed through
// text.
func copyMessages(messages []Message, text func(string) string) []Message {
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		m.ID, m.RunID, m.Role = text(m.ID), text(m.RunID), Role(text(string(m.Role)))
		m.Parts = slices.Clone(m.Parts)
		for j := range m.Parts {
			m.Parts[j] = copyPart(m.Parts[j], text)
		}
	}
	return out
}

func copyPart(p Part, text func(string) string) Part {
	p.Type, p.Text = PartType(text(string(p.Type))), text(p.Text)
	if p.ToolCall != nil {
		c := *p.ToolCall
		c.ID, c.ProviderID, c.Name, c.Arguments = text(c.ID), text(c.ProviderID), text(c.Name), text(c.Arguments)
		p.ToolCall = &c
	}
	if p.ToolResult != nil {
		r := *p.ToolResult
		r.CallID, r.Content, r.Reason = text(r.CallID), text(r.Content), ResultReason(text(string(r.Reason)))
		p.ToolResult = &r
	}
	return p
}

func asIs(s string) string { return s }

// messagesSize counts the texts of messages and what holds them.
func messagesSize(messages []Message) int {
	n := 0
	for _, m := range messages {
		n += elementSize + len(m.ID) + len(m.RunID) + len(m.Role)
		for _, p := range m.Parts {
			n += elementSize + len(p.Type) + len(p.Text)
			if c := p.ToolCall; c != nil {
				n += len(c.ID) + len(c.ProviderID) + len(c.Name) + len(c.Arguments)
			}
			if r := p.ToolResult; r != nil {
				n += len(r.CallID) + len(r.Content) + len(r.Reason)
			}
		}
	}
	return n
}
