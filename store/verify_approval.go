package store

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

func (h *history) noteRequest(e event.Event, p event.ApprovalRequested) {
	h.sameDigest(e, p.ArgumentsSHA256, digestOf(p.Arguments), "the digest of its arguments")
	r := columns{"kind": kindColumn(p.Kind), "name": p.Name, "arguments": p.Arguments, "arguments_sha256": p.ArgumentsSHA256, "status": approvalPending}
	r.text("tenant_id", h.state.TenantID)
	r.text("run_id", e.RunID)
	r.number("turn_no", int64(e.Turn))
	r.text("call_id", p.CallID)
	r.text("requested_by", p.By)
	r.text("reason", p.Reason)
	r.time("requested_at", e.At)
	r.number("requested_seq", e.Seq)
	if p.ChangedFrom != nil {
		r["changed_from"] = *p.ChangedFrom
	}
	if a := approversColumn(p.Approvers); a.Valid {
		r["approvers"] = a.String
	}
	// When it expires is the database's to know.
	r["expires"] = strconv.FormatBool(p.TimeoutMS > 0)
	h.approvals[p.ApprovalID] = r
}

func (h *history) noteAnswer(e event.Event, p event.ApprovalDecided) {
	r, ok := h.approvals[p.ApprovalID]
	if !ok || r["call_id"] != p.CallID {
		h.report.add(Difference{
			Table: "events", Row: h.sessionID + "/" + strconv.FormatInt(e.Seq, 10), Column: "payload",
			Got: "an answer to approval " + p.ApprovalID, Want: "an answer to what was asked of call " + p.CallID,
		})
		return
	}
	h.sameDigest(e, p.ArgumentsSHA256, r["arguments_sha256"], "as approval "+p.ApprovalID+" was asked for")
	r["status"], r["decided_by_kind"], r["decided_by_id"] = string(p.Decision), string(e.Actor.Kind), e.Actor.ID
	r.text("decision_reason", p.Reason)
	r.time("decided_at", e.At)
	r.number("decided_seq", e.Seq)
	if p.EditedArguments != nil {
		h.sameDigest(e, p.EditedSHA256, digestOf(*p.EditedArguments), "the digest of what was given")
		r["edited_arguments"], r["edited_sha256"] = *p.EditedArguments, p.EditedSHA256
	}
}

// checkStart holds the start of a call that people were asked about against
// what they were shown: they said yes to these bytes and to no others.
func (h *history) checkStart(e event.Event, p event.ToolStarted) {
	run, _ := h.state.Run(e.RunID)
	turn, _ := run.Turn()
	for _, call := range turn.Calls {
		a, asked := h.approvals[call.ApprovalID]
		if call.ID != p.CallID || !asked {
			continue
		}
		want, why := a["arguments_sha256"], "as approval "+call.ApprovalID+" was asked for"
		if edited, ok := a["edited_sha256"]; ok {
			want, why = edited, "as approval "+call.ApprovalID+" was answered"
		}
		h.sameDigest(e, p.ArgumentsSHA256, want, why)
		if p.Arguments != nil {
			h.sameDigest(e, digestOf(*p.Arguments), want, "the digest of its arguments, "+why)
		}
	}
}

func (h *history) sameDigest(e event.Event, got, want, why string) {
	if got != want {
		h.report.add(Difference{
			Table: "events", Row: h.sessionID + "/" + strconv.FormatInt(e.Seq, 10), Column: "payload arguments_sha256",
			Got: quoted(got, true), Want: quoted(want, true) + ", " + why,
		})
	}
}

// finishApprovals is for what only the whole log can tell.
func (h *history) finishApprovals() {
	for _, id := range slices.Sorted(maps.Keys(h.approvals)) {
		a := h.approvals[id]
		if run, _ := h.state.Run(a["run_id"]); a["status"] == approvalPending && run.Status.Terminal() {
			h.report.add(Difference{Table: "approvals", Row: id, Column: "status", Got: quoted(approvalPending, true), Want: "an answer: its run is " + string(run.Status)})
		}
	}
}

func digestOf(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}
