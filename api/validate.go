package api

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The limits of what a request may hold.
const (
	maxName   = 200       // characters of an external id, an idempotency key, an agent's name
	maxReason = 1000      // characters of a reason
	maxText   = 256 << 10 // bytes of a message

	defaultPage, maxPage             = 50, 100
	defaultEventsPage, maxEventsPage = 100, 500
	// maxPageBytes is half of what clients of gRPC take by default. One element
	// that is larger is a page.
	maxPageBytes = 2 << 20
)

func invalid(field, problem string) error {
	return &loop.InvalidError{Field: field, Problem: problem}
}

// parseID returns an id as agentd writes it. An id that cannot be one of ours is
// one that does not exist.
func parseID(field, id string) (string, error) {
	if id == "" {
		return "", invalid(field, "is empty: send the id that agentd gave")
	}
	u, err := uuid.Parse(id)
	// Parse also takes other spellings, such as urn:uuid:.
	if err != nil || len(id) != len(uuid.Nil.String()) {
		return "", loop.ErrNotFound
	}
	return u.String(), nil
}

// checkName refuses what cannot be an identifier. Text is cleaned, but two keys
// that differ must not become one.
func checkName(field, name string) error {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return invalid(field, "is not valid text: send UTF-8 without U+0000")
	}
	return checkLength(field, name, maxName)
}

func checkLength(field, s string, limit int) error {
	if n := utf8.RuneCountInString(s); n > limit {
		return invalid(field, fmt.Sprintf("has %d characters: send at most %d", n, limit))
	}
	return nil
}

func checkText(text string) error {
	if len(text) > maxText {
		return invalid("text", fmt.Sprintf("has %d bytes: send at most %d", len(text), maxText))
	}
	return nil
}

// metadataPatch says what keys are to have; nil is nothing.
func metadataPatch(set map[string]string, remove []string) (map[string]*string, error) {
	patch := map[string]*string{}
	for _, k := range remove {
		if _, ok := set[k]; ok {
			return nil, invalid("remove_metadata", fmt.Sprintf("has %q, which metadata has, too: send it in one of them", event.Shorten(k, 80)))
		}
		patch[k] = nil
	}
	for k, v := range set {
		patch[k] = &v
	}
	return patch, nil
}

// checkAfter turns a cursor of the wire into a seq.
func checkAfter(after uint64) (int64, error) {
	if after > math.MaxInt64 {
		return 0, sse.ErrCursorAhead
	}
	return int64(after), nil
}

// pageSize applies the default and the limit.
func pageSize(asked int32, fallback, limit int) (int, error) {
	switch {
	case asked < 0:
		return 0, invalid("page_size", "is negative: send 0 for the default or a positive number")
	case asked == 0:
		return fallback, nil
	}
	return min(int(asked), limit), nil
}

// checkDecision fills in what the answer is.
func checkDecision(m *agentdv1.DecideApprovalRequest, cmd *loop.DecideApproval) error {
	edit := m.GetDecision() == agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT
	if !edit && m.GetArguments() != "" {
		return invalid("arguments", "go with APPROVAL_DECISION_EDIT and no other answer")
	}
	switch m.GetDecision() {
	case agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE:
		cmd.Approve = true
	case agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY:
	case agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT:
		cmd.Arguments = &m.Arguments
	case agentdv1.ApprovalDecision_APPROVAL_DECISION_HAPPENED:
		cmd.Outcome = event.DecisionHappened
	case agentdv1.ApprovalDecision_APPROVAL_DECISION_DID_NOT_HAPPEN:
		cmd.Outcome = event.DecisionDidNotHappen
	default:
		return invalid("decision", "is no answer: send APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY or APPROVAL_DECISION_EDIT, "+
			"or for an outcome APPROVAL_DECISION_HAPPENED or APPROVAL_DECISION_DID_NOT_HAPPEN")
	}
	return nil
}

// page is pageOf for most lists.
func page(size int32, token string) (loop.Page, error) {
	return pageOf(size, token, defaultPage, maxPage)
}

// pageOf asks for one element more than the page has, which says whether another
// page follows.
func pageOf(size int32, token string, fallback, limit int) (loop.Page, error) {
	n, err := pageSize(size, fallback, limit)
	if err != nil {
		return loop.Page{}, err
	}
	if token != "" {
		if token, err = parseID("page_token", token); err != nil {
			return loop.Page{}, errBadPageToken
		}
	}
	return loop.Page{Limit: n + 1, After: token}, nil
}

// cut leaves out the element too many, and those that would make the page larger
// than it may be, and returns the token of the next page.
func cut[T any, W proto.Message](list []T, p loop.Page, id func(T) string, wire func(T) W) (page []W, next string) {
	size := 0
	for i, v := range list {
		w := wire(v)
		size += proto.Size(w)
		if i == p.Limit-1 || i > 0 && size > maxPageBytes {
			return page, id(list[i-1])
		}
		page = append(page, w)
	}
	return page, ""
}
