package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// zoned are the arguments of a booking as a policy sees them.
func zoned(in hooks.BeforeToolCall) string {
	zone, _, _ := strings.Cut(strings.TrimPrefix(in.Call.Arguments, `{"zone":"`), `"`)
	return zone
}

// rolePolicies are the policies that [roles] are about. The one who asks says what
// it saw.
var rolePolicies = map[byte]callPolicy{
	'M': {id: "M", rule: `code: zone, transform: {arguments: {zone: UTC}}`, says: func(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
		arguments := strings.Replace(in.Call.Arguments, zoned(in), "UTC", 1)
		return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Reason: hooks.Reason{Code: "zone"}, Arguments: &arguments}
	}},
	'N': {id: "N", rule: `when: "false", block: x`, says: func(hooks.BeforeToolCall) hooks.BeforeToolCallResult {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
	}},
	'A': {id: "A", rule: `code: who_books, ask: "May it book {{ call.arguments.zone }}?"`, says: func(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
		return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Code: "who_books", Text: "May it book " + zoned(in) + "?"}}
	}},
	'D': {id: "D", rule: `code: utc, when: call.arguments.zone == "UTC", block: Not in UTC.`, says: func(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
		if zoned(in) != "UTC" {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "utc", Text: "Not in UTC."}}
	}},
}

// arrangement is who stands where, in which phase, and what each is written in.
type arrangement struct {
	order  string
	phases map[byte]hooks.Phase // mutate for those that are not in it
	kinds  func(i int) int
}

func (a arrangement) String() string { return fmt.Sprint(a.order, a.phases) }

func (a arrangement) phase(role byte) hooks.Phase {
	if p, ok := a.phases[role]; ok {
		return p
	}
	return hooks.PhaseMutate
}

// hooks are registered in the order.
func (a arrangement) hooks(t *testing.T) (h hooks.Hooks) {
	t.Helper()
	for i := range len(a.order) {
		p := rolePolicies[a.order[i]]
		p.phase = a.phase(a.order[i])
		h = h.Then(policyKinds[a.kinds(i)].make(t, p))
	}
	return h
}

// expected is what the ledger has to say, with what was changed to what, and what
// the person is asked. Denied is whether the call is.
func (a arrangement) expected() (rows []string, question string, denied bool) {
	zone, chain := "CET", ""
	for _, p := range []hooks.Phase{hooks.PhaseMutate, hooks.PhaseValidate} {
		for i := range len(a.order) {
			if a.phase(a.order[i]) == p {
				chain += a.order[i : i+1]
			}
		}
	}
	denied = strings.Contains(chain, "D") && strings.Index(chain, "D") > strings.Index(chain, "M")
	for i := range len(chain) {
		row := ""
		switch chain[i] {
		case 'M':
			row, zone = `transform zone {arguments} t [{"op":"replace","path":"/call/arguments","value":"{\"zone\":\"UTC\"}"}]`, "UTC"
		case 'N':
			row = "continue - {} t -"
		case 'A':
			row, question = "ask who_books {} "+map[bool]string{true: "f -", false: "t -"}[denied], "May it book "+zone+"?"
		case 'D':
			if row = "continue - {} t -"; denied {
				row = "block utc {} t -"
			}
		}
		rows = append(rows, fmt.Sprintf("%d/%d %s %s", i+1, len(chain), chain[i:i+1], row))
		if chain[i] == 'D' && denied {
			break
		}
	}
	return rows, question, denied
}

func TestPoliciesInEveryOrderAndKindHaveTheSameSay(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	kinds := len(policyKinds)
	for n, order := range orders(roles) {
		// Each place has each kind; in the full size every order has each of them.
		for round := range rounds(1, 2*kinds) {
			phases := map[byte]hooks.Phase{}
			if (n+round)%2 == 1 {
				phases['D'] = hooks.PhaseValidate
			}
			s.inOrder(t, arrangement{order, phases, func(i int) int { return (n/2 + i*(1+round%2) + round) % kinds }})
		}
	}
	for kind := range kinds {
		for _, order := range rounded([]string{"AMN", "MNA"}, orders("MNA")) {
			s.inOrder(t, arrangement{order, map[byte]hooks.Phase{'A': hooks.PhaseValidate}, func(int) int { return kind }})
		}
	}
}

// rounds is how many there are in the quick suite and in the full size.
func rounds(quick, full int) int {
	if fullSize() {
		return full
	}
	return quick
}

func rounded[T any](quick, full T) T {
	if fullSize() {
		return full
	}
	return quick
}

func (s *stack) inOrder(t *testing.T, a arrangement) {
	t.Helper()
	s.judges(t, a, a.hooks(t))
}

// roleRows are the rows of [rolePolicies], whose hooks have ids that begin with the role.
func roleRows(t *testing.T, db *storetest.DB, session string) []string {
	t.Helper()
	return rowsAt(t, db, session, `position || '/' || chain_length, upper(left(hook_id, 1)), action, coalesce(reason_code, '-'), fields_changed, effective, coalesce(patch::text, '-')`)
}

