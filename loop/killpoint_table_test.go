package loop_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestRecordKillPoints kills a process in each append of each drama, written or
// lost, with hooks that cost no append. What came of it is the table in
// docs/durability.md: `make record` writes it, and otherwise it has to be the
// same. What must hold each time is in check.
func TestRecordKillPoints(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	known := map[killRow]bool{}
	for _, d := range dramas {
		rows := deaths(t, d, everyGate)
		fresh := slices.DeleteFunc(slices.Clone(rows), func(r killRow) bool { return known[r] })
		for _, r := range rows {
			known[r] = true
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s", strings.ToUpper(d.name[:1])+d.name[1:], d.plot, table(fresh))
	}
	if t.Failed() {
		return
	}
	const begin, end = "<!-- killpoints:begin -->\n", "<!-- killpoints:end -->"
	path := filepath.Join("..", "docs", "durability.md")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	inside, after, found := strings.Cut(rest, end)
	want := b.String() + "\n"
	switch {
	case !ok || !found:
		t.Fatal("docs/durability.md has no place for the table")
	case os.Getenv("AGENTD_RECORD") != "":
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case inside != want:
		t.Error("docs/durability.md says something else than what happens: make record")
	}
}

// killRow is what became of a run whose process died in one append.
type killRow struct {
	// point is the append behind the last event before it, and whether it was
	// written.
	point   string
	written bool
	killOutcome
}

// killOutcome is the same in all rows of the table's line.
type killOutcome struct {
	// resume is what whoever came next did, seen what a client that follows is
	// sent after the death, told what the model is sent next, and end compares
	// the log with the undisturbed one.
	resume, seen, told, end string
}

// table has a line for appends in a row with the same outcome.
func table(rows []killRow) string {
	var b strings.Builder
	b.WriteString("| the process dies while it writes | what resume does | what a client is sent after that | what the model is told next | the log in the end |\n|---|---|---|---|---|\n")
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].killOutcome == rows[0].killOutcome {
			n++
		}
		o := rows[0].killOutcome
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", points(rows[:n]), o.resume, o.seen, o.told, o.end)
		rows = rows[n:]
	}
	return b.String()
}

// points names appends, each once; those that were both lost and written stand
// without a word.
func points(rows []killRow) string {
	var list []string
	for len(rows) > 0 {
		point, n := rows[0].point, 1
		fate := map[bool]string{false: " **lost**", true: " **written**"}[rows[0].written]
		if len(rows) > 1 && rows[1].point == point && !rows[0].written && rows[1].written {
			fate, n = "", 2
		}
		if point += fate; !slices.Contains(list, point) {
			list = append(list, point)
		}
		rows = rows[n:]
	}
	return strings.Join(list, "<br>")
}

// pointOf names the nth append, behind the last event of the one before it.
func pointOf(appends []loop.Append, n int) string {
	last := ""
	if n > 0 {
		before := appends[n-1].Events
		last = "`" + string(before[len(before)-1].Type) + "` "
	}
	return last + "→ " + compressed(appends[n].Events)
}

