package store

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// conversationRow is a message that is in the conversation, or enqueued.
type conversationRow struct {
	hooks.Message
	enqueued bool
}

// split tells the conversation from the queue, both in order of position.
func split(rows []conversationRow) (messages, enqueued []hooks.Message) {
	messages = make([]hooks.Message, 0, len(rows))
	for _, r := range rows {
		if r.enqueued {
			r.Position = max(r.Position, -r.Position)
			enqueued = append(enqueued, r.Message)
		} else {
			messages = append(messages, r.Message)
		}
	}
	return messages, enqueued
}

// byArrival orders messages by the seq that brought them, which is what the
// position of an enqueued one is made of.
func byArrival(enqueued []hooks.Message) []hooks.Message {
	return slices.SortedFunc(slices.Values(enqueued), func(a, b hooks.Message) int { return cmp.Compare(a.Position, b.Position) })
}

// withNext are the runs of a state: r, and behind it those that have yet to
// begin, which r may be one of.
func withNext(r loop.Run, enqueued []hooks.Message) []loop.Run {
	next := loop.NextRuns(enqueued)
	for i := range next {
		if next[i].ID == r.ID {
			next[i] = r
			return next
		}
	}
	return append([]loop.Run{r}, next...)
}

// selectOrder is selectMessages without what was said, which may not be readable.
const selectOrder = `
	SELECT id::text, coalesce(run_id::text, ''), role, position, enqueued
	FROM agentd.messages
	WHERE tenant_id = $1 AND session_id = $2 AND replaced_seq IS NULL
	ORDER BY position`

func scanOrder(row pgx.CollectableRow) (r conversationRow, err error) {
	err = row.Scan(&r.ID, &r.RunID, &r.Role, &r.Position, &r.enqueued)
	return r, err
}
