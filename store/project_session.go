package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// descriptionChange is what a client says about a session.
type descriptionChange struct {
	title  pgtype.Text // empty: none
	userID pgtype.Text
	// metadata is a merge patch.
	metadata map[string]*string
}

// replacedRow is a message that leaves the conversation.
type replacedRow struct {
	id  pgtype.UUID
	seq int64
}

func (p *projector) describeNew(v event.SessionCreated) {
	if v.Title == "" && v.User == "" && len(v.Metadata) == 0 {
		return
	}
	c := p.description()
	c.title, c.userID = text(v.Title), text(v.User)
	for k, value := range v.Metadata {
		c.metadata[k] = &value
	}
}

func (p *projector) describe(v event.SessionUpdated) {
	c := p.description()
	if v.Title != nil {
		c.title = pgtype.Text{String: *v.Title, Valid: true}
	}
	for k, value := range v.Metadata {
		c.metadata[k] = value
	}
}

func (p *projector) description() *descriptionChange {
	if len(p.described) == 0 {
		p.described = append(p.described, descriptionChange{metadata: map[string]*string{}})
	}
	return &p.described[0]
}

const (
	// The row is the session's own, which this transaction has written.
	updateDescriptions = `
UPDATE agentd.sessions AS s SET
	title = nullif(coalesce(c.title, s.title), ''),
	title_search = nullif(coalesce(c.title_search, s.title_search), ''),
	user_id = coalesce(c.user_id, s.user_id),
	metadata = jsonb_strip_nulls(s.metadata || c.metadata::jsonb)
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
	AS c (session_id, append_id, title, title_search, user_id, metadata)
WHERE s.id = c.session_id AND s.append_id = c.append_id AND s.xmin = pg_catalog.pg_current_xact_id()::xid`

	replaceMessages = `
UPDATE agentd.messages AS m SET
	replaced_seq = c.seq,
	position = CASE WHEN m.enqueued THEN c.seq ELSE m.position END
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[]) AS c (session_id, append_id, id, seq)
` + ownSession + `
WHERE m.id = c.id AND m.session_id IS NOT DISTINCT FROM s.id`
)

func descriptionArgs(rows []row[descriptionChange]) []any {
	type c = descriptionChange
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(d *c) pgtype.Text { return d.title }),
		column(rows, func(d *c) pgtype.Text { return pgtype.Text{String: searchable(d.title.String), Valid: d.title.Valid} }),
		column(rows, func(d *c) pgtype.Text { return d.userID }),
		column(rows, func(d *c) string { return encodePatch(d.metadata) }),
	}
}

func replacedArgs(rows []row[replacedRow]) []any {
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(r *replacedRow) pgtype.UUID { return r.id }),
		column(rows, func(r *replacedRow) int64 { return r.seq }),
	}
}

// searchable is how titles are compared with what is searched for.
func searchable(title string) string { return strings.ToLower(title) }

func encodePatch(patch map[string]*string) string {
	raw, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("store: texts that JSON cannot hold: %v", err))
	}
	return string(raw)
}