// judges has the hooks of an arrangement judge a call.
func (s *stack) judges(t *testing.T, a arrangement, h hooks.Hooks) {
	t.Helper()
	rows, question, denied := a.expected()
	p := s.newPoliced(t, h, [2]string{toolBook, `{"zone":"CET"}`})
	run := p.goes()
	if denied {
		if got := p.toldAt(1); run.Status != loop.RunCompleted || len(p.all()) != 0 || got[0].Reason != hooks.ReasonBlocked || got[0].Content != "This call was blocked and not run: Not in UTC." {
			t.Errorf("%s: denied, and the run is %s, the tool ran with %q, the model is told %+v", a, run.Status, p.all(), got)
		}
	} else {
		p.approves(a.String(), question, `{"zone":"UTC"}`)
		if got := p.toldAt(1); !slices.Equal(p.all(), []string{`{"zone":"UTC"}`}) || got[0].IsError {
			t.Errorf("%s: approved, and the tool ran with %q, the model is told %+v", a, p.all(), got)
		}
	}
	got := roleRows(t, s.db, p.job.SessionID)
	if !slices.Equal(got, rows) {
		t.Errorf("%s: ledger\n%s\nwant\n%s", a, strings.Join(got, "\n"), strings.Join(rows, "\n"))
	}
	if broken := scalar[int](t, s.db, `
		SELECT count(*) FROM agentd.hook_decisions a JOIN agentd.hook_decisions b USING (session_id, subject, gate)
		WHERE session_id = $1 AND b.position = a.position + 1 AND a.output_sha256 <> b.input_sha256`, p.job.SessionID); broken != 0 {
		t.Errorf("%s: %d hooks saw something else than the one before left", a, broken)
	}
}

// approves says yes to the one question of the run, which is about these
// arguments, and takes the run to its end.
func (p *policed) approves(name, question, arguments string) {
	p.t.Helper()
	asked := p.question(name, question, arguments)
	p.decides(name, loop.DecideApproval{Approve: true, ArgumentsSHA256: asked.ArgumentsSHA256})
}

// question is what a person is asked.
func (p *policed) question(name, text, arguments string) event.ApprovalRequested {
	p.t.Helper()
	list := decodedOf[event.ApprovalRequested](p.t, p.Events(p.t, p.job.SessionID))
	if len(list) == 0 {
		p.t.Fatalf("%s: nobody is asked", name)
	}
	last := list[len(list)-1]
	if last.Arguments != arguments || last.Reason != text {
		p.t.Errorf("%s: a person is asked %q about %s; want %q about %s", name, last.Reason, last.Arguments, text, arguments)
	}
	return last
}

// decides answers the last question, and takes the run to its end.
func (p *policed) decides(name string, d loop.DecideApproval) {
	p.t.Helper()
	list := decodedOf[event.ApprovalRequested](p.t, p.Events(p.t, p.job.SessionID))
	d.TenantID, d.ApprovalID, d.Actor = looptest.Tenant, list[len(list)-1].ApprovalID, looptest.Tester
	if _, err := p.Commands.DecideApproval(p.t.Context(), d); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	p.job.Ticket++
	if run := p.Advance(p.t, p.job); run.Status != loop.RunCompleted {
		p.t.Errorf("%s: the run is %s", name, run.Status)
	}
}

func decodedOf[P event.Payload](t *testing.T, events []event.Event) []P {
	t.Helper()
	var list []P
	for _, e := range events {
		decodedPayload, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := decodedPayload.(P); ok {
			list = append(list, p)
		}
	}
	return list
}

// TestNoChangeSlipsPastAPolicyThatValidates: it stands first, and judges what all
// the others have left, what a person has changed included.
func TestNoChangeSlipsPastAPolicyThatValidates(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	validate := map[byte]hooks.Phase{'D': hooks.PhaseValidate}
	for one, first := range policyKinds {
		for other, second := range policyKinds {
			kinds := func(i int) int { return []int{one, other, one}[i] }
			name := string(first.kind + " and " + second.kind)
			p := s.newPoliced(t, arrangement{"DM", validate, kinds}.hooks(t), [2]string{toolBook, `{"zone":"CET"}`})
			if run := p.goes(); run.Status != loop.RunCompleted || len(p.all()) != 0 || !strings.HasSuffix(p.toldAt(1)[0].Content, "Not in UTC.") {
				t.Errorf("%s: the tool ran with %q, the model is told %+v", name, p.all(), p.toldAt(1))
			}
			if one != other && !fullSize() {
				continue
			}
			p = s.newPoliced(t, arrangement{"DA", validate, kinds}.hooks(t), [2]string{toolBook, `{"zone":"CET"}`})
			p.goes()
			p.question(name, "May it book CET?", `{"zone":"CET"}`)
			edited := `{"zone":"UTC"}`
			p.decides(name, loop.DecideApproval{Arguments: &edited})
			if len(p.all()) != 0 || !strings.HasSuffix(p.toldAt(1)[0].Content, "Not in UTC.") {
				t.Errorf("%s: what a person has changed ran with %q, the model is told %+v", name, p.all(), p.toldAt(1))
			}
			// What is changed again behind a person's back is asked about again.
			p = s.newPoliced(t, arrangement{"AM", nil, kinds}.hooks(t), [2]string{toolBook, `{"zone":"CET"}`})
			p.goes()
			p.question(name, "May it book CET?", `{"zone":"UTC"}`)
			edited = `{"zone":"EET"}`
			if _, err := p.Commands.DecideApproval(t.Context(), loop.DecideApproval{
				TenantID: looptest.Tenant, ApprovalID: p.question(name, "May it book CET?", `{"zone":"UTC"}`).ApprovalID, Arguments: &edited, Actor: looptest.Tester,
			}); err != nil {
				t.Fatal(err)
			}
			p.job.Ticket++
			if run := p.Advance(t, p.job); run.Status != loop.RunWaiting || len(p.all()) != 0 {
				t.Errorf("%s: the run is %s, the tool ran with %q", name, run.Status, p.all())
			}
			p.approves(name, "May it book EET?", `{"zone":"UTC"}`)
			if !slices.Equal(p.all(), []string{`{"zone":"UTC"}`}) {
				t.Errorf("%s: the tool ran with %q", name, p.all())
			}
		}
	}
}