// resumed says what was done after the death.
func (k *staged) resumed(t *testing.T, events []event.Event, unknown map[string]hooks.ResultReason) string {
	t.Helper()
	var did []string
	add := func(format string, args ...any) { did = append(did, fmt.Sprintf(format, args...)) }
	switch {
	case k.repeated && k.written:
		add("the client asks again and is told what was stored")
	case k.repeated:
		add("nothing of the request is there; the client asks again")
	}
	after := events[k.cut():]
	released := slices.IndexFunc(after, func(e event.Event) bool { return e.Type == event.TypeRunReleased })
	for i, e := range after {
		switch {
		case e.Type == event.TypeRunReleased && after[i+1].Type == event.TypeRunResumed:
			add("another worker takes over (`%s`)", field[string](t, after[i+1], "cause"))
		case e.Type == event.TypeRunReleased:
			add("the sweeper ends the run")
		case e.Type == event.TypeRunQueued && field[string](t, e, "cause") == "job_lost":
			add("the job died with its worker and is made again (`job_lost`)")
		case e.Type == event.TypeAssistantDiscarded && released >= 0:
			add("attempt %d is void", field[int](t, e, "attempt"))
		}
	}
	before := map[attemptOf]bool{}
	for _, r := range k.requests {
		a := attemptOf{r.RunID, r.Turn, 0}
		if !r.after {
			before[a] = true
		} else if before[a] {
			add("the model is asked again")
		}
	}
	entered := map[string]bool{}
	for _, e := range k.entered {
		if !e.after {
			entered[e.tool] = true
		} else if entered[e.tool] {
			add("`%s` runs again", e.tool)
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(unknown)) {
		if entered[tool] {
			add("`%s`, which took effect, does not run again", tool)
		} else {
			add("`%s`, which might have taken effect and did not, does not run", tool)
		}
	}
	if len(did) == 0 {
		return "nothing: everything is there"
	}
	return strings.Join(did, "; ")
}

// seen lists what a client that follows is sent after the death, up to where it
// is what the undisturbed one has.
func (k *staged) seen(whole, events []event.Event) string {
	after := events[k.cut():]
	same := 0
	for same < len(after) && same < len(whole) && sameFact(after[len(after)-1-same], whole[len(whole)-1-same]) {
		same++
	}
	if same == len(after) && same > len(whole)-int(k.cut()) {
		same-- // the first one was there already
	}
	head := compressed(after[:len(after)-same])
	switch {
	case len(after) == 0:
		return "nothing: it is the end"
	case head == "":
		return "what was to come: `" + string(after[0].Type) + "` …"
	case same == 0:
		return head
	}
	return head + ", then as if nothing had happened: `" + string(after[len(after)-same].Type) + "` …"
}

func sameFact(a, b event.Event) bool { return a.Type == b.Type && a.Turn == b.Turn }

// compressed lists the types of events, each with how often it comes in a row.
func compressed(events []event.Event) string {
	var list []string
	for i := 0; i < len(events); {
		n := 1
		for i+n < len(events) && events[i+n].Type == events[i].Type {
			n++
		}
		name := "`" + string(events[i].Type) + "`"
		if n > 1 {
			name += fmt.Sprintf(" ×%d", n)
		}
		list = append(list, name)
		i += n
	}
	return strings.Join(list, ", ")
}

// told is what the model is sent in the first call after the death, "" if there
// is none.
func (k *staged) told() string {
	for _, r := range k.requests {
		if r.after {
			return conversation(r.Messages)
		}
	}
	return ""
}

// conversation is a history in a line.
func conversation(messages []hooks.Message) string {
	var list []string
	names := map[string]string{}
	for _, m := range messages {
		text := anyTag.ReplaceAllString(m.Text(), "")
		calls := 0
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				names[p.ToolCall.ID] = p.ToolCall.Name
				calls++
			case p.ToolResult != nil && p.ToolResult.Reason != "":
				text = names[p.ToolResult.CallID] + ": `" + string(p.ToolResult.Reason) + "`"
			case p.ToolResult != nil:
				text = names[p.ToolResult.CallID] + ": its output"
			}
			if p.ToolResult != nil && strings.HasPrefix(p.ToolResult.Content, "[The arguments of this call were changed") {
				text += ", with other arguments"
			}
		}
		switch m.Role {
		case hooks.RoleTool:
		case hooks.RoleSystem:
			text = "the notice"
		case hooks.RoleUser, hooks.RoleAssistant:
			text = "“" + text + "”"
		}
		if calls == 1 {
			text += " and a call"
		} else if calls > 1 {
			text += fmt.Sprintf(" and %d calls", calls)
		}
		list = append(list, text)
	}
	return strings.Join(list, " · ")
}

func ended(whole, events []event.Event, unknown map[string]hooks.ResultReason) string {
	switch {
	case len(unknown) > 0:
		var list []string
		for _, tool := range slices.Sorted(maps.Keys(unknown)) {
			list = append(list, "`"+tool+"`: `"+string(unknown[tool])+"`")
		}
		return "the same but for " + strings.Join(list, ", ")
	case slices.EqualFunc(whole, events, sameFact):
		return "the same log"
	}
	return "the same up to attempts"
}
