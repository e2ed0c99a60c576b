package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// gateTeller tells what was decided at gates.
type gateTeller struct {
	out io.Writer
	// calls are the calls by id, a name and the arguments that the next gate is
	// handed.
	calls map[string]string
	hooks hooksByName
	// all gives each hook that had no objection a line of its own.
	all bool
	// told are the hooks whose texts were shown.
	told map[*agentdv1.Hook]bool
}

// tell says who answered what at a gate, by which rule, and what was changed.
func (g gateTeller) tell(s story) {
	first := s.decisions[0]
	about := oneLine(g.calls[first.GetSubject()], 100)
	if about == "" && first.GetTurn() > 0 {
		about = fmt.Sprintf("turn %d attempt %d", first.GetTurn(), first.GetAttempt())
	}
	fmt.Fprintf(g.out, "? %s %s\n", first.GetGate(), about)
	var quiet []*agentdv1.Decision
	for _, d := range s.decisions {
		if saysNothing(d) {
			quiet = append(quiet, d)
		}
	}
	together := !g.all && len(quiet) > 1
	for _, d := range s.decisions {
		if !together || !saysNothing(d) {
			g.decision(d)
		}
	}
	if together {
		fmt.Fprintf(g.out, "    %s: continue [%s at most]: %s\n", count(int64(len(quiet)), "hook"), longest(quiet), oneLine(names(quiet), 140))
	}
	// Observers that are about other calls have no row, and neither have those of
	// OnChunk that stopped nothing.
	if missing := int(first.GetChainLength()) - len(s.decisions); missing > 0 && first.GetHookKind() != "observer" {
		fmt.Fprintf(g.out, "    (%s behind it not asked)\n", count(int64(missing), "hook"))
	}
	for _, d := range s.decisions {
		if d.GetEffective() && !isShadow(d) {
			g.changed(d.GetSubject(), newArguments(d.GetPatchJson()))
		}
	}
}

// changed has the gates from here on be about other arguments of a call; nil are
// those that it had.
func (g gateTeller) changed(call string, arguments *string) {
	if name, _, known := strings.Cut(g.calls[call], " "); known && arguments != nil {
		g.calls[call] = name + " " + *arguments
	}
}

// newArguments are those that a patch gives a call, nil for none: it is about
// something else, or tells a digest alone.
func newArguments(patch string) *string {
	var steps []struct {
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal([]byte(patch), &steps) // none, or a newer server's
	var arguments *string
	for _, step := range steps {
		if step.Path == "/call/arguments" && json.Unmarshal(step.Value, &arguments) == nil {
			return arguments
		}
	}
	return nil
}

func (g gateTeller) decision(d *agentdv1.Decision) {
	fmt.Fprintf(g.out, "    %s: %s", hookName(d), answerOf(d))
	if why := reasonOfDecision(d); why != "" {
		fmt.Fprintf(g.out, ", %s", oneLine(why, 200))
	}
	if did := observerDid(d); did != "" {
		fmt.Fprintf(g.out, "; %s", did)
	}
	fmt.Fprintf(g.out, " [%s]\n", latency(d))
	if h := g.hooks.of(d); h.GetText() != "" && !g.told[h] && (g.all || !saysNothing(d)) {
		g.told[h] = true
		fmt.Fprintf(g.out, "      %s\n", textLine(h))
	}
	if d.GetPatchJson() != "" {
		fmt.Fprintf(g.out, "      %s: %s\n", changeWord(d), oneLine(d.GetPatchJson(), 400))
	}
}

// saysNothing reports whether a hook had no objection, and nothing else to say.
func saysNothing(d *agentdv1.Decision) bool {
	return d.GetAction() == "continue" && d.GetOutcome() == "ok" && (d.GetEffective() || isShadow(d)) &&
		d.GetReasonCode() == "" && d.GetReason() == "" && !d.GetPayloadErased() && !strings.Contains(observerDid(d), " times")
}

// observerDid is what an observer did in a model call, in numbers; "" of another
// hook, and of what was erased.
func observerDid(d *agentdv1.Decision) string {
	var did struct {
		Chunks    *int64 `json:"chunks"`
		Bytes     int64  `json:"bytes"`
		BytesOut  int64  `json:"bytes_out"`
		Amended   int64  `json:"amended"`
		Emitted   int64  `json:"emitted"`
		Held      int64  `json:"held"`
		Throttled int64  `json:"throttled"`
		PausedMS  int64  `json:"paused_ms"`

		Chunk    int64  `json:"chunk"`
		Accepted int64  `json:"accepted"`
		Policy   string `json:"policy"`
	}
	if d.GetHookKind() != "observer" || json.Unmarshal([]byte(d.GetAnnotationsJson()), &did) != nil {
		return ""
	}
	switch {
	case d.GetGate() == onChunk:
		return fmt.Sprintf("at chunk %d behind %s, then %s", did.Chunk, count(did.Accepted, "byte"), oneLine(did.Policy, 20))
	case did.Chunks == nil:
		return ""
	}
	words := []string{fmt.Sprintf("%s of %s", count(*did.Chunks, "chunk"), count(did.Bytes, "byte"))}
	if did.BytesOut != did.Bytes {
		words = append(words, fmt.Sprintf("%d went on", did.BytesOut))
	}
	for _, part := range []struct {
		n    int64
		word string
	}{{did.Amended, "amended"}, {did.Emitted, "emitted"}, {did.Held, "held"}, {did.Throttled, "throttled"}} {
		if part.n > 0 {
			words = append(words, fmt.Sprintf("%s %d times", part.word, part.n))
		}
	}
	if did.PausedMS > 0 {
		words = append(words, fmt.Sprintf("reading paused %d ms", did.PausedMS))
	}
	return strings.Join(words, ", ")
}

// longest is the longest time that one of the decisions took. Shadows do not take
// theirs one after the other, so a sum would say nothing.
func longest(decisions []*agentdv1.Decision) time.Duration {
	var us uint64
	for _, d := range decisions {
		us = max(us, d.GetLatencyUs())
	}
	return time.Duration(us) * time.Microsecond
}

func names(decisions []*agentdv1.Decision) string {
	var list []string
	for _, d := range decisions {
		name := d.GetHookId()
		if isShadow(d) {
			name += " (shadow)"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

func isShadow(d *agentdv1.Decision) bool { return d.GetFailurePolicy() == "shadow" }

// changeWord stands before a patch.
func changeWord(d *agentdv1.Decision) string {
	if isShadow(d) {
		return "would have changed"
	}
	return "changed"
}

// textLine is what a hook does, in its own words, on a line.
func textLine(h *agentdv1.Hook) string {
	if h.GetKind() != "rule" {
		return "config: " + oneLine(h.GetText(), 600)
	}
	return "rule: " + oneLine(ruleText(h.GetText()), 600)
}

// ruleText is a rule's text without what its decision says too. What is no rule
// of this version stays as it is.
func ruleText(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') || !json.Valid([]byte(text)) {
		return text
	}
	var parts []string
	for d.More() { // it is valid: nothing fails from here on
		key, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		if key == "id" || key == "gate" {
			continue
		}
		said := string(value)
		var words string
		if json.Unmarshal(value, &words) == nil {
			said = words
		}
		parts = append(parts, fmt.Sprintf("%s: %s", key, said))
	}
	return strings.Join(parts, "; ")
}
